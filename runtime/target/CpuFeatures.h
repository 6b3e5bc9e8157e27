// Where cpuid tells of each feature. Private to CpuInfo.
#pragma once

#include "runtime/target/CpuInfo.h"

#include <span>

namespace llmopt::runtime {

enum class CpuidRegister : uint8_t { Eax, Ebx, Ecx, Edx };

/// Register state that the operating system must save for a feature to be
/// usable.
enum class CpuState : uint8_t { None, Avx, Avx512, Amx };

struct CpuFeature {
  std::string_view name; ///< LLVM's
  uint32_t leaf, subleaf;
  CpuidRegister where;
  uint8_t bit;
  CpuLevel level; ///< lowest level that reports it
  CpuState state = CpuState::None;
};

std::span<const CpuFeature> cpuFeatures();

} // namespace llmopt::runtime

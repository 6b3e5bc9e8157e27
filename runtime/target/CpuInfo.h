// The host processor as plain numbers: what schedules are chosen by and what a
// bundle's image is checked against. Feature names are LLVM's ("avx512bf16",
// "sse4.2").
#pragma once

#include "runtime/base/Status.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace llmopt::runtime {

struct CpuInfo {
  std::string vendor, brand;
  uint32_t cores = 1;   ///< physical cores that this process may use
  uint32_t threads = 1; ///< logical processors that this process may use
  uint64_t l1dBytes = 0, l2Bytes = 0,
           l3Bytes = 0;              ///< 0: unknown; L3 as one core sees it
  std::vector<std::string> features; ///< sorted

  bool has(std::string_view feature) const;
};

/// What a CPU schedule is chosen by: numbers only, so that a schedule for
/// another machine is another value and not another branch.
struct CpuTarget {
  uint32_t vectorBits = 128; ///< widest vector registers
  uint32_t registers = 16;   ///< vector registers
  bool hasFma = false;
  bool hasF16c = false;    ///< f16 <-> f32 conversion of vectors
  bool hasBf16Dot = false; ///< products of bf16 pairs added to f32
  /// Those do fewer products a second than FMA of f32 does, so that bf16 is better widened
  /// wherever memory does not wait.
  bool slowBf16Dot = false;
  uint64_t l1dBytes = 32 << 10, l2Bytes = 1 << 20, l3Bytes = 8 << 20;
  uint32_t threads = 1;

  bool operator==(const CpuTarget &) const = default;
};

/// How much of the processor is reported; each level contains the ones before
/// it.
enum class CpuLevel : uint8_t {
  Baseline, ///< x86-64: SSE2
  Avx2,     ///< x86-64-v3: AVX2, FMA, F16C, BMI
  Avx512,   ///< x86-64-v4: AVX-512 F, BW, CD, DQ, VL
  Native,   ///< everything
};

/// The processor itself, whatever the environment says.
CpuInfo detectCpu();

/// The same processor without the features above `level`.
CpuInfo limitCpu(CpuInfo info, CpuLevel level);

/// The processor as this process is to see it: `detectCpu`, lowered to what the
/// variable LLMOPT_CPU_FEATURES names (baseline, avx2, avx512, native), for
/// tests and comparisons. It can only lower. Another value is an error.
StatusOr<CpuInfo> hostCpu();

CpuTarget targetOf(const CpuInfo &info);

/// All features in LLVM's form: "+avx,+avx2,...".
std::string featureString(const CpuInfo &info);

/// Features that `required` ("+avx2,+fma,-avx512f") asks for and the processor
/// lacks, or that this runtime does not know. Tuning hints ("+fast-...") ask
/// for nothing.
std::vector<std::string> missingFeatures(const CpuInfo &info, std::string_view required);

} // namespace llmopt::runtime

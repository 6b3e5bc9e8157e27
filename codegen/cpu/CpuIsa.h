// What the vector code generator must know of a CPU: numbers, no LLVM types.
#pragma once

#include "llvm/ADT/StringRef.h"

namespace llmopt::cpu {

/// The vector unit, as the passes see it. The default is every x86-64 (SSE2).
struct CpuIsa {
  unsigned lanes = 4;       ///< f32 elements of a vector register
  unsigned registers = 16;  ///< architectural vector registers
  bool fma = false;         ///< fused multiply-add; without it, llvm.fma is a libm call
  bool f16c = false;        ///< f16 conversions; without it they are runtime calls
  bool sse41 = false;       ///< rounding instructions
  bool scalef = false;      ///< AVX512-DQ: VREDUCEPS and VSCALEFPS, what 2^x is made of
  bool bf16Dot = false;     ///< AVX512-BF16 pair products
  bool slowBf16Dot = false; ///< fewer of them a second than products of f32 FMA

  /// Reads LLVM feature names, comma separated, each with or without '+'
  /// ("+avx512f,+fma"); names it does not know are ignored, "-name" switches off. One name is
  /// not LLVM's: slow-bf16-dot.
  static CpuIsa fromFeatures(llvm::StringRef features);
};

} // namespace llmopt::cpu

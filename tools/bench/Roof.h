// The machine's limits, measured: what a kernel's time is compared with.
#pragma once

#include <string>

namespace llmopt::bench {

/// Limits of `threads` threads together. 0 where the host has no such instruction.
struct Roof {
  unsigned threads = 1;
  double fmaFlops = 0;     ///< f32 fused multiply-add, flop/s (2 each)
  double bf16DotFlops = 0; ///< AVX512-BF16 dot product, flop/s (4 a lane)
  double readBytes = 0;    ///< sequential reads of memory far larger than the caches, byte/s
  /// A line's way from one thread to another. Cores with a last-level cache in common take some 30
  /// ns, others 100 and more; a virtual machine's may move from the one to the other, and cores
  /// that share a cache may also share its way to memory.
  double handOverSeconds = 0;
  std::string isa; ///< "avx512", "avx2" or "baseline"
};

/// Takes about 0.3 s.
Roof measureRoof(unsigned threads);

} // namespace llmopt::bench

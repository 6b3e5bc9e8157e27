// Processor time of the calling thread: others who use the machine show in it as little as can be.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ctime>

namespace llmopt::bench {

inline uint64_t threadNs() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return uint64_t(time.tv_sec) * 1'000'000'000 + uint64_t(time.tv_nsec);
}

/// What a pair of looks at the clock takes by itself: the kernel is asked, which is a tenth of
/// what is measured. The least of many.
inline uint64_t threadClockNs() {
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < 10000; ++i) {
    uint64_t start = threadNs();
    least = std::min(least, threadNs() - start);
  }
  return least;
}

} // namespace llmopt::bench

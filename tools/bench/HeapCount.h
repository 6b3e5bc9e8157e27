// Counts heap allocations of this program while `counting` is set. Replaces the global operators,
// so exactly one file of a program includes it. Never inlined: g++ would see free() on what came
// from new. Under ThreadSanitizer, which has operators of its own, nothing is counted.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <new>

namespace llmopt::bench {

inline bool counting = false;
inline uint64_t allocations = 0;

} // namespace llmopt::bench

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LLMOPT_OTHER_HEAP
#endif
#endif

#ifndef LLMOPT_OTHER_HEAP
[[gnu::noinline]] void *operator new(size_t bytes) {
  llmopt::bench::allocations += llmopt::bench::counting;
  if (void *memory = std::malloc(bytes ? bytes : 1))
    return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void *memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void *memory, size_t) noexcept { std::free(memory); }
#endif

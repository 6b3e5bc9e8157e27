// The same hash as in StepChecksum.cpp, with 32 bytes to an instruction: a step of 256 rows and a
// chunk of 2,048 tokens has 36 KB, and hashing them is a tenth of its time.
#include "runtime/scheduler/StepChecksum.h"

#if defined(__x86_64__) && defined(__clang__)

#include <cstring>
#include <immintrin.h>

#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#define XXH_INLINE_ALL
#define XXH_VECTOR 2 // AVX2
#include <xxhash.h>

uint64_t llmopt::runtime::hashWithAvx2(const void *bytes, size_t count, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes, count, seed);
}
#pragma clang attribute pop

#else

uint64_t llmopt::runtime::hashWithAvx2(const void *bytes, size_t count, uint64_t seed) {
  return hashPortably(bytes, count, seed);
}

#endif

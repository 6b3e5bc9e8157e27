#include "runtime/scheduler/StepChecksum.h"
#include "runtime/scheduler/StepInput.h"

#define XXH_INLINE_ALL // no library to link
#include <xxhash.h>

#include <cstddef>

using namespace llmopt::runtime;

uint64_t llmopt::runtime::hashPortably(const void *bytes, size_t count, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes, count, seed);
}

uint64_t llmopt::runtime::stepChecksum(std::span<const uint8_t> bytes) {
#if defined(__x86_64__)
  static const auto hash = __builtin_cpu_supports("avx2") ? hashWithAvx2 : hashPortably;
#else
  constexpr auto hash = hashPortably;
#endif
  // The field itself is left out by hashing what follows with what precedes as the seed.
  constexpr size_t kField = offsetof(step::Header, checksum);
  uint64_t front = hashPortably(bytes.data(), kField, 0);
  size_t rest = kField + sizeof(uint64_t);
  return hash(bytes.data() + rest, bytes.size() - rest, front);
}

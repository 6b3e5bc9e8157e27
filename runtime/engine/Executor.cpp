#include "runtime/engine/Executor.h"

#define XXH_INLINE_ALL // no library to link
#include <xxhash.h>

#include <chrono>

using namespace llmopt::runtime;

int64_t MachineClock::now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

uint64_t llmopt::runtime::statusHashOf(const StepInput &input, std::span<const kv::Token> tokens) {
  return XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), input.header().checksum);
}

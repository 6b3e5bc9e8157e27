// XXH3 of a step's bytes, in the form that the processor runs fastest; all give the same.
// Private to the checksum.
#pragma once

#include <cstddef>
#include <cstdint>

namespace llmopt::runtime {

uint64_t hashPortably(const void *bytes, size_t count, uint64_t seed);
/// Where the processor has AVX2.
uint64_t hashWithAvx2(const void *bytes, size_t count, uint64_t seed);

} // namespace llmopt::runtime

// The hash of a block's tokens. Private to the prefix cache: its sources alone include it.
#pragma once

#include "runtime/kv/Prompt.h"

#include <cstddef>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif
#define XXH_INLINE_ALL // no library to link
#include <xxhash.h>

namespace llmopt::runtime::kv {

/// Most caches have blocks of 16 tokens: their hash and comparison have no loop.
inline constexpr uint32_t kCommonBlock = 16;

inline uint64_t hashTokens(const Token *tokens, uint32_t block, uint64_t seed) {
#if XXH_VERSION_NUMBER / 100 == 8
  if (block == kCommonBlock) // what XXH3_64bits_withSeed comes to for 64 bytes
    return XXH3_len_17to128_64b(reinterpret_cast<const xxh_u8 *>(tokens),
                                kCommonBlock * sizeof(Token), XXH3_kSecret, sizeof(XXH3_kSecret),
                                seed);
#endif
  return XXH3_64bits_withSeed(tokens, size_t{block} * sizeof(Token), seed);
}

inline bool equalTokens(const Token *a, const Token *b, uint32_t block) {
#if defined(__SSE2__)
  if (block == kCommonBlock) {
    auto at = [](const Token *p, int i) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i *>(p) + i);
    };
    __m128i same = _mm_cmpeq_epi32(at(a, 0), at(b, 0));
    for (int i = 1; i < 4; ++i)
      same = _mm_and_si128(same, _mm_cmpeq_epi32(at(a, i), at(b, i)));
    return _mm_movemask_epi8(same) == 0xffff;
  }
#endif
  return std::memcmp(a, b, size_t{block} * sizeof(Token)) == 0;
}

} // namespace llmopt::runtime::kv

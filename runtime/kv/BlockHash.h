// The hash of a block's tokens. Private to the prefix cache: its sources alone include it.
#pragma once

#include "runtime/kv/Prompt.h"

#include <array>
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

inline uint64_t hashAnyBlock(const Token *tokens, uint32_t block, uint64_t seed) {
  return XXH3_64bits_withSeed(tokens, size_t{block} * sizeof(Token), seed);
}

/// What XXH3_64bits_withSeed comes to for 64 bytes, with what follows from the seed worked out
/// before: four products of 128 bits, of 16 bytes each.
using BlockKeys = std::array<uint64_t, 8>;
inline BlockKeys blockKeys(uint64_t seed) {
  constexpr std::array<size_t, 4> kPlaces = {0, 32, 48, 16}; // in the secret
  BlockKeys keys;
  for (size_t i = 0; i < kPlaces.size(); ++i) {
    std::memcpy(&keys[2 * i], XXH3_kSecret + kPlaces[i], sizeof(uint64_t));
    std::memcpy(&keys[2 * i + 1], XXH3_kSecret + kPlaces[i] + 8, sizeof(uint64_t));
    keys[2 * i] += seed;
    keys[2 * i + 1] -= seed;
  }
  return keys;
}
inline uint64_t hashCommonBlock(const Token *tokens, const BlockKeys &keys) {
  using Wide = unsigned __int128;
  std::array<uint64_t, 8> data;
  static_assert(sizeof(data) == kCommonBlock * sizeof(Token));
  std::memcpy(data.data(), tokens, sizeof(data));
  uint64_t sum = sizeof(data) * 0x9E3779B185EBCA87u;
  for (size_t i = 0; i < data.size(); i += 2) {
    Wide product = Wide{data[i] ^ keys[i]} * (data[i + 1] ^ keys[i + 1]);
    sum += static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
  sum ^= sum >> 37;
  sum *= 0x165667919E3779F9u;
  return sum ^ sum >> 32;
}

inline uint64_t hashTokens(const Token *tokens, uint32_t block, uint64_t seed,
                           const BlockKeys &keys) {
  return block == kCommonBlock ? hashCommonBlock(tokens, keys) : hashAnyBlock(tokens, block, seed);
}

/// Without a call: the compiler would make one of a copy whose length it must look up.
inline void copyBlock(Token *to, const Token *from, uint32_t block) {
#if defined(__SSE2__)
  if (block == kCommonBlock) {
    for (int i = 0; i < 4; ++i)
      _mm_storeu_si128(reinterpret_cast<__m128i *>(to) + i,
                       _mm_loadu_si128(reinterpret_cast<const __m128i *>(from) + i));
    return;
  }
#endif
  std::memcpy(to, from, size_t{block} * sizeof(Token));
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

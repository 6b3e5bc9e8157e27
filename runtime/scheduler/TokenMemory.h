// Memory of the requests' tokens. A step writes to that of each request whose block ends, and each
// one's from the system's heap would be a page of its own for the translation cache: here they lie
// together in large pages. Not for a step: it allocates now and then.
#pragma once

#include "runtime/kv/LargePages.h"
#include "runtime/kv/Prompt.h"

#include <array>
#include <bit>
#include <utility>
#include <vector>

namespace llmopt::runtime {

class TokenMemory {
public:
  /// Not initialised.
  kv::Token *take(size_t tokens) {
    size_t lines = (tokens * sizeof(kv::Token) + kLine - 1) / kLine;
    if (lines > kMostLines)
      return new kv::Token[tokens];
    size_t kind = kindOf(lines);
    if (std::vector<kv::Token *> &list = spare[kind]; !list.empty()) {
      kv::Token *memory = list.back();
      list.pop_back();
      return memory;
    }
    size_t size = linesOf(kind) * kLine / sizeof(kv::Token);
    if (left < size) {
      blocks.emplace_back(kBlock / sizeof(kv::Token));
      next = blocks.back().data();
      left = kBlock / sizeof(kv::Token);
    }
    left -= size;
    return std::exchange(next, next + size);
  }
  /// What `take` gave for as many.
  void give(kv::Token *memory, size_t tokens) {
    size_t lines = (tokens * sizeof(kv::Token) + kLine - 1) / kLine;
    if (lines > kMostLines)
      delete[] memory;
    else if (memory)
      spare[kindOf(lines)].push_back(memory);
  }

private:
  static constexpr size_t kLine = 64, kBlock = size_t{2} << 20, kMostLines = kBlock / kLine / 8;
  /// Sizes are a seventh to a quarter apart, in lines of the cache. And odd: else the ends of
  /// requests of one length would share a few sets of the first cache.
  static size_t kindOf(size_t lines) {
    size_t shift = lines < 8 ? 0 : size_t(std::bit_width(lines)) - 3;
    return 4 * shift + ((lines - 1) >> shift) + 1;
  }
  static size_t linesOf(size_t kind) {
    size_t shift = kind < 8 ? 0 : kind / 4 - 1;
    return ((kind - 4 * shift) << shift) | 1;
  }

  std::vector<kv::LargeArray<kv::Token>> blocks;
  kv::Token *next = nullptr;                      ///< of the newest block, ...
  size_t left = 0;                                ///< ... and tokens from there on
  std::array<std::vector<kv::Token *>, 64> spare; ///< of each size
};

} // namespace llmopt::runtime

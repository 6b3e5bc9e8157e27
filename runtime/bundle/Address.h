// Addresses inside a pool of pages. Everything is 64-bit: with page 16, 8
// heads, d 128 and interleaved K and V, page 65536 already lies 2^31 elements
// in.
#pragma once

#include <cstdint>

namespace llmopt::bundle {

/// Strides of a pool in elements. K and V of an interleaved pool differ only in
/// the base pointer.
struct PoolStrides {
  int64_t page = 0, token = 0, head = 0;
};

/// Element offset of component 0 of token `token` of page `pageId` for one KV
/// head. `pageId` is an entry of the block table and must not be negative.
constexpr int64_t pageOffset(int32_t pageId, int64_t token, int64_t kvHead,
                             const PoolStrides &strides) {
  return int64_t{pageId} * strides.page + token * strides.token + kvHead * strides.head;
}

/// The same for a slot number, as slot_mapping holds them: page * pageSize +
/// token.
constexpr int64_t slotOffset(int64_t slot, int64_t pageSize, int64_t kvHead,
                             const PoolStrides &strides) {
  return slot / pageSize * strides.page + slot % pageSize * strides.token + kvHead * strides.head;
}

/// Pages that hold `keys` keys; the last one may be partly filled.
constexpr int64_t pagesFor(int64_t keys, int64_t pageSize) {
  return keys / pageSize + (keys % pageSize != 0);
}

} // namespace llmopt::bundle

// Bulk copies between global and shared memory, by their pieces: bytes in a row
// (cp.async.bulk), or the box of a tensor (cp.async.bulk.tensor). A reduction has the same pieces.
#pragma once

#include "runtime/device/sim/TensorMap.h"
#include "runtime/device/sim/ops/Reductions.h"

#include <algorithm>

namespace llmopt::sim {

struct BulkCopy {
  bool tensor = false;
  TensorMap map;               ///< of a tensor
  std::array<int32_t, 5> at{}; ///< coordinates of the box
  uint64_t global = 0;         ///< address, of bytes in a row
  uint32_t shared = 0;         ///< address
  uint32_t bytes = 0;          ///< in shared memory
  /// Of a reduction: what becomes of each element.
  Combine combine = nullptr;
  uint32_t elementBytes = 0;

  /// Calls f(global, shared, bytes) for pieces that make up the copy; `global` is 0 for
  /// elements outside the tensor. Stops when f returns false, and returns that.
  template <typename F> bool forEachPiece(F &&f) const;

private:
  template <typename F> bool forEachPieceOfRow(uint64_t row, bool inside, uint32_t to, F &&f) const;
};

template <typename F>
bool BulkCopy::forEachPieceOfRow(uint64_t row, bool inside, uint32_t to, F &&f) const {
  constexpr int64_t kPiece = 16; // what a swizzle moves
  int64_t bytes = sizeOf(map.type), rowBytes = map.box[0] * bytes;
  int64_t begin = std::clamp<int64_t>(-int64_t{at[0]} * bytes, 0, rowBytes);
  int64_t end =
      std::clamp<int64_t>((static_cast<int64_t>(map.dims[0]) - at[0]) * bytes, begin, rowBytes);
  if (!inside)
    begin = end = rowBytes;
  for (int64_t from = 0; from < rowBytes; from += kPiece) {
    uint32_t target = swizzled(to + static_cast<uint32_t>(from), map.swizzle);
    int64_t first = std::clamp(begin, from, from + kPiece);
    int64_t last = std::clamp(end, first, from + kPiece);
    auto piece = [&](int64_t a, int64_t b, uint64_t source) {
      return a == b ||
             f(source, target + static_cast<uint32_t>(a - from), static_cast<uint32_t>(b - a));
    };
    if (!piece(from, first, 0) ||
        !piece(first, last, row + static_cast<uint64_t>(int64_t{at[0]} * bytes + first)) ||
        !piece(last, from + kPiece, 0))
      return false;
  }
  return true;
}

template <typename F> bool BulkCopy::forEachPiece(F &&f) const {
  if (!tensor)
    return f(global, shared, bytes);
  uint32_t rowBytes = map.box[0] * sizeOf(map.type), to = shared;
  std::array<uint32_t, 5> i{}; // of the box, without the innermost dimension
  for (;;) {
    uint64_t row = map.base;
    bool inside = true;
    for (uint32_t dim = 1; dim < map.rank; ++dim) {
      int64_t position = at[dim] + int64_t{i[dim]} * map.elementStrides[dim];
      inside &= position >= 0 && static_cast<uint64_t>(position) < map.dims[dim];
      row += static_cast<uint64_t>(position) * map.strides[dim - 1];
    }
    if (!forEachPieceOfRow(row, inside, to, f))
      return false;
    to += rowBytes;
    uint32_t dim = 1;
    while (dim < map.rank && ++i[dim] == map.boxElements(dim))
      i[dim++] = 0;
    if (dim >= map.rank)
      return true;
  }
}

} // namespace llmopt::sim

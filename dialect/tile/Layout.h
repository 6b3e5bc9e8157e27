// Layouts as data: which thread of a block holds which element of a tile.
//
// A layout is three lists of axes, one each for the registers of a thread, the lanes of a
// warp and the warps of a block. The index within a unit is split into digits, the first
// axis fastest; a digit moves the element `stride` rows or columns on, or nowhere
// (`Replica`: the lanes or warps hold copies). Example, the accumulator of mma.m16n8k16
// for a 64 x 64 tile over 4 warps:
//
//   registers  2 columns apart 1, 2 rows apart 8, 8 columns apart 8
//   lanes      4 columns apart 2, 8 rows apart 1
//   warps      4 rows apart 16
//
// A layout may cover more than the tile: elements beyond its extents are padding that
// nobody reads. The fragments follow the PTX ISA, section "Matrix fragments for
// mma.m16n8k16".
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/SmallVector.h"

#include <cstdint>
#include <string>
#include <utility>

namespace llmopt::tile {

enum class LayoutDim : uint8_t { Row, Column, Replica };

struct LayoutAxis {
  int64_t extent;
  LayoutDim dim;
  int64_t stride; ///< 0 for replicas
  bool operator==(const LayoutAxis &) const = default;
};

inline llvm::hash_code hash_value(const LayoutAxis &axis) {
  return llvm::hash_combine(axis.extent, unsigned(axis.dim), axis.stride);
}

using LayoutAxes = llvm::SmallVector<LayoutAxis, 4>;

struct Layout {
  LayoutAxes registers, lanes, warps;
  bool operator==(const Layout &) const = default;

  /// Row and column of an element.
  std::pair<int64_t, int64_t> at(int64_t registerIndex, int64_t lane, int64_t warp) const;

  int64_t registerCount() const;
  int64_t laneCount() const;
  int64_t warpCount() const;
  /// Rows and columns that the layout covers.
  std::pair<int64_t, int64_t> cover() const;

  /// The layout of one value for each row (keep = Row) or column: registers along the
  /// other dimension are dropped, lanes and warps along it become replicas.
  Layout slice(LayoutDim keep) const;
  /// The same map with neighbouring axes merged where one continues the other, and axes
  /// of extent 1 dropped; equal maps over equal units become equal.
  Layout normalised() const;
  std::string str() const;
};

/// Accumulator (C, D) of m16n8k16 for M x N: warps share the rows in runs, as far as there
/// are 16 rows for each; further warps hold copies. M is a multiple of 16.
Layout accumulatorLayout(int64_t rows, int64_t columns, int64_t warps);
/// First operand (A, row-major) of m16n8k16 for M x K with the rows of `accumulatorLayout`.
Layout firstOperandLayout(int64_t rows, int64_t depth, int64_t warps);
/// Second operand (B) of m16n8k16 as K x N, within one warp.
Layout secondOperandLayout(int64_t depth, int64_t columns);
/// Accumulator of a product on the plain units: a warp is 4 rows x 8 columns of threads;
/// a thread has `run` neighbouring columns.
Layout plainProductLayout(int64_t rows, int64_t columns, int64_t warps, int64_t run);
/// Threads side by side along the columns, `run` columns each, then along the rows: for
/// tiles that only pass through.
Layout blockedLayout(int64_t rows, int64_t columns, int64_t warps, int64_t run = 1);
/// Row addresses for a copy in which `lanesPerRow` neighbouring lanes share a row.
Layout copyRowsLayout(int64_t rows, int64_t lanesPerRow, int64_t warps);

/// How a tile lies in shared memory: row after row, `pitch` bytes apart, in chunks of 16
/// bytes; within a group of `span` chunks (1, 2, 4 or 8) their order is turned by the row
/// so that 8 neighbouring rows' chunks of one column lie in different banks.
struct SharedLayout {
  int64_t pitch = 0, span = 1;
  bool operator==(const SharedLayout &) const = default;

  /// For rows of `columns` elements of `bytes` bytes, padded to whole mma steps.
  static SharedLayout of(int64_t columns, int64_t bytes);
  int64_t chunks() const { return pitch / 16; }
  /// Byte offset of chunk `chunk` of row `row`.
  int64_t at(int64_t row, int64_t chunk) const;
};

} // namespace llmopt::tile

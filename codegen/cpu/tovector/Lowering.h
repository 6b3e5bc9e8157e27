// The state shared by the parts of convert-tile-to-vector.
#pragma once

#include "codegen/cpu/tovector/Buffers.h"
#include "codegen/cpu/tovector/Emit.h"

#include "dialect/tile/TileDialect.h"

#include "llvm/ADT/DenseMap.h"

#include <optional>

namespace llmopt::cpu {

struct MmaOperands;
struct FetchAhead;

class Lowering {
public:
  Lowering(mlir::func::FuncOp function, const CpuIsa &isa);

  /// Lowers all tile ops of the function; a failure has been reported.
  mlir::LogicalResult run();

private:
  mlir::LogicalResult check();
  mlir::LogicalResult lowerBlock(mlir::Block &block);
  mlir::LogicalResult lowerOp(mlir::Operation *op);
  void lowerEdges(mlir::Operation *op);
  void dropTiles(mlir::Operation *op);
  Buffer view(mlir::RankedTensorType type, int64_t offset);
  mlir::Value memoryAt(mlir::MemRefType type, int64_t offset);
  Buffer buffer(mlir::Value tile);
  Emit emitAt(mlir::Operation *op);
  void materialise(mlir::Operation *constant);

  // LowerTransfer.cpp
  void lowerLoad(tile::LoadOp op);
  void lowerStore(tile::StoreOp op);
  // LowerAddresses.cpp
  void lowerStridedRows(tile::StridedRowsOp op);
  void lowerPagedRows(tile::PagedRowsOp op);
  // LowerMma.cpp, LowerDot.cpp
  mlir::LogicalResult lowerMma(tile::MmaOp op);
  mlir::LogicalResult lowerAnyMma(tile::MmaOp op, const MmaOperands &operands);
  Buffer sliceOf(mlir::Value tile, int64_t slice, int64_t slices);
  mlir::LogicalResult lowerPairMma(tile::MmaOp op, MmaOperands operands);
  // LowerRowPairs.cpp, LowerRows.cpp, InPlaceRows.cpp
  void lowerRowPairs(tile::MmaOp op, MmaOperands operands);
  void lowerRows(tile::MmaOp op, MmaOperands operands);
  mlir::Value rowTable(tile::MmaOp op);
  // Prefetch.cpp
  FetchAhead fetchOf(tile::PrefetchOp op);
  std::optional<FetchAhead> fetchBefore(tile::MmaOp mma);
  void lowerPrefetch(tile::PrefetchOp op);
  // LowerMap.cpp
  mlir::LogicalResult lowerMap(tile::MapOp op);
  // UsedRows.cpp
  void lowerUsedRows(tile::UsedRowsOp op);
  // LowerColumns.cpp
  void lowerReduceColumns(tile::ReduceColumnsOp op);

  mlir::func::FuncOp function;
  const CpuIsa &target;
  BufferPlan plan;
  mlir::Value scratch;
  /// In the rest of the block: the rows to compute of tiles with `rows` rows.
  struct UsedRows {
    int64_t rows = 0;
    mlir::Value first = {}, end = {};
  } usedRows;
  llvm::DenseMap<std::pair<mlir::Type, int64_t>, mlir::Value> views;
};

/// Rows that a tile.prefetch names, to be asked for while the product after it computes.
struct FetchAhead {
  mlir::Value base;
  Buffer addresses;
  int64_t columns = 0, rows = 0; ///< all slices' rows, in the order in which they lie: row after
                                 ///< row, each for all slices
  int64_t slices = 1;
  mlir::Value apart;   ///< from a slice's row to the next slice's, in elements
  bool spread = false; ///< a part's lines are of as many rows, a part of all rows away from each
                       ///< other, instead of side by side

  /// Part i of `parts` about equal ones, i < parts.
  void part(Emit &emit, mlir::Value i, int64_t parts) const;
  /// The requests before block i of `blocks`: as many parts as a power of two allows, none after.
  void between(Emit &emit, mlir::Value i, int64_t blocks) const;
  /// All of them, row by row.
  void all(Emit &emit) const;

private:
  /// Line `line` of row r, and of `count` - 1 others, rows / count apart.
  void acrossRows(Emit &emit, mlir::Value r, mlir::Value line, int64_t count) const;
  /// `count` cache lines of row r from line `from` on.
  void lines(Emit &emit, mlir::Value r, mlir::Value from, int64_t count) const;
};

/// Operands of a product in memory. `start` is the accumulator read, absent for a splat.
struct MmaOperands {
  Buffer a, b, start, result;
  mlir::Value startScalar;        ///< set when c is a splat
  std::optional<Buffer> rowScale; ///< factor of each row of c, applied as it is read
  std::optional<FetchAhead> fetch;
  bool transposeB = false;
  int64_t m = 0, n = 0, k = 0; ///< rows of all slices; columns and depth of one
  int64_t slices = 1;          ///< m / slices rows of A each, with as many parts of B's rows

  /// `width` elements of the accumulator's start, of run `outer` from `inner` on.
  mlir::Value startVector(Emit &emit, mlir::Value outer, mlir::Value inner, int64_t width) const;
  /// Element (k, n) of B.
  mlir::Value elementB(Emit &emit, mlir::Value k, mlir::Value n) const;
  /// True when B's memory runs along n (else along k).
  bool contiguousAlongN() const;
};

/// A register block: `width` lanes (a multiple of the target's) by `count` accumulators.
struct RegisterBlock {
  int64_t width, count;
};
RegisterBlock chooseBlock(const CpuIsa &isa, int64_t padded, int64_t count);

/// Lanes along k, for few rows against rows of B: horizontal sums, many at once.
void emitDotProduct(Emit &emit, const MmaOperands &operands);

/// sum + a * b, over 32 pairs of bf16: AVX512-BF16.
mlir::Value pairDot(Emit &emit, mlir::Value sum, mlir::Value a, mlir::Value b);

/// One level of a tree that sums vectors across lanes, many at once: half as many vectors, in
/// which lanes whose bit `distance` is clear go on with the first half of `parts`, the others
/// with the second, each having added its partner across that distance.
llvm::SmallVector<mlir::Value> foldLanes(Emit &emit, llvm::ArrayRef<mlir::Value> parts,
                                         int64_t distance);
/// All levels: element i of the result is the sum of parts[i], of which there are at most
/// `lanes`, a power of two.
mlir::Value transposingSum(Emit &emit, llvm::SmallVector<mlir::Value> parts, int64_t lanes);

} // namespace llmopt::cpu

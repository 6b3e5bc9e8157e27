// The state shared by the parts of convert-tile-to-vector.
#pragma once

#include "codegen/cpu/tovector/Buffers.h"
#include "codegen/cpu/tovector/Emit.h"

#include "dialect/tile/TileDialect.h"

#include "llvm/ADT/DenseMap.h"

#include <optional>

namespace llmopt::cpu {

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
  Buffer buffer(mlir::Value tile);
  Emit emitAt(mlir::Operation *op);
  void materialise(mlir::Operation *constant);

  // LowerTransfer.cpp
  void lowerLoad(tile::LoadOp op);
  void lowerStore(tile::StoreOp op);
  void lowerStridedRows(tile::StridedRowsOp op);
  void lowerPagedRows(tile::PagedRowsOp op);
  // LowerMma.cpp, LowerDot.cpp
  mlir::LogicalResult lowerMma(tile::MmaOp op);
  // LowerMap.cpp
  mlir::LogicalResult lowerMap(tile::MapOp op);

  mlir::func::FuncOp function;
  const CpuIsa &target;
  BufferPlan plan;
  mlir::Value scratch;
  llvm::DenseMap<std::pair<mlir::Type, int64_t>, mlir::Value> views;
};

/// Operands of a product in memory. `start` is the accumulator read, absent for a splat.
struct MmaOperands {
  Buffer a, b, start, result;
  mlir::Value startScalar; ///< set when c is a splat
  std::optional<Buffer> rowScale; ///< factor of each row of c, applied as it is read
  bool transposeB = false;
  int64_t m = 0, n = 0, k = 0;

  /// `width` elements of the accumulator's start, of run `outer` from `inner` on.
  mlir::Value startVector(Emit &emit, mlir::Value outer, mlir::Value inner, int64_t width) const;
  /// Element (k, n) of B.
  mlir::Value elementB(Emit &emit, mlir::Value k, mlir::Value n) const;
  /// True when B's memory runs along n (else along k).
  bool contiguousAlongN() const;
};

/// Lanes along k, for few rows against rows of B: horizontal sums, many at once.
void emitDotProduct(Emit &emit, const MmaOperands &operands);

/// Sums of each vector of `parts` (a power of two of them, or fewer) by a transposing
/// tree; element i of the result is the sum of parts[i].
mlir::Value transposingSum(Emit &emit, llvm::SmallVector<mlir::Value> parts, int64_t lanes);

} // namespace llmopt::cpu

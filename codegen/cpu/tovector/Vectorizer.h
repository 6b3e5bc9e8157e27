// The region of a tile.map, one vector of elements at a time.
#pragma once

#include "codegen/cpu/tovector/Emit.h"
#include "dialect/tile/TileDialect.h"

#include "llvm/ADT/DenseMap.h"

namespace llmopt::cpu {

/// True when every op of the region has a vector form; otherwise reports the first that
/// has none.
mlir::LogicalResult checkVectorisable(tile::MapOp map);

/// Clones the region's ops for `lanes` elements. A value is *uniform* (a scalar) as long
/// as all that it depends on is the same for all lanes.
class RegionVectorizer {
public:
  RegionVectorizer(Emit &emit, int64_t lanes) : emit(emit), lanes(lanes) {}

  /// The scalar or vector that stands for a region argument.
  void bind(mlir::Value argument, mlir::Value value) { values[argument] = value; }
  /// Lanes that are elements of the tile; absent when all are. Loads and divisions of
  /// the others are not done.
  void setMask(mlir::Value lanesInside) { mask = lanesInside; }
  /// Clones all ops; the results are the yielded values as vectors.
  llvm::SmallVector<mlir::Value> run(tile::MapOp map);

private:
  mlir::Value lookup(mlir::Value value);
  mlir::Value widened(mlir::Value value);
  void clone(mlir::Operation &op);
  mlir::Value gather(mlir::Operation &op);
  void guardDivisor(mlir::Operation &op, llvm::SmallVector<mlir::Value> &operands);

  Emit &emit;
  int64_t lanes;
  mlir::Value mask;
  llvm::DenseMap<mlir::Value, mlir::Value> values;
};

} // namespace llmopt::cpu

// Where tiles live: one place in scratch memory for every tile value.
//
// Vocabulary. A *position* is a point in program order: operation i reads at 2i and
// writes at 2i + 1. The *life* of a value is a set of position ranges. A *place* is a
// group of values with disjoint lives that were merged because one turns into the
// other (a loop's initial value, carried argument, yielded value and result; a product
// and its accumulator; a map and the operand it replaces). Places whose lives are
// disjoint may then overlap in memory.
#pragma once

#include "codegen/cpu/CpuIsa.h"
#include "dialect/tile/TileDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"

namespace llmopt::cpu {

/// How a tile lies in memory: `outer` runs of `inner` elements (padded to vectors).
/// Element (r, c) is [c][r] when lanes run over rows, else [r][c]. A bf16 tile by columns
/// holds columns in pairs, [c / 2][2r + c % 2]: what a bf16 dot product multiplies.
struct TileShape {
  int64_t rows = 0, columns = 0;
  int64_t outer = 0, inner = 0;
  bool lanesOverRows = false;
  mlir::Type element; ///< as stored: i1 takes a byte
  bool isBool = false;
  bool pairs = false;

  static TileShape get(mlir::RankedTensorType type, const CpuIsa &isa);
  int64_t bytes() const;
  /// Rows with their padding, of a tile whose lanes run over rows.
  int64_t paddedRows() const { return pairs ? inner / 2 : inner; }
};

/// True when the tile's encoding asks for columns.
bool hasColumnOrder(mlir::Type type);

class BufferPlan {
public:
  BufferPlan(mlir::func::FuncOp function, const CpuIsa &isa);

  int64_t scratchBytes() const { return totalBytes; }
  /// Byte offset of the value's place.
  int64_t offset(mlir::Value value) const { return places[placeOf(value)].offset; }
  bool hasPlace(mlir::Value value) const { return index.contains(value); }
  bool samePlace(mlir::Value a, mlir::Value b) const { return placeOf(a) == placeOf(b); }
  /// Offset of the temporary through which edge copies at `op` go when there are several.
  int64_t temporary(mlir::Operation *op, unsigned i) const;
  /// Offset of the memory in which a bf16 product packs rows of B in pairs.
  int64_t packedB(tile::MmaOp mma) const { return temporary(mma, 0); }

private:
  using Range = std::pair<int64_t, int64_t>;
  struct Place {
    llvm::SmallVector<Range, 4> life;
    int64_t bytes = 0;
    int64_t offset = 0;
    unsigned parent = 0;
  };

  void number(mlir::Block &block);
  void addValue(mlir::Value value, int64_t definition);
  void addValues(mlir::func::FuncOp function);
  void addUses(mlir::Value value, Range &range);
  void mergeControlFlow(mlir::func::FuncOp function);
  void mergeInPlace(mlir::func::FuncOp function);
  void addTemporaries(mlir::Operation *op, mlir::ValueRange values, int64_t position);
  void addTemporary(mlir::Operation *op, unsigned i, int64_t bytes, int64_t position);
  void addPacking(mlir::func::FuncOp function);
  void assignOffsets();
  unsigned find(unsigned i) const;
  unsigned placeOf(mlir::Value value) const { return find(index.lookup(value)); }
  void unite(mlir::Value a, mlir::Value b);
  /// Merges unless their lives meet elsewhere than at `touch`.
  bool tryMerge(mlir::Value a, mlir::Value b, int64_t touch = -1);
  void extend(mlir::Value value, Range range);

  const CpuIsa &target;
  llvm::DenseMap<mlir::Operation *, std::pair<int64_t, int64_t>> positions;
  llvm::DenseMap<mlir::Value, unsigned> index;
  llvm::DenseMap<std::pair<mlir::Operation *, unsigned>, unsigned> temporaries;
  mutable std::vector<Place> places;
  int64_t counter = 0;
  int64_t totalBytes = 0;
};

} // namespace llmopt::cpu

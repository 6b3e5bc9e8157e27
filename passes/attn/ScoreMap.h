// The tile.map that turns raw products into masked scores, for one tile of keys.
#pragma once

#include "passes/attn/KernelBuilder.h"

#include "mlir/IR/IRMapping.h"

namespace llmopt {

/// What is known of an item's packed rows, as tiles of one column.
struct RowTiles {
  mlir::Value position;                ///< i32
  mlir::Value treeSet;                 ///< i64, where the mask holds a tree
  mlir::Value query;                   ///< i32, index of the query in its sequence
  mlir::Value head;                    ///< i32, query head
  mlir::Value batch, queryLen, keyLen; ///< index
  /// Per-head numbers (buffer -> f32 or i32) and row addresses of rank-4 operands
  /// (buffer -> i64).
  llvm::DenseMap<int, mlir::Value> perHead, addresses;

  /// Positions by the rows' tree sets.
  void placeByTree(KernelBuilder &k);
};

/// Collects the operands that scale, score modifications and mask ask for while they emit
/// into the region of a tile.map, then builds it.
class ScoreMap final : public attn::PairEmitter {
public:
  /// Keys of the tile are keyBase + column, those of a later slice of rows further on (see
  /// tile.mma); memory holds keys below keyEnd.
  ScoreMap(KernelBuilder &k, const RowTiles &rows, mlir::Value keyBase, mlir::Value keyEnd,
           int64_t slices);
  ~ScoreMap() override;

  /// Scores in units of log 2: log2(e) * modified score, -inf where hidden. With
  /// `keyBegin` set, the mask and the range [keyBegin, keyEnd) are applied.
  mlir::Value build(mlir::Value products, mlir::Value keyBegin);
  /// The mask and the range [keyBegin, keyEnd) alone: `scores`, -inf where hidden.
  mlir::Value buildMask(mlir::Value scores, mlir::Value keyBegin);
  /// `scores`, -inf where hidden, when each row sees `count` keys from key `first` on (columns of
  /// i32), counted as keyBase is.
  mlir::Value buildRange(mlir::Value scores, mlir::Value first, mlir::Value count);

  mlir::Value queryPosition() override { return input(rows.position); }
  mlir::Value keyPosition() override;
  mlir::Value keyIndex() override { return key; }
  mlir::Value queryIndex() override { return input(rows.query); }
  mlir::Value batch() override { return k.toI32(rows.batch); }
  mlir::Value head() override { return input(rows.head); }
  mlir::Value queryLength() override { return k.toI32(rows.queryLen); }
  mlir::Value keyLength() override { return k.toI32(rows.keyLen); }
  mlir::Value number(mlir::Attribute owner, unsigned index) override;
  mlir::Value element(unsigned arg) override;
  mlir::Value querySet(unsigned arg) override { return input(rows.treeSet); }
  mlir::Value inlineRegion(unsigned index, mlir::Value score) override;

private:
  /// The region's element of `tile`, made an operand at its first use.
  mlir::Value input(mlir::Value tile);
  void moveToSlice(mlir::RankedTensorType products);
  mlir::Value begin(mlir::Value tile);
  mlir::Value finish(mlir::Type type, mlir::Value score);
  mlir::Value modify(mlir::Value score);
  mlir::Value hide(mlir::Value score, mlir::Value keyBegin);
  mlir::Value captured(mlir::Value value);
  void defineDivision(mlir::Operation *op, mlir::IRMapping &mapping, mlir::Operation &original);

  KernelBuilder &k;
  const RowTiles &rows;
  mlir::Value keyBase, keyEnd, key, treePosition;
  int64_t slices;
  mlir::Block *block;
  mlir::OpBuilder region;
  llvm::SmallVector<mlir::Value> inputs;
};

} // namespace llmopt

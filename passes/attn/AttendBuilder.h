// Builds one attend kernel: what AttendKernel.cpp (items, rows, results) and AttendLoop.cpp
// (the walk over tiles of keys) share. Names follow the FlashAttention papers: m the running
// row maximum, l the running row sum, acc the unnormalised output, all in units of log 2.
#pragma once

#include "passes/attn/AttendKernel.h"

namespace llmopt {

class AttendBuilder {
public:
  AttendBuilder(mlir::ModuleOp module, const Signature &signature, const KernelName &kernel);

  void emit();

private:
  using Value = mlir::Value;
  struct State {
    Value acc, m, l;
  };

  // Items and rows (AttendKernel.cpp).
  void emitItem(Value item);
  void loadItem();
  void loadRows();
  /// Sets of the rows' queries.
  void loadTree();
  /// A column of one value for each row of the walk; rows beyond the item's repeat its last one.
  Value
  rowTile(mlir::Type element,
          llvm::function_ref<Value(Value query, Value head, Value position, Value row)> value);
  /// Addresses of the rows of partials that a split writes, each of `width` elements.
  Value partialRows(int64_t width, Value direct);
  /// Addresses of the item's rows in a Q-like array, nowhere where `wanted` (i1) is false.
  Value rowAddresses(const TokenArray &array, Value wanted);
  Value perHead(int buffer);
  /// What the slices saw, brought to their common maximum.
  State scaleSlices(State state);
  /// Writes the results of all rows, `endRows` at a time.
  void finishItem(State state);
  void store(State state);
  Value normaliser(State state, bool withSink);
  Value normalise(State state, bool withSink);

  // The walk (AttendLoop.cpp).
  Value keyPages(Value key, Value count);
  Value keyRows(bool isValue, Value key, Value count, Value pages);
  Value onlyVisible(TileWalk &walk, Value addresses, Value key, mlir::Type type);
  Value headStride(bool isValue);
  Value loadKeys(bool isValue, Value rows);
  bool hidesByData(bool masked);
  Value onlySeen(Value addresses, Value scores);
  /// m, which stays -inf until a row sees a key: 0 stands in, so that weights are 0.
  Value baseOf(Value m);
  /// exp2(scores - base), a tile or a column.
  Value weights(llvm::StringRef name, Value scores, Value base);
  mlir::ResultRange choose(mlir::TypeRange types, Value condition,
                           llvm::function_ref<mlir::SmallVector<Value>()> then,
                           llvm::function_ref<mlir::SmallVector<Value>()> otherwise);
  State step(Value tile, State state, TileWalk *masked, Value partial = {});
  struct Scores {
    Value scores, highest; ///< and the maximum of each row
  };
  Value hide(Value scores, Value key, TileWalk &walk);
  Scores scoresOf(Value products, Value key, TileWalk *masked, Value partial);
  State walkKeys();
  /// What partEnds and partBegins say of the rows.
  void boundParts(TileWalk &walk, const TileWalk::Range &range);
  /// Says which rows see a key of the tile that begins at `key`.
  void useRows(Value key);
  mlir::SmallVector<Value> turnOfTwoLoops(TileWalk &walk, mlir::ValueRange carried);
  mlir::SmallVector<Value> walkRun(TileWalk &walk, Value tile, Value end, mlir::ValueRange init);
  mlir::SmallVector<Value> turnOfOneLoop(TileWalk &walk, mlir::ValueRange carried);

  Value constant(mlir::OpBuilder &b, double value) {
    return mlir::arith::ConstantOp::create(b, k.loc, b.getF32FloatAttr(value));
  }
  mlir::RankedTensorType column(mlir::Type element) { return k.tileType(rowCount, 1, element); }
  mlir::RankedTensorType columnF32() { return column(k.b.getF32Type()); }

  attn::AttentionOp op;
  KernelBuilder k;
  /// Rows of an item. With several slices, which share out the keys of a tile, the walk has
  /// `rowCount` rows: the item's for each slice, one after another.
  int64_t itemRows;
  int64_t rowCount, keys, slices;
  /// KV heads of as many neighbouring items, which differ by head and partial slot alone. The walk
  /// then has `rowCount` rows: those of each head, one head after another.
  int64_t heads;
  int64_t endRows;  ///< rows of a turn of the loop at an item's end; 0: all at once
  int64_t partRows; ///< rows that are left out together; 0: none
  bool oneLoop, branchScores;
  attn::MaskBounds bounds;
  int64_t group;

  // The current item, or the first of several.
  Value item, firstRow, rowsUsed, kvHead, sequence, keyBegin, keyEnd, partialSlot, flags;
  Value queryBase, keyBase, queryLen, keyLen, tableBase, batch;
  RowTiles rows;
  Value query;       ///< the Q tile
  Value firstOfTurn; ///< first row of a turn at the item's end; null elsewhere
  Value visited, predicated;
  /// Of each row that begins a part but the first: the end of what the rows before it MAY see, and
  /// the beginning of what it and those behind it may. Empty where intervals do not tell.
  mlir::SmallVector<Value> partEnds, partBegins;
};

} // namespace llmopt

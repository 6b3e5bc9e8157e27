// A mask's key intervals as index arithmetic of a kernel.
#pragma once

#include "passes/attn/KernelBuilder.h"

namespace llmopt {

/// Smallest and largest position of an item's queries: of the first and the last row, except
/// where its rows are of several sequences.
std::pair<mlir::Value, mlir::Value> positionRange(KernelBuilder &k, mlir::Value firstRow,
                                                  mlir::Value rowCount, mlir::Value flags);

/// Smallest and largest value of a per-head integer over `count` heads from `first` on.
std::pair<mlir::Value, mlir::Value> perHeadRange(KernelBuilder &k, unsigned scalar,
                                                 mlir::Value first, int64_t count);

/// Emits the two questions that the loop over key tiles asks, for one work item.
/// Keys outside [keyBegin, keyEnd) count as not visible.
class TileWalk {
public:
  /// Evaluates all interval ends now, once for the item. `minMax` gives the smallest and
  /// largest value over the item's heads of a per-head scalar.
  struct Range {
    mlir::Value queryLo, queryHi, queryLen, keyLen; ///< positions inclusive
    mlir::Value keyBegin, keyEnd;
    std::function<std::pair<mlir::Value, mlir::Value>(unsigned scalar)> minMax;
  };
  /// `bounds` must outlive the walk.
  TileWalk(KernelBuilder &k, const attn::MaskBounds &bounds, Range range, int64_t keys);

  /// What rows with positions in `range` alone MAY see, where `isOneRun`.
  std::pair<mlir::Value, mlir::Value> visibleTo(const Range &range);

  /// First tile >= `tile` that MAY hold a visible key, or `none()`.
  mlir::Value next(mlir::Value tile);
  /// End of the run of SURELY visible tiles that begins at `tile`; `tile` if there is none.
  mlir::Value runEnd(mlir::Value tile);
  /// i1: some key of `tile` is not SURELY visible.
  mlir::Value isPartial(mlir::Value tile);
  /// End of the run of tiles that MAY hold a visible key and that begins at `tile`, one of
  /// them. A thinned interval adds no tile beyond the first.
  mlir::Value visibleEnd(mlir::Value tile);
  /// Whether the keys that a single row sees are an interval's: it is exact, and alike for all
  /// heads.
  bool isExactByRow() const { return ofRow.has_value(); }
  /// That interval for a row at `position` (i32), clipped to the item's keys: where it begins and
  /// ends. Made where the builder stands.
  mlir::Value firstOfRow(mlir::Value position);
  mlir::Value endOfRow(mlir::Value position);
  /// i1 for key `key` (i32) before `end()`: it MAY be visible to some row.
  mlir::Value mayContain(mlir::OpBuilder &builder, mlir::Value key);
  mlir::Value none() { return noTile; }
  /// True where all tiles that MAY hold a visible key are neighbours: one run.
  bool isOneRun() const { return may.size() == 1 && !may[0].stride; }
  /// That run: its first tile, and the one behind its last; equal where there is none.
  std::pair<mlir::Value, mlir::Value> run();
  /// The end of the keys that MAY be visible, where `isOneRun`; else of the item's keys.
  mlir::Value end() const { return isOneRun() ? may[0].hi : keyEnd; }

private:
  struct Ends {
    mlir::Value lo, hi, stride, phase, width; ///< stride null: every key
  };
  Ends evaluate(const attn::Interval &interval, const Range &range);
  Range rangeOfRow(mlir::Value position);
  /// Names of their own in printed text.
  void name(llvm::ArrayRef<Ends> set, const std::string &name, llvm::StringRef note);
  mlir::Value emit(const attn::BoundExpr &expr, const Range &range);
  mlir::Value floorMod(mlir::OpBuilder &b, mlir::Value value, mlir::Value divisor);
  mlir::Value sureEnd(mlir::Value key);
  mlir::Value guardedDiv(attn::BoundExprKind kind, mlir::Value a, mlir::Value b);

  KernelBuilder &k;
  const attn::MaskBounds &bounds;
  Range range;
  std::optional<attn::Interval> ofRow; ///< if it is exact for a row
  int64_t keys;
  mlir::Value keyBegin, keyEnd, noTile;
  llvm::SmallVector<Ends> may, surely;
};

} // namespace llmopt

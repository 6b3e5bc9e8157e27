// A mask's key intervals as index arithmetic of a kernel.
#pragma once

#include "passes/attn/KernelBuilder.h"

namespace llmopt {

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
  TileWalk(KernelBuilder &k, const attn::MaskBounds &bounds, Range range, int64_t keys);

  /// First tile >= `tile` that MAY hold a visible key, or `none()`.
  mlir::Value next(mlir::Value tile);
  /// End of the run of SURELY visible tiles that begins at `tile`; `tile` if there is none.
  mlir::Value runEnd(mlir::Value tile);
  /// i1 for key `key` (index): it MAY be visible to some row.
  mlir::Value mayContain(mlir::OpBuilder &builder, mlir::Value key);
  mlir::Value none() { return noTile; }

private:
  struct Ends {
    mlir::Value lo, hi, stride, phase, width; ///< stride null: every key
  };
  Ends evaluate(const attn::Interval &interval, const Range &range);
  mlir::Value emit(const attn::BoundExpr &expr, const Range &range);
  mlir::Value floorMod(mlir::OpBuilder &b, mlir::Value value, mlir::Value divisor);
  mlir::Value guardedDiv(attn::BoundExprKind kind, mlir::Value a, mlir::Value b);

  KernelBuilder &k;
  int64_t keys;
  mlir::Value keyBegin, keyEnd, noTile;
  llvm::SmallVector<Ends> may, surely;
};

} // namespace llmopt

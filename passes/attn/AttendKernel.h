// The attend kernel: online softmax of one attn.attention over the work items of a worker.
#pragma once

#include "passes/attn/BoundsEmit.h"
#include "passes/attn/ScoreMap.h"

namespace llmopt {

/// Emits `@name` with tiles of `rows` packed rows by `keys` keys. `slices` parts of a tile's
/// keys each have a softmax state of their own, folded at the item's end.
void emitAttendKernel(mlir::ModuleOp module, const Signature &signature, llvm::StringRef name,
                      int64_t rows, int64_t keys, int64_t slices);

/// Emits `@name`, which combines the partials of split items (MergeItem).
void emitMergeKernel(mlir::ModuleOp module, const Signature &signature, llvm::StringRef name);

/// Emits `@name` for an attn.merge op: workers share the (token, head) pairs.
void emitCombineKernel(mlir::ModuleOp module, const Signature &signature, llvm::StringRef name);

/// Emits `@name` for an attn.append op: workers share the tokens.
void emitAppendKernel(mlir::ModuleOp module, const Signature &signature, llvm::StringRef name);

/// Address arithmetic of Q-like arrays (Q, O, LSE), dense (B, L, H, ..) or ragged (T, H, ..).
struct TokenArray {
  TokenArray(KernelBuilder &k, int buffer, bool ragged);
  /// Offset of (query token, head), in elements.
  mlir::Value offset(KernelBuilder &k, mlir::Value batch, mlir::Value queryBase, mlir::Value query,
                     mlir::Value head) const;
  mlir::Value batchStride, tokenStride, headStride, innerStride; ///< innerStride null for LSE
};

} // namespace llmopt

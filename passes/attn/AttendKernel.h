// The attend kernel: online softmax of one attn.attention over the work items of a worker.
#pragma once

#include "passes/Passes.h"
#include "passes/attn/BoundsEmit.h"
#include "passes/attn/ScoreMap.h"

namespace llmopt {

/// Emits the kernel of that name and those tiles.
void emitAttendKernel(mlir::ModuleOp module, const Signature &signature, const KernelName &kernel);

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

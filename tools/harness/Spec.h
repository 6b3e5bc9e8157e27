// The ops of a spec function, and what their types leave open.
#pragma once

#include "dialect/attn/AttnDialect.h"

#include "llvm/Support/Error.h"

namespace mlir {
class ModuleOp;
}

namespace llmopt::harness {

/// One function of a module: attention, with or without an append before it; or a merge;
/// or an append alone. Absent ops are null.
struct Spec {
  mlir::Operation *function = nullptr;
  attn::AppendOp append;
  attn::AttentionOp attention;
  attn::MergeOp merge;

  /// The cache that the ops share, or null.
  attn::KvCacheType cache() const;
};

llvm::Expected<Spec> specOf(mlir::Operation *function);
/// The function called `name`; the module's only one when `name` is empty.
llvm::Expected<Spec> findSpec(mlir::ModuleOp module, llvm::StringRef name = "");

} // namespace llmopt::harness

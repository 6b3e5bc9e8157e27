#include "tools/harness/Spec.h"

#include "dialect/reference/Context.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace llmopt::harness {

using reference::error;

attn::KvCacheType Spec::cache() const {
  if (append)
    return llvm::cast<attn::KvCacheType>(attn::AppendOp(append).getCache().getType());
  return attention ? attn::AttentionOp(attention).getCacheType() : nullptr;
}

llvm::Expected<Spec> specOf(mlir::Operation *function) {
  Spec spec;
  spec.function = function;
  int attentions = 0, appends = 0, merges = 0;
  function->walk([&](mlir::Operation *op) {
    if (auto attention = llvm::dyn_cast<attn::AttentionOp>(op)) {
      spec.attention = attention;
      ++attentions;
    } else if (auto append = llvm::dyn_cast<attn::AppendOp>(op)) {
      spec.append = append;
      ++appends;
    } else if (auto merge = llvm::dyn_cast<attn::MergeOp>(op)) {
      spec.merge = merge;
      ++merges;
    }
  });
  if (attentions > 1 || appends > 1 || merges > 1)
    return error("the function has more than one attn op of a kind; the harness checks one at a time");
  if (attentions + appends + merges == 0)
    return error("the function has no attn.attention, attn.merge or attn.append");
  if (merges && attentions + appends)
    return error("the function mixes attn.merge with other attn ops; the harness checks one at a time");
  return spec;
}

llvm::Expected<Spec> findSpec(mlir::ModuleOp module, llvm::StringRef name) {
  mlir::Operation *found = nullptr;
  int count = 0;
  for (auto function : module.getOps<mlir::func::FuncOp>()) {
    if (!name.empty() && function.getName() != name)
      continue;
    found = function;
    ++count;
  }
  if (count == 0)
    return error(name.empty() ? "the module has no function" : "the module has no function '" + name + "'");
  if (count > 1)
    return error("the module has " + llvm::Twine(count) + " functions; name one");
  return specOf(found);
}

} // namespace llmopt::harness

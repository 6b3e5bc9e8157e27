#include "tools/harness/Spec.h"

#include "dialect/attn/SpecFunction.h"
#include "dialect/reference/Context.h"

#include "mlir/IR/BuiltinOps.h"

namespace llmopt::harness {

using reference::error;

attn::KvCacheType Spec::cache() const {
  if (append)
    return llvm::cast<attn::KvCacheType>(attn::AppendOp(append).getCache().getType());
  return attention ? attn::AttentionOp(attention).getCacheType() : nullptr;
}

llvm::Expected<Spec> specOf(mlir::Operation *function) {
  std::string message;
  mlir::ScopedDiagnosticHandler handler(function->getContext(), [&](mlir::Diagnostic &diagnostic) {
    if (message.empty())
      llvm::raw_string_ostream(message) << diagnostic.getLocation() << ": " << diagnostic.str();
    return mlir::success();
  });
  mlir::FailureOr<attn::SpecOps> ops = attn::specOps(llvm::cast<mlir::func::FuncOp>(function));
  if (failed(ops))
    return error(message);
  return Spec{function, ops->append, ops->attention, ops->merge};
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
    return error(name.empty() ? "the module has no function"
                              : "the module has no function '" + name + "'");
  if (count > 1)
    return error("the module has " + llvm::Twine(count) + " functions; name one");
  return specOf(found);
}

} // namespace llmopt::harness

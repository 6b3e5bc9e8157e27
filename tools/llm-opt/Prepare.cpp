// See Prepare.h.
#include "tools/llm-opt/Prepare.h"

namespace llmopt::cli {

llvm::Expected<Prepared> prepare(mlir::func::FuncOp function, const Place &place) {
  llvm::Expected<harness::Spec> spec = harness::specOf(function);
  if (!spec)
    return spec.takeError();
  llvm::Expected<std::unique_ptr<Runner>> runner = Runner::compile(function, place);
  if (!runner)
    return runner.takeError();
  return Prepared{*spec, std::move(*runner)};
}

llvm::Expected<PreparedCall> prepareCall(const harness::Spec &spec, const harness::Shape &wanted) {
  llvm::Expected<harness::Shape> shape = harness::fit(spec, wanted);
  if (!shape)
    return shape.takeError();
  llvm::Expected<harness::Call> call = harness::generate(spec, *shape);
  if (!call)
    return call.takeError();
  return PreparedCall{std::move(*shape), std::move(*call)};
}

} // namespace llmopt::cli

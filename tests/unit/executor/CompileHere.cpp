// compileText by the compiler, in this process.
#include "Specs.h"

#include "codegen/compile/Compile.h"

#include "mlir/Parser/Parser.h"

using namespace llmopt;
using namespace llmopt::test;

namespace {

mlir::MLIRContext &context() {
  static mlir::MLIRContext made = [] {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    return mlir::MLIRContext(registry, mlir::MLIRContext::Threading::DISABLED);
  }();
  return made;
}

Status failed(llvm::Error error) {
  return Status(StatusCode::InvalidArgument, llvm::toString(std::move(error)));
}

} // namespace

StatusOr<bundle::Program> llmopt::test::compileText(const std::string &text) {
  static std::map<std::string, bundle::Program> compiled;
  if (auto found = compiled.find(text); found != compiled.end())
    return found->second;
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context());
  if (!module || specsOf(*module).size() != 1)
    return invalidArgument("not one spec: {}", text);
  llvm::Expected<CompileOptions> options = hostOptions();
  if (!options)
    return failed(options.takeError());
  llvm::Expected<bundle::Program> program = compileSpec(specsOf(*module).front(), *options);
  if (!program)
    return failed(program.takeError());
  return compiled[text] = std::move(*program);
}

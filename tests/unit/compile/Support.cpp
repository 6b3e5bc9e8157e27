#include "Support.h"

#include "DemoDialect.h"
#include "tests/support/Compiler.h"

#include "mlir/Parser/Parser.h"

using namespace llmopt;
using namespace llmopt::test;

namespace {

/// As testContext, with DemoDialect.
mlir::MLIRContext &demoContext() {
  static mlir::MLIRContext context = [] {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    registry.insert<demo::DemoDialect>();
    return mlir::MLIRContext(registry, mlir::MLIRContext::Threading::DISABLED);
  }();
  return context;
}

} // namespace

Compiled::Compiled(const std::string &text, int64_t rows, int64_t keys)
    : module(mlir::parseSourceString<mlir::ModuleOp>(text, &demoContext())) {
  if (!module)
    throw std::runtime_error("the spec does not parse: " + text);
  spec = valueOf(harness::findSpec(*module));
  CompileOptions options = valueOf(hostOptions());
  if (rows)
    options.rows = {rows};
  options.keys = keys;
  program = valueOf(compileSpec(llvm::cast<mlir::func::FuncOp>(spec.function), options));
  runner = valueOf(cli::Runner::load(program));
}

harness::Call Compiled::call(const harness::Shape &shape) const {
  return valueOf(harness::generate(spec, shape));
}

cli::RunFigures Compiled::run(harness::Call &call) {
  cli::RunFigures figures;
  if (llvm::Error error = runner->run(call, &figures))
    ADD_FAILURE() << llvm::toString(std::move(error));
  return figures;
}

std::string Compiled::refusal(harness::Call &call) { return llvm::toString(runner->run(call)); }

void Compiled::verify(const harness::Shape &shape) {
  harness::Call one = call(shape);
  run(one);
  harness::Report report = valueOf(harness::check(spec, one));
  EXPECT_TRUE(report.passed) << report.failure;
}

harness::Shape llmopt::test::shapeOf(std::vector<int64_t> queries, std::vector<int64_t> keys,
                                     uint64_t seed) {
  harness::Shape shape;
  shape.queryLengths = std::move(queries);
  shape.keyLengths = std::move(keys);
  shape.seed = seed;
  return shape;
}

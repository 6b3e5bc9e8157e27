#include "tests/unit/cuda/Support.h"

#include "codegen/cuda/nvrtc/Nvrtc.h"
#include "tests/support/Compiler.h"
#include "tools/llm-opt/Prepare.h"

#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

using namespace llmopt;
using namespace llmopt::test;

std::string llmopt::test::cudaProblem() {
  auto nvrtc = cuda::Nvrtc::load();
  return nvrtc ? "" : nvrtc.status().message();
}

std::vector<CudaBuild> llmopt::test::buildForCuda(const std::string &text,
                                                  const std::string &arch) {
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &testContext());
  if (!module)
    throw std::runtime_error("the spec does not parse: " + text);
  return valueOf(buildCuda(specsOf(*module), valueOf(optionsFor("cuda:" + arch))));
}

Simulated::Simulated(const std::string &text, const std::string &arch)
    : module(mlir::parseSourceString<mlir::ModuleOp>(text, &testContext())) {
  if (!module)
    throw std::runtime_error("the spec does not parse: " + text);
  spec = valueOf(harness::findSpec(*module));
  cli::Place place = valueOf(cli::openPlace("sim:" + arch, /*cached=*/false));
  CompileOptions options = valueOf(cli::optionsFor(place.device.get()));
  program = valueOf(compileSpec(llvm::cast<mlir::func::FuncOp>(spec.function), options));
  runner = valueOf(cli::Runner::load({program}, place));
}

llvm::Error Simulated::run(harness::Call &call) { return runner->run(call); }

harness::Call Simulated::run(const harness::Shape &shape, cli::RunFigures &figures) {
  cli::PreparedCall ready = valueOf(cli::prepareCall(spec, shape));
  if (llvm::Error error = runner->run(ready.call, &figures))
    throw std::runtime_error(llvm::toString(std::move(error)));
  return std::move(ready.call);
}

void Simulated::verify(const harness::Shape &shape) {
  harness::Call call = valueOf(harness::generate(spec, shape));
  if (llvm::Error error = run(call)) {
    ADD_FAILURE() << llvm::toString(std::move(error));
    return;
  }
  harness::Report report = valueOf(harness::check(spec, call));
  EXPECT_TRUE(report.passed) << report.failure;
}

void Simulated::verify(const harness::Case &c) {
  SCOPED_TRACE(c.name);
  llvm::Expected<harness::Report> result =
      harness::runCase(spec, c, [&](harness::Call &call) { return run(call); });
  if (!result)
    ADD_FAILURE() << llvm::toString(result.takeError());
  else
    EXPECT_TRUE(result->passed) << result->failure;
}

harness::Shape llmopt::test::shapeOf(std::vector<int64_t> queries, std::vector<int64_t> keys,
                                     uint64_t seed) {
  harness::Shape shape;
  shape.queryLengths = std::move(queries);
  shape.keyLengths = std::move(keys);
  shape.seed = seed;
  return shape;
}

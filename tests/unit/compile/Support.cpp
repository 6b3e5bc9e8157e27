#include "Support.h"

#include "DemoDialect.h"
#include "codegen/cuda/nvrtc/Nvrtc.h"
#include "tests/support/Compiler.h"

#include "mlir/Parser/Parser.h"

#include <cmath>
#include <limits>

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

std::vector<double> elementsOf(const harness::HostArray &array) {
  std::vector<uint8_t> bytes = array.elementBytes();
  std::vector<double> values(bytes.size() / reference::sizeOf(array.type));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = reference::load(bytes.data(), array.type, int64_t(i));
  return values;
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
  loaded = valueOf(cli::Runner::load(program));
}

Compiled::Compiled(const std::string &text, const std::string &device)
    : module(mlir::parseSourceString<mlir::ModuleOp>(text, &demoContext())) {
  if (!module)
    throw std::runtime_error("the spec does not parse: " + text);
  spec = valueOf(harness::findSpec(*module));
  cli::Place place = valueOf(cli::openPlace(device, /*cached=*/false));
  CompileOptions options = valueOf(cli::optionsFor(place.device.get()));
  program = valueOf(compileSpec(llvm::cast<mlir::func::FuncOp>(spec.function), options));
  loaded = valueOf(cli::Runner::load({program}, place));
}

harness::Call Compiled::call(const harness::Shape &shape) const {
  return valueOf(harness::generate(spec, shape));
}

cli::RunFigures Compiled::run(harness::Call &call) {
  cli::RunFigures figures;
  if (llvm::Error error = loaded->run(call, &figures))
    ADD_FAILURE() << llvm::toString(std::move(error));
  return figures;
}

std::string Compiled::refusal(harness::Call &call) { return llvm::toString(loaded->run(call)); }

std::string Compiled::refusal(const runtime::CallArguments &arguments) {
  return llvm::toString(loaded->run(arguments));
}

harness::Call Compiled::verify(const harness::Shape &shape) {
  harness::Call one = call(shape);
  verify(one);
  return one;
}

void Compiled::verify(harness::Call &call) {
  run(call);
  harness::Report report = valueOf(harness::check(spec, call));
  EXPECT_TRUE(report.passed) << report.failure;
}

double llmopt::test::largestDifference(const harness::Call &a, const harness::Call &b) {
  std::vector<double> first = elementsOf(*a.find("o")), second = elementsOf(*b.find("o"));
  double largest = first.size() == second.size() ? 0 : std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < std::min(first.size(), second.size()); ++i)
    largest = std::max(largest, std::fabs(first[i] - second[i]));
  return largest;
}

std::string llmopt::test::problemOf(const std::string &device) {
  if (device != "sim")
    return "";
  auto nvrtc = cuda::Nvrtc::load();
  return nvrtc ? "" : nvrtc.status().message();
}

void OnEachDevice::SetUp() {
  if (std::string problem = problemOf(GetParam()); !problem.empty())
    GTEST_SKIP() << problem;
}

harness::Shape llmopt::test::shapeOf(std::vector<int64_t> queries, std::vector<int64_t> keys,
                                     uint64_t seed) {
  harness::Shape shape;
  shape.queryLengths = std::move(queries);
  shape.keyLengths = std::move(keys);
  shape.seed = seed;
  return shape;
}

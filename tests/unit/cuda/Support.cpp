#include "tests/unit/cuda/Support.h"

#include "codegen/cuda/nvrtc/Nvrtc.h"
#include "runtime/device/BoundCall.h"
#include "runtime/device/StagedArrays.h"

#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

using namespace llmopt;
using namespace llmopt::test;

namespace {

mlir::MLIRContext &testContext() {
  static mlir::MLIRContext context = [] {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    return mlir::MLIRContext(registry, mlir::MLIRContext::Threading::DISABLED);
  }();
  return context;
}

template <typename T> T valueOf(llvm::Expected<T> value) {
  if (!value)
    throw std::runtime_error(llvm::toString(value.takeError()));
  return std::move(*value);
}

template <typename T> T valueOf(runtime::StatusOr<T> value) {
  if (!value)
    throw std::runtime_error(value.status().message());
  return *std::move(value);
}

llvm::Error errorOf(const runtime::Status &status) {
  return llvm::createStringError(status.message());
}

bundle::ElementType elementTypeOf(reference::ElementType type) {
  switch (type) {
  case reference::ElementType::F32:
    return bundle::ElementType::F32;
  case reference::ElementType::F16:
    return bundle::ElementType::F16;
  case reference::ElementType::BF16:
    return bundle::ElementType::BF16;
  case reference::ElementType::Bool:
    return bundle::ElementType::Bool;
  case reference::ElementType::I8:
    return bundle::ElementType::I8;
  case reference::ElementType::I32:
    return bundle::ElementType::I32;
  default:
    return bundle::ElementType::I64;
  }
}

} // namespace

std::string llmopt::test::cudaProblem() {
  auto nvrtc = cuda::Nvrtc::load();
  return nvrtc ? "" : nvrtc.status().message();
}

Simulated::Simulated(const std::string &text, const std::string &arch, uint64_t seed)
    : module(mlir::parseSourceString<mlir::ModuleOp>(text, &testContext())),
      device(std::make_shared<SimDevice>(seed)) {
  if (!module)
    throw std::runtime_error("the spec does not parse: " + text);
  spec = valueOf(harness::findSpec(*module));
  CompileOptions options = valueOf(optionsFor("cuda:" + arch));
  program = valueOf(compileSpec(llvm::cast<mlir::func::FuncOp>(spec.function), options));
  loaded = valueOf(device->load(program));
}

llvm::Error Simulated::run(harness::Call &call) {
  runtime::CallArguments arguments;
  runtime::ArrayStorage storage;
  for (harness::HostArray &array : call.arrays) {
    storage[array.name] = array.storage();
    if (array.shape.empty()) {
      double value = array.get({});
      if (array.type == reference::ElementType::F32)
        arguments.scalars[array.name] = value;
      else
        arguments.scalars[array.name] = int64_t(value);
      continue;
    }
    arguments.arrays[array.name] = {array.data(),
                                    elementTypeOf(array.type),
                                    {array.shape.begin(), array.shape.end()},
                                    {array.strides.begin(), array.strides.end()}};
  }
  for (const auto &[name, value] : call.numbers)
    for (const bundle::Scalar &scalar : program.scalars)
      if (scalar.name == name) {
        if (scalar.type == bundle::ScalarType::F32)
          arguments.scalars[name] = value;
        else
          arguments.scalars[name] = int64_t(value);
      }
  auto stream = device->createStream();
  if (!stream)
    return errorOf(stream.status());
  auto staged = runtime::StagedArrays::upload(**stream, program, arguments, storage);
  if (!staged)
    return errorOf(staged.status());
  auto bound = runtime::BoundCall::bind(loaded, staged->arguments());
  if (!bound)
    return errorOf(bound.status());
  if (runtime::Status status = bound->run(**stream); !status.ok())
    return errorOf(status);
  if (runtime::Status status = staged->download(**stream); !status.ok())
    return errorOf(status);
  return llvm::Error::success();
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
  llvm::Expected<harness::CaseResult> result =
      harness::runCase(spec, c, [&](harness::Call &call) { return run(call); });
  if (!result)
    ADD_FAILURE() << llvm::toString(result.takeError());
  else if (!result->refused)
    EXPECT_TRUE(result->report.passed) << result->report.failure;
}

size_t Simulated::verifyHardCases() {
  std::vector<harness::Case> cases = harness::hardCases(spec);
  for (const harness::Case &c : cases)
    verify(c);
  return cases.size();
}

harness::Shape llmopt::test::shapeOf(std::vector<int64_t> queries, std::vector<int64_t> keys,
                                     uint64_t seed) {
  harness::Shape shape;
  shape.queryLengths = std::move(queries);
  shape.keyLengths = std::move(keys);
  shape.seed = seed;
  return shape;
}

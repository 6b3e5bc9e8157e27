// Specs from text, compiled for this machine or for the simulator of a GPU, and run on calls of the
// harness.
#pragma once

#include "tools/harness/Cases.h"
#include "tools/llm-opt/Runner.h"

#include "mlir/IR/OwningOpRef.h"

#include <gtest/gtest.h>

namespace llmopt::test {

/// A spec and its program. The context knows the dialects of the product and DemoDialect.
class Compiled {
public:
  /// `rows` and `keys`: the tile of the only attend kernel; 0 leaves them to the schedule.
  explicit Compiled(const std::string &text, int64_t rows = 0, int64_t keys = 0);
  /// For a device of OnEachDevice.
  Compiled(const std::string &text, const std::string &device);

  harness::Spec spec;
  bundle::Program program;

  /// A random call; fails the test where the shape has none.
  harness::Call call(const harness::Shape &shape) const;
  /// Runs a call; fails the test on an error.
  cli::RunFigures run(harness::Call &call);
  /// The refusal of a call; empty when it ran.
  std::string refusal(harness::Call &call);
  std::string refusal(const runtime::CallArguments &arguments);
  /// Generates, runs and checks against the oracle; returns the call.
  harness::Call verify(const harness::Shape &shape);
  /// Runs and checks a call.
  void verify(harness::Call &call);

  cli::Runner &runner() { return *loaded; }

private:
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::unique_ptr<cli::Runner> loaded;
};

/// A rule that holds on each target: tests run on the CPU, and on the simulator of an sm_80 where
/// its kernels can be compiled.
class OnEachDevice : public testing::TestWithParam<std::string> {
protected:
  void SetUp() override;
};

#define LLMOPT_ON_EACH_DEVICE(suite)                                                               \
  INSTANTIATE_TEST_SUITE_P(On, suite, testing::Values("cpu", "sim"),                               \
                           [](const auto &info) { return info.param; })

/// Between the outputs of two calls of one shape.
double largestDifference(const harness::Call &a, const harness::Call &b);

/// Why specs cannot be compiled for a device here; empty if they can.
std::string problemOf(const std::string &device);

harness::Shape shapeOf(std::vector<int64_t> queries, std::vector<int64_t> keys, uint64_t seed = 1);

} // namespace llmopt::test

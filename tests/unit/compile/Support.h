// Specs from text, compiled for this machine and run on calls of the harness.
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

  harness::Spec spec;
  bundle::Program program;

  /// A random call; fails the test where the shape has none.
  harness::Call call(const harness::Shape &shape) const;
  /// Runs a call; fails the test on an error.
  cli::RunFigures run(harness::Call &call);
  /// The refusal of a call; empty when it ran.
  std::string refusal(harness::Call &call);
  /// Generates, runs and checks against the oracle.
  void verify(const harness::Shape &shape);

private:
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::unique_ptr<cli::Runner> runner;
};

harness::Shape shapeOf(std::vector<int64_t> queries, std::vector<int64_t> keys, uint64_t seed = 1);

} // namespace llmopt::test

// A spec compiled for CUDA and run in the simulator.
#pragma once

#include "codegen/compile/CudaCompile.h"
#include "tools/harness/Cases.h"
#include "tools/llm-opt/Runner.h"

#include "mlir/IR/MLIRContext.h"

namespace llmopt::test {

/// Why kernels cannot be compiled here; empty if they can.
std::string cudaProblem();

/// Every spec of the text, with what it was made by; throws as `Simulated` does.
std::vector<CudaBuild> buildForCuda(const std::string &text, const std::string &arch);

class Simulated {
public:
  /// Throws std::runtime_error with the message on failure.
  explicit Simulated(const std::string &text, const std::string &arch = "sm_80");

  /// Runs the call and fills its outputs.
  llvm::Error run(harness::Call &call);
  /// A call of about this shape, run, with what was planned and counted.
  harness::Call run(const harness::Shape &shape, cli::RunFigures &figures);
  /// Compares a call of this shape with the oracle: adds a test failure on a miss.
  void verify(const harness::Shape &shape);
  void verify(const harness::Case &c);

  mlir::OwningOpRef<mlir::ModuleOp> module;
  harness::Spec spec;
  bundle::Program program;

private:
  std::unique_ptr<cli::Runner> runner;
};

harness::Shape shapeOf(std::vector<int64_t> queries, std::vector<int64_t> keys, uint64_t seed = 1);

} // namespace llmopt::test

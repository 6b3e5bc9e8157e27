// What every command that runs specs does first: a spec's ops, its compiled program, and a
// call of it.
#pragma once

#include "tools/harness/Generate.h"
#include "tools/llm-opt/Runner.h"

namespace llmopt::cli {

struct Prepared {
  harness::Spec spec;
  std::unique_ptr<Runner> runner;
};

/// Compiles a spec function for a device; without one, for the host.
llvm::Expected<Prepared> prepare(mlir::func::FuncOp function, const Place &place = {});

struct PreparedCall {
  harness::Shape shape; ///< as wanted, with what the types of the spec fix
  harness::Call call;
};

/// A random call of about the wanted shape.
llvm::Expected<PreparedCall> prepareCall(const harness::Spec &spec, const harness::Shape &wanted);

} // namespace llmopt::cli

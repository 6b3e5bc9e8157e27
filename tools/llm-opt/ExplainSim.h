// llm-opt explain --device sim: what the kernels of a spec do, counted by the simulator,
// beside what the spec implies at least.
#pragma once

#include "tools/harness/Generate.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/Error.h"

#include <string>

namespace llmopt::cli {

/// Compiles and runs `function` once on a device "sim" or "sim:ARCH" and prints the figures.
llvm::Error explainSimulated(mlir::func::FuncOp function, const std::string &device,
                             const harness::Shape &shape, bool json);

} // namespace llmopt::cli

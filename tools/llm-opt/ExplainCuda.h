// llm-opt explain for a CUDA target: what the compiler and NVIDIA's assembler made of a spec.
#pragma once

#include "codegen/compile/Compile.h"

#include <nlohmann/json.hpp>

namespace llmopt::cli {

/// Compiles a spec and describes its kernels; needs NVRTC and no GPU.
llvm::Expected<nlohmann::ordered_json> cudaFacts(mlir::func::FuncOp spec,
                                                 const CompileOptions &options);

/// The same facts as text on standard output.
void printCudaFacts(const nlohmann::ordered_json &facts);

} // namespace llmopt::cli

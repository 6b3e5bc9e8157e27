// The CUDA half of the facade: tile kernels to text, text to images.
#pragma once

#include "codegen/compile/Compile.h"
#include "codegen/cuda/Emit.h"
#include "passes/Passes.h"

namespace llmopt {

/// Block of a kernel under this schedule.
cuda::BlockShape blockShapeFor(const KernelName &kernel, const Schedule &schedule,
                               const runtime::CudaTarget &target);

/// Lowers and prints a kernel that stands alone in `module`. `spec` is the text of the spec
/// and goes into the head comment. Failures have been reported as diagnostics.
mlir::FailureOr<cuda::KernelText> cudaText(mlir::ModuleOp module, const KernelName &kernel,
                                           const Schedule &schedule, const CompileOptions &options,
                                           llvm::StringRef spec);

/// Compiles the texts, in parallel, and adds them to the program as kernels with their
/// images. A message of NVRTC becomes a diagnostic at the operation whose line it is about.
llvm::Error addCudaKernels(bundle::Program &program, const Schedule &schedule,
                           const std::vector<KernelName> &kernels,
                           const std::vector<cuda::KernelText> &texts,
                           const CompileOptions &options);

/// What of the compiler a CUDA program's key must name beside the spec and the schedule.
std::string cudaKeyText(const CompileOptions &options);

} // namespace llmopt

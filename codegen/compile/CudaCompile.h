// The CUDA half of the facade: tile kernels to text, text to images.
#pragma once

#include "codegen/compile/Compile.h"
#include "codegen/cuda/Emit.h"
#include "passes/Passes.h"

#include <optional>

namespace llmopt {

/// Block of a kernel under this schedule.
cuda::BlockShape blockShapeFor(const KernelName &kernel, const Schedule &schedule,
                               const runtime::CudaTarget &target);

/// A compiled spec, and what it was made by and from: `texts[i]` became
/// `program.kernels[i]`.
struct CudaBuild {
  bundle::Program program;
  Schedule schedule;
  std::vector<KernelName> names;
  std::vector<cuda::KernelText> texts;
  std::optional<mlir::Location> place; ///< of the spec
};

/// Lowers and prints a kernel of `build` that stands alone in `module`, with the spec in the
/// head comment. Its entry is the kernel's name and the first digits of the program's key, so
/// that a profiler tells variants apart. Failures have been reported as diagnostics.
mlir::FailureOr<cuda::KernelText> cudaText(mlir::ModuleOp module, const KernelName &kernel,
                                           const CudaBuild &build, const CompileOptions &options);

/// The texts alone: the program has no kernels yet, and nothing needs NVRTC.
llvm::Expected<CudaBuild> buildCudaText(mlir::func::FuncOp spec, const CompileOptions &options);

/// Compiles the texts of all builds, in parallel, and adds the kernels with their images to
/// the programs. A message of NVRTC becomes a diagnostic at the operation whose line it is about.
llvm::Error addCudaKernels(llvm::MutableArrayRef<CudaBuild> builds, const CompileOptions &options);

/// `compileSpecs` for a CUDA architecture.
llvm::Expected<std::vector<CudaBuild>> buildCuda(llvm::ArrayRef<mlir::func::FuncOp> specs,
                                                 const CompileOptions &options);

/// What of the compiler a CUDA program's key must name beside the spec and the schedule.
std::string cudaKeyText(const CompileOptions &options);

} // namespace llmopt

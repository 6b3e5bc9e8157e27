// From a tile program to CUDA C++ text.
#pragma once

#include "codegen/cuda/Counts.h"
#include "codegen/cuda/Passes.h"
#include "codegen/cuda/emit/Writer.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/Error.h"

namespace llmopt::cuda {

/// Attribute of a kernel: blocks that a multiprocessor should hold at a time; 1 without it.
inline constexpr llvm::StringLiteral kBlocksAttr = "cuda.blocks";

/// The text of one kernel, and where each of its lines came from.
struct KernelText {
  std::string entry;
  std::string text; ///< needs nothing else: no include
  std::vector<mlir::Location> places;
  int64_t threads = 0;     ///< of a block
  int64_t sharedBytes = 0; ///< dynamic shared memory of a block
  int64_t blocks = 1;      ///< that a multiprocessor should hold at a time
  InstructionCounts implied;

  /// Place of line `line` (from 1), or unknown.
  mlir::Location placeOf(unsigned line) const;
};

/// Prints a kernel that the passes of `buildTileToGpuPipeline` have lowered. `head` is put
/// before it as a comment. Failures have been reported as diagnostics.
mlir::FailureOr<KernelText> emitKernel(mlir::func::FuncOp kernel, llvm::StringRef head);

/// Lowers every tile kernel of `module` in place.
mlir::LogicalResult lowerToGpu(mlir::ModuleOp module, const BlockShape &shape);

} // namespace llmopt::cuda

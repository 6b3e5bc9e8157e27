// The CUDA target's passes: tile programs on their way to threads.
#pragma once

#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"

namespace mlir::func {
class FuncOp;
}

namespace llmopt::cuda {

#define GEN_PASS_DECL
#include "codegen/cuda/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "codegen/cuda/Passes.h.inc"

/// How a kernel is spread over a block.
struct BlockShape {
  int64_t warps = 4;
  int64_t stages = 2;              ///< tiles of a loop in shared memory at a time
  int64_t sharedBudget = 99 << 10; ///< bytes of shared memory of a block
  bool readsAhead = false;         ///< what copies' addresses are read from, a turn before them
};

/// All passes from a tile program to what the printer prints.
void buildTileToGpuPipeline(mlir::OpPassManager &manager, const BlockShape &shape);

/// Registers the passes and the pipeline `tile-to-gpu`.
void registerCudaPasses();

} // namespace llmopt::cuda

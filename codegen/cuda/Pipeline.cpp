// The way of a tile program to what the printer prints.
#include "codegen/cuda/Passes.h"

#include "dialect/tile/TileDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

namespace llmopt::cuda {

void buildTileToGpuPipeline(OpPassManager &manager, const BlockShape &shape) {
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
  // What is the same for all tiles of keys stands before the loop, where a reader looks for it,
  // too: NVRTC is not asked to find it (codegen/cuda/nvrtc/Nvrtc.cpp).
  manager.addPass(createLoopInvariantCodeMotionPass());
  OpPassManager &function = manager.nest<func::FuncOp>();
  function.addPass(createTileGpuAssignLayouts({shape.warps}));
  function.addPass(createCSEPass());
  function.addPass(createTileGpuStage());
  function.addPass(createTileGpuPipeline({shape.stages, shape.readsAhead}));
  function.addPass(createTileGpuAllocate({shape.sharedBudget}));
  function.addPass(createTileGpuSync());
  function.addPass(createTileGpuNarrowIndices());
}

namespace {
struct TileToGpuOptions : PassPipelineOptions<TileToGpuOptions> {
  Option<int64_t> warps{*this, "warps", llvm::cl::desc("warps of a block"), llvm::cl::init(4)};
  Option<int64_t> stages{*this, "stages", llvm::cl::desc("tiles of a loop in shared memory"),
                         llvm::cl::init(2)};
  Option<int64_t> budget{*this, "budget", llvm::cl::desc("bytes of shared memory of a block"),
                         llvm::cl::init(99 << 10)};
  Option<bool> readsAhead{*this, "reads-ahead",
                          llvm::cl::desc("read what addresses follow from a turn before copies"),
                          llvm::cl::init(false)};
};
} // namespace

void registerCudaPasses() {
  registerTileGpuPasses();
  PassPipelineRegistration<TileToGpuOptions>(
      "tile-to-gpu", "lower a tile program to what the CUDA printer prints",
      [](OpPassManager &manager, const TileToGpuOptions &options) {
        buildTileToGpuPipeline(manager,
                               {options.warps, options.stages, options.budget, options.readsAhead});
      });
}

} // namespace llmopt::cuda

// The way of a tile program to the LLVM dialect.
#include "codegen/cpu/Passes.h"

#include "passes/tile/Passes.h"

#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

namespace llmopt::cpu {

void buildTileToVectorPipeline(OpPassManager &manager, llvm::StringRef features) {
  OpPassManager &function = manager.nest<func::FuncOp>();
  function.addPass(tile::createTileFuseMaps());
  function.addPass(createTileCpuPromote({features.str()}));
  function.addPass(createTileCpuFetchAhead());
  function.addPass(createTileCpuAssignOrder({features.str()}));
  function.addPass(createConvertTileToVector({features.str()}));
  manager.addPass(createTileCpuExpandMath({features.str()}));
}

void buildTileToCpuPipeline(OpPassManager &manager, llvm::StringRef features) {
  buildTileToVectorPipeline(manager, features);
  manager.addPass(createTileCpuKernelAbi());
  // CSE only: canonicalisation of large unrolled bodies costs more than LLVM's own.
  manager.addPass(createCSEPass());
  manager.addPass(createTileCpuLoopsToBlocks());
  manager.addPass(createTileCpuToLlvm());
  manager.addPass(createReconcileUnrealizedCastsPass());
}

namespace {
struct TileToCpuOptions : PassPipelineOptions<TileToCpuOptions> {
  Option<std::string> features{*this, "features",
                               llvm::cl::desc("LLVM feature names of the CPU, comma separated")};
};
} // namespace

void registerCpuPasses() {
  registerTileCpuPasses();
  PassPipelineRegistration<TileToCpuOptions>(
      "tile-to-cpu", "lower a tile program to the LLVM dialect for a CPU",
      [](OpPassManager &manager, const TileToCpuOptions &options) {
        buildTileToCpuPipeline(manager, options.features);
      });
}

} // namespace llmopt::cpu

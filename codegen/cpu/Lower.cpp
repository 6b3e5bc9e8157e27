// lowerToCpu and what must be registered for it.
#include "codegen/cpu/Object.h"
#include "codegen/cpu/Passes.h"

#include "dialect/tile/TileDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"

using namespace mlir;

void llmopt::cpu::registerCpuDialects(DialectRegistry &registry) {
  registry.insert<tile::TileDialect, arith::ArithDialect, func::FuncDialect, math::MathDialect,
                  memref::MemRefDialect, scf::SCFDialect>();
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
}

LogicalResult llmopt::cpu::lowerToCpu(ModuleOp module, const CpuTargetOptions &options) {
  PassManager manager(module.getContext());
  // Verified at the door by whoever made the module, and after every pass in the tests
  // of the passes; between passes it costs a fifth of their time.
  manager.enableVerifier(false);
  buildTileToCpuPipeline(manager, options.allFeatures());
  return manager.run(module);
}

// Passes of the CPU target: from a tile program to the LLVM dialect.
#pragma once

#include "codegen/cpu/CpuIsa.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Pass/Pass.h"

#include <string>

namespace mlir {
class OpPassManager;
namespace func {
class FuncOp;
}
} // namespace mlir

namespace llmopt::cpu {

/// Unit attribute of a kernel: a row's result depends on that row alone.
inline constexpr llvm::StringLiteral kBatchInvariantAttr = "tile.batch_invariant";
/// Unit attribute of the argument that holds the scratch memory.
inline constexpr llvm::StringLiteral kScratchArgumentAttr = "tile.scratch";

#define GEN_PASS_DECL
#include "codegen/cpu/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "codegen/cpu/Passes.h.inc"

/// Turns math ops that have neither instructions nor an expansion into calls of functions
/// of runtime/bundle/HostFunctions.h. What has no function is reported at its location.
mlir::LogicalResult callHostFunctions(mlir::ModuleOp module, const CpuIsa &features);
/// Expansions of math ops without library calls; see MathExpansion.cpp.
void populateMathExpansion(mlir::RewritePatternSet &patterns, const CpuIsa &isa);
/// Expansions of f16 and bf16 conversions that the CPU lacks; see FloatExpansion.cpp.
void populateFloatExpansion(mlir::RewritePatternSet &patterns, const CpuIsa &isa);

/// The tile passes for a CPU with these features: tile program -> vector code.
void buildTileToVectorPipeline(mlir::OpPassManager &manager, llvm::StringRef features);
/// The whole way to the LLVM dialect; also registered as `tile-to-cpu`.
void buildTileToCpuPipeline(mlir::OpPassManager &manager, llvm::StringRef features);

/// Registers all passes above and the pipeline.
void registerCpuPasses();

} // namespace llmopt::cpu

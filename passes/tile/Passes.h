// Passes over tile programs that serve every target.
#pragma once

#include "mlir/IR/PatternMatch.h"
#include "mlir/Pass/Pass.h"

namespace mlir::func {
class FuncOp;
}

namespace llmopt::tile {

#define GEN_PASS_DECL
#include "passes/tile/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/tile/Passes.h.inc"

} // namespace llmopt::tile

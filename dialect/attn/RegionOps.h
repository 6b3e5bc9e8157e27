// What mask and score regions may compute with: the one list that the verifier, the
// oracle, every target and the tests hold to.
#pragma once

#include "mlir/IR/Operation.h"

namespace llmopt::attn {

/// Names of the ops of arith and math that a mask or score region may hold. Each has one
/// result, and a meaning that is the same for every operand on every target.
llvm::ArrayRef<llvm::StringLiteral> regionOps();

/// Succeeds if `op` may stand in a region; else reports it, with what to use instead.
mlir::LogicalResult verifyRegionOp(mlir::Operation &op);

} // namespace llmopt::attn

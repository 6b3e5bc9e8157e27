// What a copy's addresses depend on within a block, and how to compute it again elsewhere.
#pragma once

#include "dialect/tile/TileDialect.h"

#include "mlir/IR/IRMapping.h"

namespace llmopt::cuda {

/// The operations of `op`'s block that its operands come from, in order. Fails if one of
/// them is more than address arithmetic (a product, a wait, a reduction, a loop). What makes the
/// values `known` is left out.
mlir::FailureOr<llvm::SmallVector<mlir::Operation *>>
addressSlice(mlir::Operation *op, llvm::ArrayRef<mlir::Value> known = {});

} // namespace llmopt::cuda

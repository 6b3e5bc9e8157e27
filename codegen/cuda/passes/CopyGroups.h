// Groups of copies: what the hardware waits for.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace llmopt::cuda {

/// On a tile.copy_async: its group is that of the copy that follows in the block, which nothing
/// waits for in between. `pending` of a tile.get counts groups.
inline constexpr llvm::StringLiteral kJoinsNextAttr = "tile.joins_next";

/// Makes neighbouring copies one group (`tile.joins_next`) where one wait is for all of them: K and
/// V of a tile that a loop brings ahead. Copies that are waited for at different places stay apart,
/// so that the first wait leaves the second copy under way.
void groupCopies(mlir::func::FuncOp function);

} // namespace llmopt::cuda

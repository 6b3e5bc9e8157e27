// Which operations touch which shared memory.
#pragma once

#include "dialect/tile/TileDialect.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace llmopt::cuda {

/// On a tile.put of a tile that no product reads: its padding is left as it is.
inline constexpr llvm::StringLiteral kUnpaddedAttr = "tile.unpadded";

/// On a read by ldmatrix whose layout covers more rows than the tile has: those beyond are read
/// from its last step of 16 rows.
inline constexpr llvm::StringLiteral kBoundedAttr = "tile.bounded";

/// One access of one operation. `slot` null: the whole buffer.
struct SharedAccess {
  mlir::memref::AllocaOp buffer;
  mlir::Value slot;
  int64_t ahead = 0;
  bool writes = false;
};

/// Accesses of the operation itself, not of its regions. A `tile.get` only waits; the
/// reader is whoever uses its result.
llvm::SmallVector<SharedAccess> sharedAccesses(mlir::Operation *op);

/// True for operations that write their scratch and read it again, with a barrier between.
bool exchangesInside(mlir::Operation *op);

/// Bytes of one slot: rows padded to 16, for ldmatrix.
int64_t slotBytes(mlir::MemRefType buffer);
int64_t bufferBytes(mlir::MemRefType buffer);

} // namespace llmopt::cuda

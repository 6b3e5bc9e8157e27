// The tile dialect's C++ face.
#pragma once

#include "dialect/tile/Layout.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialect/tile/TileDialect.h.inc"
#include "dialect/tile/TileEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialect/tile/TileAttrs.h.inc"

#define GET_TYPEDEF_CLASSES
#include "dialect/tile/TileTypes.h.inc"

#define GET_OP_CLASSES
#include "dialect/tile/TileOps.h.inc"

namespace llmopt::tile {

/// Attribute names of kernels; see the dialect's description.
inline constexpr llvm::StringLiteral kKernelAttr = "tile.kernel";
inline constexpr llvm::StringLiteral kWorkerAttr = "tile.worker";
inline constexpr llvm::StringLiteral kScratchAttr = "tile.scratch_bytes";

/// True for a tile: a 2-D tensor of static shape.
bool isTile(mlir::Type type);

/// On an scf.for that runs at most once.
inline constexpr llvm::StringLiteral kOnceAttr = "tile.once";

/// On any operation, a sentence on what it and those after it do: targets that print text put
/// it before them.
inline constexpr llvm::StringLiteral kNoteAttr = "tile.note";

/// Attribute names of kernels for GPUs: warps of a block, bytes of shared memory of a block;
/// on the memref.alloca of a shared buffer, its first byte.
inline constexpr llvm::StringLiteral kWarpsAttr = "tile.warps";
inline constexpr llvm::StringLiteral kSharedBytesAttr = "tile.shared_bytes";
inline constexpr llvm::StringLiteral kOffsetAttr = "tile.offset";

/// The layout of a tile in registers or in shared memory, null if it has none (yet).
FragmentAttr fragmentOf(mlir::Value tile);
SharedAttr sharedOf(mlir::Value tile);

} // namespace llmopt::tile

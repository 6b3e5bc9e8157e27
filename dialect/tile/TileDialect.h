// The tile dialect's C++ face.
#pragma once

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

#define GET_OP_CLASSES
#include "dialect/tile/TileOps.h.inc"

namespace llmopt::tile {

/// Attribute names of kernels; see the dialect's description.
inline constexpr llvm::StringLiteral kKernelAttr = "tile.kernel";
inline constexpr llvm::StringLiteral kWorkerAttr = "tile.worker";
inline constexpr llvm::StringLiteral kScratchAttr = "tile.scratch_bytes";

/// True for a tile: a 2-D tensor of static shape.
bool isTile(mlir::Type type);

} // namespace llmopt::tile

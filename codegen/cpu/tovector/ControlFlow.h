// Tiles on control-flow edges: what flows into what at loops, branches and their ends.
#pragma once

#include "dialect/tile/TileDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Operation.h"

namespace llmopt::cpu {

/// `target` takes the value of `source`; `alias`, if any, is always the same place as
/// target (a loop's result and its carried argument).
struct Edge {
  mlir::Value source, target, alias;
};

/// All tile edges that happen at `op` at once: an scf loop (entry) or a terminator.
struct EdgeSet {
  mlir::Operation *op = nullptr;
  llvm::SmallVector<Edge> edges;
};

/// Edges of one loop entry or terminator; empty when no tile flows.
EdgeSet edgesAt(mlir::Operation *op);
/// Edges of all loops, branches and terminators of a function.
llvm::SmallVector<EdgeSet> collectEdges(mlir::func::FuncOp function);
/// True for scf loops, branches and their terminators.
bool isControlFlow(mlir::Operation *op);

/// True for a tile that is a constant with all elements equal.
bool isSplat(mlir::Value value);
/// True when a splat has a user that reads it from memory: not a loop edge, and not
/// the accumulator of a product, which both fill registers or memory directly.
bool needsMemory(mlir::Value splat);

/// The map that only scales the rows of `mma`'s accumulator (the correction of a running
/// softmax): the product does it while it loads the accumulator, which saves a pass over
/// the tile, 4 % of attention at d = 64. Null when there is none.
tile::MapOp rowScaleOf(tile::MmaOp mma);
/// The product that takes over this map, if any.
tile::MmaOp absorbingProduct(tile::MapOp map);

} // namespace llmopt::cpu

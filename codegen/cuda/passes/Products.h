// What a product asks of its operands.
#pragma once

#include "dialect/tile/TileDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <optional>

namespace llmopt::cuda {

/// True if mma.m16n8k16 does this product; else the plain units do, from shared memory.
bool onTensorCores(tile::MmaOp mma);

/// True if ldmatrix reads this tile from shared memory: a first operand of mma.m16n8k16.
bool loadsByMatrix(tile::ConvertOp convert);
/// What an operation reads from shared memory by ldmatrix. Warps share the rows evenly, so that
/// they may cover more than there are: 64 of 48.
struct MatrixRead {
  mlir::Value tile;
  int64_t rows, covered;
};
std::optional<MatrixRead> matrixRead(mlir::Operation *op, int64_t warps);
/// Neighbouring lanes that share a row of a copy, by the layout of its row addresses.
int64_t lanesOfRow(const tile::Layout &rows);

/// Layout of the product's accumulator.
tile::Layout accumulatorOf(tile::MmaOp mma, int64_t warps);
/// Layout of a first operand in registers (tensor cores only).
tile::Layout firstOperandOf(tile::MmaOp mma, int64_t warps);

/// Brings operands of products into shared memory where they belong: the loads themselves,
/// or a `tile.convert`.
mlir::LogicalResult placeOperands(mlir::func::FuncOp function, int64_t warps);

/// Results of products on tensor cores are stored from shared memory, where a row lies in one
/// piece: it goes out 16 bytes at a time, by a short loop. In registers each thread has pairs
/// of many rows, and every pair would need code of its own.
void placeStores(mlir::func::FuncOp function);

/// After layouts are assigned: a warp's rows must lie in one slice.
mlir::LogicalResult verifyProduct(tile::MmaOp mma, int64_t warps);

} // namespace llmopt::cuda

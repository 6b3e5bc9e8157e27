// Row addresses of copies, made a row a turn.
//
// A copy gives some neighbouring lanes to a row, and a thread several rows. What is read to find a
// row (its page, its entry in the plan) is the same for all lanes of the row: each of them reads it
// for another of their rows, once for the thread instead of once for each row, and gives it to the
// others in the row's turn. Arithmetic that follows is done in the turn.
#pragma once

#include "dialect/tile/TileDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace llmopt::cuda {

/// The rows that a thread of a copy has in its registers, one for each of the lanes that share
/// them: lane i has the row of register i. None where there is one row, or more than such lanes.
std::optional<tile::Layout> rowsInLanes(const tile::Layout &copyRows);

/// Once layouts are known: makes what is read for the rows of copies lie in lanes.
void handOutRows(mlir::func::FuncOp function);

/// Rows that follow from memory: through a page table, or by entries of the plan.
bool isRead(mlir::Value rows);

/// The result's rows, several a thread, lie one a lane in the operand.
bool isFromLanes(tile::ConvertOp convert);

/// Each row can be made by itself, in a turn of a loop: of numbers, and of what lanes have.
bool canBeMadeByTurn(mlir::Value rows);
/// A copy of several rows a thread, in a loop of a row a turn.
bool isByTurn(tile::CopyAsyncOp copy);
/// Nothing wants the rows but the turns of copies.
bool isMadeByTurn(mlir::Value rows);

} // namespace llmopt::cuda

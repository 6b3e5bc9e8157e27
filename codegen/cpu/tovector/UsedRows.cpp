// tile.used_rows: loops over the rows of tiles by columns begin and end where rows are wanted.
#include "codegen/cpu/tovector/Lowering.h"

#include "codegen/cpu/tovector/ControlFlow.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace llmopt;
using namespace llmopt::cpu;

namespace {

/// True where all that the op does with tiles of `rows` rows is done for each row apart, in loops
/// over rows.
bool worksByRow(Operation *op, int64_t rows) {
  auto isOne = [&](Value value) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    return type && type.getDimSize(0) == rows;
  };
  auto byColumns = [&](Value value) {
    return !isOne(value) || cast<RankedTensorType>(value.getType()).getDimSize(1) == 1 ||
           hasColumnOrder(value.getType());
  };
  if (llvm::none_of(op->getOperands(), isOne) && llvm::none_of(op->getResults(), isOne))
    return true;
  if (!llvm::all_of(op->getOperands(), byColumns) || !llvm::all_of(op->getResults(), byColumns))
    return false;
  if (auto mma = dyn_cast<tile::MmaOp>(op)) // of two columns and fewer, blocks are wider
    return !isOne(mma.getB()) && cast<RankedTensorType>(mma.getType()).getDimSize(1) > 2;
  return isa<tile::MapOp, arith::ConstantOp>(op) || isControlFlow(op);
}

} // namespace

/// In steps of four vectors, the widest that a loop over rows takes: all leave out the same rows.
void Lowering::lowerUsedRows(tile::UsedRowsOp op) {
  int64_t rows = op.getRows(), step = 4 * target.lanes;
  if (rows % step || rows == step)
    return;
  for (Operation *next = op->getNextNode(); next; next = next->getNextNode()) {
    bool apart = true;
    next->walk<WalkOrder::PreOrder>([&](Operation *inner) {
      apart &= worksByRow(inner, rows);
      return isa<tile::MapOp>(inner) ? WalkResult::skip() : WalkResult::advance();
    });
    if (!apart)
      return;
  }
  Emit emit = emitAt(op);
  auto whole = [&](Value row) {
    Value within = emit.maxIndex(emit.minIndex(row, emit.idx(rows)), emit.idx(0));
    return emit.mul(arith::DivUIOp::create(emit, within, emit.idx(step)), emit.idx(step));
  };
  usedRows = {rows, whole(op.getFrom()), whole(emit.add(op.getTo(), step - 1))};
}

// See RowTurns.h.
#include "codegen/cuda/passes/RowTurns.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace llmopt;
using tile::Layout;

namespace {

constexpr unsigned kPageBits = 32; ///< what a lane may give to others at the price of one exchange

RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

Layout layoutOf(Value value) { return tile::fragmentOf(value).getLayout(); }

bool isWide(Value value) {
  return typeOf(value).getElementType().getIntOrFloatBitWidth() > kPageBits;
}

bool readsMemory(Operation *op) {
  return isa<tile::PagedRowsOp>(op) ||
         op->walk([](memref::LoadOp) { return WalkResult::interrupt(); }).wasInterrupted();
}

/// A map that gives one value a row.
tile::MapOp rowMap(Value value) {
  auto map = value.getDefiningOp<tile::MapOp>();
  bool single =
      map && map.getNumResults() == 1 && map.getSpace().second == 1 && !map.getCombinersAttr();
  return single ? map : tile::MapOp();
}

/// Whether the values, and all that they are made of, can lie elsewhere: each has one use.
bool canMove(Value rows) {
  Operation *op = rows.getDefiningOp();
  if (!op || !rows.hasOneUse())
    return false;
  if (tile::MapOp map = rowMap(rows))
    return llvm::all_of(map.getInputs(), canMove);
  return isa<tile::PagedRowsOp, tile::StridedRowsOp>(op);
}

void move(Value rows, Attribute layout) {
  RankedTensorType type = typeOf(rows);
  rows.setType(RankedTensorType::get(type.getShape(), type.getElementType(), layout));
  if (tile::MapOp map = rowMap(rows))
    for (Value input : map.getInputs())
      move(input, layout);
}

/// Moves what is read for `rows` into lanes; addresses that follow from numbers stay.
void handOut(OpOperand &rows, Attribute inLanes) {
  Value value = rows.get();
  tile::MapOp map = rowMap(value);
  bool follows =
      map && !readsMemory(map) && isWide(value) && !llvm::any_of(map.getInputs(), isWide);
  if (follows) {
    for (OpOperand &input : map.getInputsMutable())
      handOut(input, inLanes);
    return;
  }
  if (!canMove(value) || !cuda::isRead(value))
    return;
  RankedTensorType there = typeOf(value);
  move(value, inLanes);
  OpBuilder b(rows.getOwner());
  rows.set(tile::ConvertOp::create(b, value.getLoc(), there, value));
}

} // namespace

bool cuda::isRead(Value rows) {
  Operation *op = rows.getDefiningOp();
  tile::MapOp map = op ? rowMap(rows) : tile::MapOp();
  return op && (readsMemory(op) || (map && llvm::any_of(map.getInputs(), isRead)));
}

std::optional<Layout> cuda::rowsInLanes(const Layout &copyRows) {
  const tile::LayoutAxes &registers = copyRows.registers, &lanes = copyRows.lanes;
  if (registers.size() != 1 || registers[0].dim != tile::LayoutDim::Row || lanes.empty() ||
      lanes[0].dim != tile::LayoutDim::Replica)
    return std::nullopt;
  // Lanes beyond the rows have one beyond the tile.
  int64_t sharing = lanes[0].extent, taken = llvm::PowerOf2Ceil(registers[0].extent);
  if (sharing % taken)
    return std::nullopt;
  Layout layout = copyRows;
  layout.registers.clear();
  layout.lanes = {{taken, tile::LayoutDim::Row, registers[0].stride},
                  {sharing / taken, tile::LayoutDim::Replica, 0}};
  layout.lanes.append(std::next(lanes.begin()), lanes.end());
  return layout.normalised();
}

void cuda::handOutRows(func::FuncOp function) {
  function.walk([](tile::LoadOp load) {
    if (!tile::sharedOf(load.getTile()))
      return;
    if (std::optional<Layout> inLanes = rowsInLanes(layoutOf(load.getRows())))
      handOut(load.getRowsMutable(), tile::FragmentAttr::get(load.getContext(), *inLanes));
  });
}

bool cuda::isFromLanes(tile::ConvertOp convert) {
  auto from = tile::fragmentOf(convert.getTile()), to = tile::fragmentOf(convert.getResult());
  return from && to && rowsInLanes(to.getLayout()) == from.getLayout();
}

bool cuda::canBeMadeByTurn(Value rows) {
  if (auto convert = rows.getDefiningOp<tile::ConvertOp>())
    return isFromLanes(convert);
  if (tile::MapOp map = rowMap(rows))
    return !readsMemory(map) && llvm::all_of(map.getInputs(), canBeMadeByTurn);
  return rows.getDefiningOp<tile::StridedRowsOp>() != nullptr;
}

bool cuda::isByTurn(tile::CopyAsyncOp copy) {
  return layoutOf(copy.getRows()).registerCount() > 1 && canBeMadeByTurn(copy.getRows());
}

bool cuda::isMadeByTurn(Value rows) {
  if (!tile::isTile(rows.getType()) || !tile::fragmentOf(rows) || rows.use_empty() ||
      layoutOf(rows).registerCount() == 1 || !canBeMadeByTurn(rows))
    return false;
  return llvm::all_of(rows.getUsers(), [](Operation *user) {
    return isa<tile::CopyAsyncOp>(user) ||
           (isa<tile::MapOp>(user) && isMadeByTurn(user->getResult(0)));
  });
}

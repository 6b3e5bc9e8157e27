// Prefetching the rows of the next load while a product computes.
//
// Measured, decode of bf16, d = 128: copies of K and V waited for memory four fifths of the
// time, and memory waited for the products the rest.
#include "codegen/cpu/tovector/Lowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace llmopt;
using namespace llmopt::cpu;

void FetchAhead::row(Emit &emit, Value r, Value from, int64_t count) const {
  constexpr int64_t kLine = 64;
  int64_t bytes = cast<MemRefType>(base.getType()).getElementTypeBitWidth() / 8;
  Value zero = emit.idx(0);
  auto address = [&](Value i) { return emit.loadElement(addresses, i, zero); };
  Value at = address(r);
  if (nextTrip) {
    Value step = arith::SubIOp::create(emit, address(emit.idx(1)), address(zero));
    Value whole = emit.constant(emit.getI64Type(), rows);
    at = arith::AddIOp::create(emit, at, arith::MulIOp::create(emit, step, whole));
  }
  Value offset = emit.maxIndex(arith::IndexCastOp::create(emit, emit.getIndexType(), at), zero);
  if (first)
    offset = emit.add(offset, first);
  if (from)
    offset = emit.add(offset, from);
  for (int64_t line = 0; line < count * bytes; line += kLine)
    memref::PrefetchOp::create(emit, base, ValueRange{emit.add(offset, line / bytes)},
                               /*isWrite=*/false, /*localityHint=*/3, /*isDataCache=*/true);
}

/// The next load in the block whose addresses are known by now, else the first of the
/// block (for the next trip of its loop).
std::optional<FetchAhead> Lowering::fetchAheadOf(tile::MmaOp mma) {
  constexpr int64_t kMostRows = 16;
  auto type = cast<RankedTensorType>(mma.getType());
  if (type.getDimSize(0) > kMostRows || !isa<scf::ForOp>(mma->getParentOp()))
    return {};
  auto usable = [&](tile::LoadOp load) {
    auto tile = cast<RankedTensorType>(load.getType());
    Operation *rows = load.getRows().getDefiningOp();
    return !load.getStride() && tile.getDimSize(0) >= 16 && tile.getDimSize(1) >= 16 && rows &&
           rows->getBlock() == mma->getBlock() && rows->isBeforeInBlock(mma);
  };
  tile::LoadOp found;
  for (Operation *op = mma->getNextNode(); op && !found; op = op->getNextNode())
    if (auto load = dyn_cast<tile::LoadOp>(op); load && usable(load))
      found = load;
  bool nextTrip = !found;
  for (Operation &op : *mma->getBlock())
    if (auto load = dyn_cast<tile::LoadOp>(op); load && !found && usable(load))
      found = load;
  auto local = [&](Value value) { return value && value.getParentBlock() == mma->getBlock(); };
  if (!found || !plan.livesUntil(found.getRows(), mma) || local(found.getBase()) ||
      local(found.getFirst()))
    return {};
  auto tile = cast<RankedTensorType>(found.getType());
  return FetchAhead{found.getBase(),    found.getFirst(),   buffer(found.getRows()),
                    tile.getDimSize(1), tile.getDimSize(0), nextTrip};
}

// tile.load and tile.store: copies row by row, with conversion.
#include "codegen/cpu/tovector/InPlaceRows.h"
#include "codegen/cpu/tovector/Lowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace llmopt;
using namespace llmopt::cpu;

namespace {

/// One side in memory (base, addresses), the other a buffer. Loads and stores share it.
struct Transfer {
  Value base, rows, first, stride, limit;
  Buffer tile, addresses;
  int64_t columns = 0;
  int64_t named = 0; ///< with `apart`: rows that have an address, those of the first slice
  Value apart = {};

  /// Columns of a row that exist: a constant, or clamped from the limit.
  Value count(Emit &emit) const {
    if (!limit)
      return {};
    Value rest = first ? emit.createOrFold<arith::SubIOp>(limit, first) : limit;
    return emit.maxIndex(emit.minIndex(rest, emit.idx(columns)), emit.idx(0));
  }
  /// Offset of the first element of row r, and whether it exists.
  std::pair<Value, Value> row(Emit &emit, Value r) const {
    Value own = apart ? arith::RemUIOp::create(emit, r, emit.idx(named)).getResult() : r;
    Value address = emit.loadElement(addresses, own, emit.idx(0));
    Value zero = emit.zero(address.getType());
    Value valid = arith::CmpIOp::create(emit, arith::CmpIPredicate::sge, address, zero);
    Value offset = arith::IndexCastOp::create(emit, emit.getIndexType(), address);
    if (apart)
      offset = emit.add(offset, emit.mul(arith::DivUIOp::create(emit, r, emit.idx(named)), apart));
    if (first)
      offset = emit.add(offset, stride ? emit.mul(first, stride) : first);
    return {offset, valid};
  }
  Value element(Emit &emit, Value offset, Value column) const {
    return emit.add(offset, stride ? emit.mul(column, stride) : column);
  }
  /// i1 and sub-byte elements have no vector form in memory that matches the scalar one.
  bool vectorises() const {
    Type memory = cast<MemRefType>(base.getType()).getElementType();
    return !stride && memory.getIntOrFloatBitWidth() >= 8 && tile.shape.columns > 1;
  }
};

/// Vectors of a row: whole rows by powers of two; up to a run-time count, then scalars.
/// Four registers at once, which LLVM splits, in a loop: the same without a loop takes longer to
/// compile than it ever saves.
void emitRow(Emit &emit, const Transfer &t, Value count,
             llvm::function_ref<void(Value column, int64_t lanes)> vectors,
             llvm::function_ref<void(Value column)> scalars) {
  // Across the layout each element is moved alone: in a loop, which takes as long as a register's
  // worth taken apart, and a tenth of the time to compile.
  if (!t.vectorises() || t.tile.shape.lanesOverRows) {
    emit.loop(emit.idx(0), count ? count : emit.idx(t.columns), 1, scalars);
    return;
  }
  if (count) {
    int64_t lanes = emit.target.lanes;
    Value rest = arith::RemSIOp::create(emit, count, emit.idx(lanes));
    Value whole = arith::SubIOp::create(emit, count, rest);
    emit.loop(emit.idx(0), whole, lanes, [&](Value c) { vectors(c, lanes); });
    emit.loop(whole, count, 1, scalars);
    return;
  }
  int64_t most = std::min<int64_t>(64, emit.target.lanes * 4);
  int64_t looped = t.columns / most * most;
  emit.loop(0, looped, most, [&](Value c) { vectors(c, most); });
  for (auto [at, lanes] : chunks(t.columns - looped, most))
    vectors(emit.idx(looped + at), lanes);
}

/// Row r of a tile laid out by rows.
void loadRow(Emit &emit, const Transfer &t, Value r, Value offset, Value count) {
  Type memory = cast<MemRefType>(t.base.getType()).getElementType();
  Type element = t.tile.shape.isBool ? emit.getI1Type() : t.tile.shape.element;
  auto put = [&](Value value, Value c) {
    emit.storeElement(emit.convert(value, element), t.tile, r, c);
  };
  emitRow(
      emit, t, count,
      [&](Value c, int64_t lanes) {
        Value value = vector::LoadOp::create(emit, emit.vec(lanes, memory), t.base,
                                             ValueRange{emit.add(offset, c)});
        emit.storeVector(emit.convert(value, element), t.tile, r, c);
      },
      [&](Value c) {
        Value at = t.element(emit, offset, c);
        put(memref::LoadOp::create(emit, t.base, ValueRange{at}), c);
      });
  if (count)
    emit.loop(count, emit.idx(t.columns), 1,
              [&](Value c) { emit.storeElement(emit.zero(element), t.tile, r, c); });
}

void zeroRow(Emit &emit, const Buffer &tile, Value r) {
  Type element = tile.shape.isBool ? emit.getI1Type() : tile.shape.element;
  if (tile.shape.lanesOverRows) {
    emit.loop(0, tile.shape.columns, 1,
              [&](Value c) { emit.storeElement(emit.zero(element), tile, r, c); });
    return;
  }
  Value zero = emit.zero(emit.vec(emit.target.lanes, element));
  emit.loop(0, tile.shape.inner, emit.target.lanes,
            [&](Value c) { emit.storeVector(zero, tile, r, c); });
}

void storeRow(Emit &emit, const Transfer &t, Value r, Value offset, Value count) {
  Type memory = cast<MemRefType>(t.base.getType()).getElementType();
  emitRow(
      emit, t, count,
      [&](Value c, int64_t lanes) {
        Value value = emit.loadVector(t.tile, r, c, lanes);
        vector::StoreOp::create(emit, emit.convert(value, memory), t.base,
                                ValueRange{emit.add(offset, c)});
      },
      [&](Value c) {
        Value value = emit.convert(emit.loadElement(t.tile, r, c), memory);
        memref::StoreOp::create(emit, value, t.base, ValueRange{t.element(emit, offset, c)});
      });
}

/// Asks for the row kAhead bytes further on while row r is copied: through a page table
/// the hardware does not see where the next row lies, and it stops at each 4 KiB page.
/// Beyond the tile's end the rows are guessed to go on as they began. A wrong guess, or
/// a missing row, costs a few lines of traffic and never faults.
void prefetchAhead(Emit &emit, const Transfer &t, Value r) {
  constexpr int64_t kAhead = 8192, kLine = 64;
  int64_t bytes = cast<MemRefType>(t.base.getType()).getElementTypeBitWidth() / 8,
          rows = t.tile.shape.rows;
  if (!t.vectorises() || rows < 16 || t.columns * bytes < kLine)
    return;
  int64_t distance = std::clamp<int64_t>(kAhead / (t.columns * bytes), 1, 2 * rows);
  auto address = [&](Value row) { return emit.loadElement(t.addresses, row, emit.idx(0)); };
  Value ahead = emit.add(r, distance), last = emit.idx(rows - 1);
  Value known = address(emit.minIndex(ahead, last));
  Value step = arith::SubIOp::create(emit, address(emit.idx(1)), address(emit.idx(0)));
  Value reach = emit.constant(emit.getI64Type(), distance);
  Value guess = arith::AddIOp::create(emit, address(r), arith::MulIOp::create(emit, step, reach));
  Value inside = arith::CmpIOp::create(emit, arith::CmpIPredicate::sle, ahead, last);
  Value at = arith::IndexCastOp::create(emit, emit.getIndexType(),
                                        arith::SelectOp::create(emit, inside, known, guess));
  at = emit.maxIndex(at, emit.idx(0));
  if (t.first)
    at = emit.add(at, t.first);
  for (int64_t line = 0; line < t.columns * bytes; line += kLine)
    memref::PrefetchOp::create(emit, t.base, ValueRange{emit.add(at, line / bytes)},
                               /*isWrite=*/false,
                               /*localityHint=*/2, /*isDataCache=*/true);
}

/// Emits a transfer twice where its stride is a run-time value: contiguous columns move by
/// vectors (nearly every array there is), others one by one.
void withUnitStride(Emit &emit, const Transfer &t,
                    llvm::function_ref<void(const Transfer &)> transfer) {
  Transfer contiguous = t;
  contiguous.stride = {};
  if (!t.stride || !contiguous.vectorises())
    return transfer(t);
  Value isOne = arith::CmpIOp::create(emit, arith::CmpIPredicate::eq, t.stride, emit.idx(1));
  emit.branch(isOne, [&] { transfer(contiguous); }, [&] { transfer(t); });
}

template <typename Op> Transfer describe(Op op, Buffer tile, Buffer addresses) {
  return {op.getBase(),  op.getRows(), op.getFirst(), op.getStride(),
          op.getLimit(), tile,         addresses,     tile.shape.columns};
}

} // namespace

void Lowering::lowerLoad(tile::LoadOp op) {
  if (!plan.hasPlace(op.getTile()))
    return; // its product reads the rows where they lie
  Emit emit = emitAt(op);
  Transfer described = describe(op, buffer(op.getTile()), buffer(op.getRows()));
  if (op.getApart()) {
    described.apart = op.getApart();
    described.named = cast<RankedTensorType>(op.getRows().getType()).getDimSize(0);
  }
  Value count = described.count(emit);
  // The trip before has asked for these rows.
  bool announced = llvm::any_of(op.getBase().getUsers(), [&](Operation *user) {
    return isa<tile::PrefetchOp>(user) && user->getBlock() == op->getBlock();
  });
  withUnitStride(emit, described, [&](const Transfer &t) {
    emit.loop(0, t.tile.shape.rows, 1, [&](Value r) {
      auto [offset, valid] = t.row(emit, r);
      if (!announced && !t.apart)
        prefetchAhead(emit, t, r);
      emit.branch(
          valid, [&, offset = offset] { loadRow(emit, t, r, offset, count); },
          [&] { zeroRow(emit, t.tile, r); });
    });
  });
  const Transfer &t = described;
  // Lanes beyond the last row compute too: give them something harmless.
  if (t.tile.shape.lanesOverRows)
    emit.loop(t.tile.shape.rows, t.tile.shape.paddedRows(), 1,
              [&](Value r) { zeroRow(emit, t.tile, r); });
}

void Lowering::lowerStore(tile::StoreOp op) {
  Emit emit = emitAt(op);
  Transfer described = describe(op, buffer(op.getTile()), buffer(op.getRows()));
  Value count = described.count(emit);
  withUnitStride(emit, described, [&](const Transfer &t) {
    emit.loop(0, t.tile.shape.rows, 1, [&](Value r) {
      auto [offset, valid] = t.row(emit, r);
      auto write = scf::IfOp::create(emit, TypeRange{}, valid, /*withElseRegion=*/false);
      OpBuilder::InsertionGuard guard(emit);
      emit.setInsertionPointToStart(write.thenBlock());
      storeRow(emit, t, r, offset, count);
    });
  });
}

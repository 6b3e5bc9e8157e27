// tile.strided_rows and tile.paged_rows: where rows lie.
#include "codegen/cpu/tovector/Lowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace llmopt;
using namespace llmopt::cpu;

void Lowering::lowerStridedRows(tile::StridedRowsOp op) {
  Emit emit = emitAt(op);
  Buffer rows = buffer(op.getRows());
  Value none = emit.constant(emit.getI64Type(), -1);
  emit.loop(0, rows.shape.rows, 1, [&](Value r) {
    Value inside = arith::CmpIOp::create(emit, arith::CmpIPredicate::slt, r, op.getCount());
    Value offset = emit.add(op.getOffset(), emit.mul(r, op.getStride()));
    Value address = arith::IndexCastOp::create(emit, emit.getI64Type(), offset);
    emit.storeElement(arith::SelectOp::create(emit, inside, address, none), rows, r, emit.idx(0));
  });
}

namespace {

/// True when `value` is a multiple of `factor` for all we can see.
bool isMultiple(Value value, int64_t factor) {
  if (std::optional<int64_t> constant = getConstantIntValue(value))
    return *constant % factor == 0;
  auto product = value.getDefiningOp<arith::MulIOp>();
  return product && (isMultiple(product.getLhs(), factor) || isMultiple(product.getRhs(), factor));
}

/// Addresses in an i64 column, `lanes` rows at a time.
struct PagedRows {
  Emit &emit;
  tile::PagedRowsOp op;
  Buffer rows;
  int64_t lanes = emit.target.lanes;
  Type index = emit.getIndexType(), i32 = emit.getI32Type(), i64 = emit.getI64Type();

  Value splat(Value scalar) { return emit.splat(scalar, lanes); }
  Value wide(Value scalar) { return arith::IndexCastOp::create(emit, i64, scalar); }
  Value broad(Value scalar) { return splat(wide(scalar)); }
  Value product(Value a, Value b) { return arith::MulIOp::create(emit, a, b); }
  Value sum(Value a, Value b) { return arith::AddIOp::create(emit, a, b); }
  Value known(Value id) {
    return arith::CmpIOp::create(emit, arith::CmpIPredicate::sge, id, emit.zero(id.getType()));
  }
  Value step() { return vector::StepOp::create(emit, emit.vec(lanes, index)); }
  void store(Value condition, Value at, Value r) {
    Value none = splat(emit.constant(i64, -1));
    emit.storeVector(arith::SelectOp::create(emit, condition, at, none), rows, emit.idx(0), r);
  }
  Value inside(Value row) {
    return arith::CmpIOp::create(emit, arith::CmpIPredicate::slt, row, splat(op.getCount()));
  }

  /// All rows of a register lie in one page: one entry of the table, no products of vectors.
  void byPage() {
    Value steps = step(), page = emit.idx(op.getPage());
    Value distances = product(arith::IndexCastOp::create(emit, emit.vec(lanes, i64), steps),
                              broad(op.getSlotStride()));
    emit.loop(0, rows.shape.inner, lanes, [&](Value r) {
      Value key = emit.add(op.getKey(), r);
      Value some = arith::CmpIOp::create(emit, arith::CmpIPredicate::slt, r, op.getCount());
      auto id = scf::IfOp::create(emit, TypeRange{i32}, some, /*withElseRegion=*/true);
      {
        OpBuilder::InsertionGuard guard(emit);
        emit.setInsertionPointToStart(id.thenBlock());
        Value entry = emit.add(op.getBase(), arith::DivUIOp::create(emit, key, page));
        scf::YieldOp::create(
            emit, ValueRange{memref::LoadOp::create(emit, op.getTable(), ValueRange{entry})});
        emit.setInsertionPointToStart(id.elseBlock());
        scf::YieldOp::create(emit, ValueRange{emit.constant(i32, -1)});
      }
      Value slot = arith::RemUIOp::create(emit, key, page);
      Value first = sum(
          wide(op.getOffset()),
          sum(product(arith::ExtSIOp::create(emit, i64, id.getResult(0)), wide(op.getPageStride())),
              product(wide(slot), wide(op.getSlotStride()))));
      Value there =
          arith::AndIOp::create(emit, inside(sum(splat(r), steps)), splat(known(id.getResult(0))));
      store(there, sum(splat(first), distances), r);
    });
  }

  void byRow() {
    Value page = splat(emit.constant(i64, op.getPage())), noPage = splat(emit.constant(i32, -1)),
          offset = broad(op.getOffset()), pageStride = broad(op.getPageStride()),
          slotStride = broad(op.getSlotStride());
    emit.loop(0, rows.shape.inner, lanes, [&](Value r) {
      Value row = sum(splat(r), step());
      Value key =
          arith::IndexCastOp::create(emit, emit.vec(lanes, i64), sum(splat(op.getKey()), row));
      // Keys count from 0, so unsigned division: a shift when the page is a power of two.
      Value entry = arith::DivUIOp::create(emit, key, page);
      Value slot = arith::SubIOp::create(emit, key, product(entry, page));
      Value id = vector::GatherOp::create(emit, emit.vec(lanes, i32), op.getTable(),
                                          ValueRange{op.getBase()}, entry, inside(row), noPage);
      Value p = arith::ExtSIOp::create(emit, emit.vec(lanes, i64), id);
      store(known(id), sum(sum(offset, product(p, pageStride)), product(slot, slotStride)), r);
    });
  }
};

} // namespace

void Lowering::lowerPagedRows(tile::PagedRowsOp op) {
  Emit emit = emitAt(op);
  PagedRows addresses{emit, op, buffer(op.getRows())};
  if (op.getPage() % target.lanes == 0 && isMultiple(op.getKey(), target.lanes))
    addresses.byPage();
  else
    addresses.byRow();
}

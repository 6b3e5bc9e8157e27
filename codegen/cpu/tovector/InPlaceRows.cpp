// Which products read B where it lies, and the table of its rows' addresses.
#include "codegen/cpu/tovector/InPlaceRows.h"

#include "codegen/cpu/tovector/Lowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace llmopt;
using namespace llmopt::cpu;

namespace {

constexpr int64_t kBf16Lanes = 32; // of an AVX-512 register

/// The product that alone uses `load`, as its B, with nothing between that writes: the rows
/// are read later than the program says.
tile::MmaOp onlyProduct(tile::LoadOp load) {
  if (load.getStride() || load.getLimit() || !load->hasOneUse())
    return {};
  OpOperand &use = *load->use_begin();
  auto mma = dyn_cast<tile::MmaOp>(use.getOwner());
  if (!mma || use.getOperandNumber() != mma.getBMutable().getOperandNumber() ||
      mma->getBlock() != load->getBlock())
    return {};
  for (Operation *op = load->getNextNode(); op != mma; op = op->getNextNode())
    if (!isa_and_nonnull<tile::MapOp, tile::PrefetchOp>(op) && !isMemoryEffectFree(op) &&
        !hasSingleEffect<MemoryEffects::Read>(op))
      return {};
  return mma;
}

Type memoryType(tile::LoadOp load) {
  return cast<MemRefType>(load.getBase().getType()).getElementType();
}

} // namespace

int64_t llmopt::cpu::rowsOfSlice(tile::MmaOp mma) {
  return cast<RankedTensorType>(mma.getType()).getDimSize(0) / int64_t(mma.getSlices());
}

bool llmopt::cpu::takesRowPairs(tile::MmaOp mma, const CpuIsa &isa) {
  auto a = cast<RankedTensorType>(mma.getA().getType()), c = cast<RankedTensorType>(mma.getType());
  int64_t k = a.getDimSize(1), n = c.getDimSize(1);
  return isa.bf16Dot && a.getElementType().isBF16() && !hasColumnOrder(a) && !hasColumnOrder(c) &&
         rowsOfSlice(mma) <= kMostInPlaceRows &&
         (mma.getTransposeB() ? k % kBf16Lanes == 0 && n > 1 : k % 2 == 0 && n % kBf16Lanes == 0);
}

bool llmopt::cpu::takesRows(tile::MmaOp mma, const CpuIsa &isa) {
  auto load = mma.getB().getDefiningOp<tile::LoadOp>();
  if (!load || onlyProduct(load) != mma)
    return false;
  auto a = cast<RankedTensorType>(mma.getA().getType()), b = cast<RankedTensorType>(load.getType()),
       c = cast<RankedTensorType>(mma.getType());
  Type memory = memoryType(load);
  bool widens = memory.isF32() || memory.isBF16() || (memory.isF16() && isa.f16c);
  return widens && a.getElementType().isF32() && b.getElementType().isF32() && !hasColumnOrder(a) &&
         !hasColumnOrder(b) && !hasColumnOrder(c) && rowsOfSlice(mma) <= kMostInPlaceRows &&
         b.getDimSize(0) % isa.lanes == 0 && b.getDimSize(1) % isa.lanes == 0;
}

bool llmopt::cpu::splitsPairs(tile::MmaOp mma, const CpuIsa &isa) {
  auto load = mma.getB().getDefiningOp<tile::LoadOp>();
  return memoryType(load).isBF16() &&
         cast<RankedTensorType>(load.getType()).getDimSize(1) % (2 * isa.lanes) == 0;
}

bool llmopt::cpu::streamsRows(tile::LoadOp load, const CpuIsa &isa) {
  tile::MmaOp mma = onlyProduct(load);
  return mma && (takesRows(mma, isa) || (takesRowPairs(mma, isa) && memoryType(load).isBF16()));
}

/// Where each row of B lies: in memory, or in the tile's own place when it has one. Rows that
/// do not exist are rows of zeros.
Value Lowering::rowTable(tile::MmaOp op) {
  constexpr int64_t kEntries = 8;
  Emit emit = emitAt(op);
  auto type = cast<RankedTensorType>(op.getB().getType());
  int64_t rows = type.getDimSize(0), padded = llvm::alignTo(rows, kEntries),
          offset = plan.temporary(op, 0);
  Type i64 = emit.getI64Type();
  auto pointer = [&](Value memory) {
    Value index = memref::ExtractAlignedPointerAsIndexOp::create(emit, memory);
    return arith::IndexCastOp::create(emit, i64, index).getResult();
  };
  Value table = memoryAt(MemRefType::get({padded}, i64), offset);
  auto load = op.getB().getDefiningOp<tile::LoadOp>();
  if (!load || plan.hasPlace(load.getTile())) {
    Buffer b = buffer(op.getB());
    Value start = pointer(b.memory), step = emit.constant(i64, 2 * b.shape.inner);
    emit.loop(0, rows, 1, [&](Value r) {
      Value distance = arith::MulIOp::create(emit, arith::IndexCastOp::create(emit, i64, r), step);
      memref::StoreOp::create(emit, arith::AddIOp::create(emit, start, distance), table,
                              ValueRange{r});
    });
    return table;
  }
  Type element = memoryType(load);
  int64_t log2Bytes = element.getIntOrFloatBitWidth() == 32 ? 2 : 1, lanes = target.lanes,
          columns = llvm::alignTo(type.getDimSize(1), lanes);
  auto bytesOf = [&](Value elements) {
    Value shift = emit.constant(elements.getType(), log2Bytes);
    return arith::ShLIOp::create(emit, elements, shift).getResult();
  };
  Value zeros = memoryAt(MemRefType::get({columns}, element), offset + 8 * padded);
  Value nothing = emit.zero(emit.vec(lanes, element));
  for (int64_t c = 0; c < columns; c += lanes)
    vector::StoreOp::create(emit, nothing, zeros, ValueRange{emit.idx(c)});
  Value base = pointer(load.getBase());
  if (Value first = load.getFirst())
    base = arith::AddIOp::create(emit, base, bytesOf(arith::IndexCastOp::create(emit, i64, first)));
  Buffer addresses = buffer(load.getRows());
  int64_t slices = load.getApart() ? int64_t(load.getSlices()) : 1, named = rows / slices;
  // Slices of other sizes than whole vectors would run into the next one, and beyond the last.
  int64_t width = slices > 1 && named % kEntries ? 1 : kEntries;
  base = emit.splat(base, width);
  Value none = emit.splat(pointer(zeros), width), apart;
  if (slices > 1)
    apart = emit.splat(bytesOf(arith::IndexCastOp::create(emit, i64, load.getApart())), width);
  auto entries = [&](Value r, Value slice) {
    Value at = emit.loadVector(addresses, emit.idx(0), r, width);
    Value valid =
        arith::CmpIOp::create(emit, arith::CmpIPredicate::sge, at, emit.zero(at.getType()));
    Value place = arith::AddIOp::create(emit, base, bytesOf(at));
    Value entry = r;
    if (slices > 1) {
      Value further = emit.splat(arith::IndexCastOp::create(emit, i64, slice), width);
      place = arith::AddIOp::create(emit, place, arith::MulIOp::create(emit, further, apart));
      entry = emit.add(emit.mul(slice, emit.idx(named)), r);
    }
    vector::StoreOp::create(emit, arith::SelectOp::create(emit, valid, place, none), table,
                            ValueRange{entry});
  };
  emit.loop(0, slices, 1, [&](Value slice) {
    emit.loop(0, slices > 1 ? named : padded, width, [&](Value r) { entries(r, slice); });
  });
  return table;
}

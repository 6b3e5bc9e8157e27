// tile.prefetch: requests for rows, spread over the product that follows.
//
// Measured, decode of bf16, d = 128, pages of 16 in shuffled order, 16 sequences of 4096, two
// cores that read about 45 GB/s in a straight line: with the rows that the next trip really has
// 37, 29 and 27 GB/s (1, 4, 8 rows); with rows guessed from this tile's 25, 18 and 12.
//
// They go to the second cache: the next tile's K and V are 32 KiB, all of a first cache, and each
// request into that one holds one of its few places for misses until memory answers. Zen 4, two
// cores: 18, 16 and 14 GB/s into the first cache, 33, 24 and 22 into the second.
#include "codegen/cpu/tovector/Lowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace llmopt;
using namespace llmopt::cpu;

namespace {
constexpr int64_t kLine = 64;
} // namespace

void FetchAhead::lines(Emit &emit, Value r, Value from, int64_t count) const {
  int64_t perLine = kLine * 8 / cast<MemRefType>(base.getType()).getElementTypeBitWidth();
  Value zero = emit.idx(0), row = r;
  if (slices > 1)
    row = arith::DivUIOp::create(emit, r, emit.idx(slices));
  Value at = emit.loadElement(addresses, row, zero);
  // A row that is nowhere asks for the start of the base, which is there.
  Value offset = emit.maxIndex(arith::IndexCastOp::create(emit, emit.getIndexType(), at), zero);
  if (slices > 1)
    offset = emit.add(offset, emit.mul(arith::RemUIOp::create(emit, r, emit.idx(slices)), apart));
  offset = emit.add(offset, emit.mul(from, emit.idx(perLine)));
  for (int64_t line = 0; line < count; ++line)
    memref::PrefetchOp::create(emit, base, ValueRange{emit.add(offset, line * perLine)},
                               /*isWrite=*/false, /*localityHint=*/2, /*isDataCache=*/true);
}

void FetchAhead::acrossRows(Emit &emit, Value r, Value line, int64_t count) const {
  for (int64_t i = 0; i < count; ++i)
    lines(emit, emit.add(r, i * (rows / count)), line, 1);
}

void FetchAhead::part(Emit &emit, Value i, int64_t parts) const {
  int64_t bytes = cast<MemRefType>(base.getType()).getElementTypeBitWidth() / 8;
  int64_t perRow = llvm::divideCeil(columns * bytes, kLine),
          share = llvm::divideCeil(rows * perRow, parts);
  Value zero = emit.idx(0);
  if (spread && rows % share == 0 && parts * share == rows * perRow)
    return acrossRows(emit, arith::DivUIOp::create(emit, i, emit.idx(perRow)),
                      arith::RemUIOp::create(emit, i, emit.idx(perRow)), share);
  if (perRow % share == 0) { // a piece of one row
    int64_t pieces = perRow / share;
    Value r = arith::DivUIOp::create(emit, i, emit.idx(pieces));
    Value from = emit.mul(arith::RemUIOp::create(emit, i, emit.idx(pieces)), emit.idx(share));
    return lines(emit, emit.minIndex(r, emit.idx(rows - 1)), from, share);
  }
  int64_t whole = llvm::divideCeil(share, perRow);
  for (int64_t w = 0; w < whole; ++w) {
    Value r = emit.add(emit.mul(i, emit.idx(whole)), w);
    lines(emit, emit.minIndex(r, emit.idx(rows - 1)), zero, perRow);
  }
}

void FetchAhead::between(Emit &emit, Value i, int64_t blocks) const {
  int64_t parts = llvm::bit_floor(uint64_t(blocks));
  if (parts == blocks)
    return part(emit, i, parts);
  Value wanted = arith::CmpIOp::create(emit, arith::CmpIPredicate::ult, i, emit.idx(parts));
  emit.branch(wanted, [&] { part(emit, i, parts); }, [] {});
}

void FetchAhead::all(Emit &emit) const {
  emit.loop(0, rows, 1, [&](Value r) { part(emit, r, rows); });
}

FetchAhead Lowering::fetchOf(tile::PrefetchOp op) {
  auto type = cast<RankedTensorType>(op.getRows().getType());
  int64_t slices = op.getSlices();
  return {op.getBase(), buffer(op.getRows()), int64_t(op.getColumns()), type.getDimSize(0) * slices,
          slices,       op.getApart()};
}

std::optional<FetchAhead> Lowering::fetchBefore(tile::MmaOp mma) {
  auto prefetch = dyn_cast_or_null<tile::PrefetchOp>(mma->getPrevNode());
  return prefetch ? std::optional(fetchOf(prefetch)) : std::nullopt;
}

void Lowering::lowerPrefetch(tile::PrefetchOp op) {
  if (!isa_and_nonnull<tile::MmaOp>(op->getNextNode())) {
    Emit emit = emitAt(op);
    fetchOf(op).all(emit);
  }
}

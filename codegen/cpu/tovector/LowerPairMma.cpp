// tile.mma of bf16 by AVX512-BF16: two steps of k at once.
//
// vdpbf16ps adds the products of 32 pairs of bf16 to 16 sums in f32. Lanes run over rows,
// as in the f32 way by columns: A is kept in pairs of columns (TileShape::pairs), and one
// pair of B is broadcast. With `transpose_b` (K) the pairs of B are neighbours in its rows
// as they were loaded; otherwise (V) rows are packed two by two first, 1 % of the work.
#include "codegen/cpu/tovector/Lowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace llmopt;
using namespace llmopt::cpu;

Value llmopt::cpu::pairDot(Emit &emit, Value sum, Value a, Value b) {
  auto call = LLVM::CallIntrinsicOp::create(emit, sum.getType(),
                                            emit.getStringAttr("llvm.x86.avx512bf16.dpbf16ps.512"),
                                            ValueRange{sum, a, b});
  return call.getResult(0);
}

namespace {

constexpr int64_t kLanes = 16; // of the one instruction there is

/// Rows 2i and 2i + 1 of B side by side: element n of packed row i holds both.
void packRows(Emit &emit, const Buffer &b, Value packed) {
  Type words = emit.vec(kLanes, emit.getI32Type()), halves = emit.vec(kLanes, emit.getI16Type());
  auto widened = [&](Value row, Value column) {
    Value bits = arith::BitcastOp::create(emit, halves, emit.loadVector(b, row, column, kLanes));
    return arith::ExtUIOp::create(emit, words, bits).getResult();
  };
  emit.loop(0, b.shape.rows, 2, [&](Value row) {
    Value pair = emit.createOrFold<arith::ShRUIOp>(row, emit.idx(1));
    emit.loop(0, b.shape.inner, kLanes, [&](Value column) {
      Value low = widened(row, column), high = widened(emit.add(row, 1), column);
      Value moved = arith::ShLIOp::create(emit, high, emit.constant(words, 16));
      vector::StoreOp::create(emit, arith::OrIOp::create(emit, low, moved), packed,
                              ValueRange{pair, column});
    });
  });
}

struct PairMma {
  Emit &emit;
  const MmaOperands &mma;
  Value pairs; ///< B as i32: [n][k / 2], or packed [k / 2][n]

  Value broadcast(Value pair, Value n) {
    SmallVector<Value> at =
        mma.transposeB ? SmallVector<Value>{n, pair} : SmallVector<Value>{pair, n};
    Value word = memref::LoadOp::create(emit, pairs, at);
    return vector::BitCastOp::create(emit, emit.vec(2 * kLanes, emit.getBF16Type()),
                                     emit.splat(word, kLanes));
  }

  /// C[first + i][at..] for i < count, over all k; `vectors` registers wide.
  void block(Value first, Value at, int64_t vectors, int64_t count) {
    SmallVector<Value> sums;
    for (int64_t i = 0; i < count; ++i)
      for (int64_t v = 0; v < vectors; ++v)
        sums.push_back(mma.startVector(emit, emit.add(first, i), emit.add(at, v * kLanes), kLanes));
    sums = emit.loop(0, mma.k / 2, 1, sums, [&](Value pair, ValueRange carried) {
      SmallVector<Value> a, next;
      for (int64_t v = 0; v < vectors; ++v)
        a.push_back(emit.loadVector(mma.a, pair, emit.mul(emit.add(at, v * kLanes), emit.idx(2)),
                                    2 * kLanes));
      for (int64_t i = 0; i < count; ++i) {
        Value b = broadcast(pair, emit.add(first, i));
        for (int64_t v = 0; v < vectors; ++v)
          next.push_back(pairDot(emit, carried[i * vectors + v], a[v], b));
      }
      return next;
    });
    for (int64_t i = 0; i < count; ++i)
      for (int64_t v = 0; v < vectors; ++v)
        emit.storeVector(sums[i * vectors + v], mma.result, emit.add(first, i),
                         emit.add(at, v * kLanes));
  }

  void run() {
    int64_t inner = mma.result.shape.inner;
    RegisterBlock shape = chooseBlock(emit.target, inner, mma.n);
    int64_t blocks = mma.n / shape.count, whole = blocks * shape.count;
    emit.overLanes(mma.result, shape.width, [&](Value at) {
      Value panel = arith::DivUIOp::create(emit, at, emit.idx(shape.width));
      emit.loop(0, blocks, 1, [&](Value b) {
        if (mma.fetch)
          mma.fetch->between(emit, emit.add(emit.mul(panel, emit.idx(blocks)), b),
                             inner / shape.width * blocks);
        block(emit.mul(b, emit.idx(shape.count)), at, shape.width / kLanes, shape.count);
      });
      if (whole < mma.n)
        block(emit.idx(whole), at, shape.width / kLanes, mma.n - whole);
    });
  }
};

} // namespace

LogicalResult Lowering::lowerPairMma(tile::MmaOp op, MmaOperands mma) {
  const TileShape &a = mma.a.shape, &b = mma.b.shape, &c = mma.result.shape;
  if (!a.pairs || b.lanesOverRows || !c.lanesOverRows || mma.k % 2 != 0)
    return op.emitOpError()
           << "multiplies bf16 in a layout that the dot product does not take; run "
              "tile-cpu-promote and tile-cpu-assign-order first";
  Emit emit = emitAt(op);
  Type i32 = emit.getI32Type();
  Value pairs;
  if (mma.transposeB) {
    pairs = memoryAt(MemRefType::get({b.outer, b.inner / 2}, i32), plan.offset(op.getB()));
  } else {
    pairs = memoryAt(MemRefType::get({b.outer / 2, b.inner}, i32), plan.packedB(op));
    packRows(emit, mma.b, pairs);
  }
  PairMma{emit, mma, pairs}.run();
  return success();
}

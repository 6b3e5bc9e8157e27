// tile.mma as register-blocked loops of fused multiply-adds.
//
// A *block* is `count` accumulators, each a vector of several registers, that stay in
// registers over the whole k loop. Three ways, by layout:
//   by columns   lanes over m: C[n][m..] += B(k, n) * A[k][m..]; B is only broadcast, so
//                that K and V need no packing
//   by rows, B along n   lanes over n: C[m][n..] += A(m, k) * B[k][n..]
//   by rows, B along k   lanes over k and sums across them (LowerDot.cpp)
// Measured, AVX-512, f32: 64 lanes x 4..6 accumulators reach 87 % of the FMA peak;
// 64 x 8 spills and reaches 55 %.
#include "codegen/cpu/tovector/Lowering.h"

#include "codegen/cpu/tovector/ControlFlow.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace llmopt;
using namespace llmopt::cpu;

Value MmaOperands::elementB(Emit &emit, Value k, Value n) const {
  return transposeB ? emit.loadElement(b, n, k) : emit.loadElement(b, k, n);
}

bool MmaOperands::contiguousAlongN() const {
  // [row][column] runs along columns, lanes-over-rows along rows.
  return transposeB == b.shape.lanesOverRows;
}

namespace {

/// Sizes of a register block: `width` lanes (a multiple of the target's) by `count`.
struct Block {
  int64_t width, count;
};

/// Wide enough to use few loads, such that accumulators and operands fit the registers:
/// 24 of 32, or 12 of 16 (8 without FMA, whose products need registers too).
Block chooseBlock(const CpuIsa &isa, int64_t padded, int64_t count) {
  int64_t budget = isa.registers == 32 ? 24 : isa.fma ? 12 : 8;
  int64_t vectors = padded / isa.lanes, wide = 1;
  int64_t most = isa.registers == 32 ? (count < 3 ? 8 : 4) : (count < 3 ? 4 : 2);
  for (int64_t v = 1; v <= std::min(most, vectors); ++v)
    if (vectors % v == 0)
      wide = v;
  int64_t fit = std::max<int64_t>(1, std::min(budget / wide, count)), best = fit;
  // A divisor avoids a thin last block, unless it halves the block.
  for (int64_t c = fit; 2 * c > fit; --c)
    if (count % c == 0) {
      best = c;
      break;
    }
  return {wide * isa.lanes, best};
}

using ScalarAt = llvm::function_ref<Value(Value k, Value i)>;
using VectorAt = llvm::function_ref<Value(Value k)>;

/// C[first + i][at..] for i < count, over all k.
void emitBlock(Emit &emit, const MmaOperands &mma, int64_t width, int64_t count, Value first,
               Value at, ScalarAt scalar, VectorAt vector) {
  SmallVector<Value> sums;
  for (int64_t i = 0; i < count; ++i)
    sums.push_back(mma.startScalar
                       ? emit.splat(mma.startScalar, width)
                       : emit.loadVector(mma.start, emit.add(first, i), at, width));
  sums = emit.loop(0, mma.k, 1, sums, [&](Value k, ValueRange carried) {
    Value lanes = vector(k);
    SmallVector<Value> next;
    for (int64_t i = 0; i < count; ++i) {
      Value broadcast = emit.splat(scalar(k, emit.add(first, i)), width);
      next.push_back(emit.fma(broadcast, lanes, carried[i]));
    }
    return next;
  });
  for (int64_t i = 0; i < count; ++i)
    emit.storeVector(sums[i], mma.result, emit.add(first, i), at);
}

/// All blocks of an `outer` x `inner` result.
void emitBlocks(Emit &emit, const MmaOperands &mma, int64_t outer, ScalarAt scalar,
                llvm::function_ref<Value(Value k, Value at, int64_t width)> vector) {
  int64_t inner = mma.result.shape.inner;
  Block block = chooseBlock(emit.target, inner, outer);
  emit.loop(0, inner, block.width, [&](Value at) {
    auto lanes = [&](Value k) { return vector(k, at, block.width); };
    int64_t whole = outer / block.count * block.count;
    emit.loop(0, whole, block.count, [&](Value first) {
      emitBlock(emit, mma, block.width, block.count, first, at, scalar, lanes);
    });
    if (whole < outer)
      emitBlock(emit, mma, block.width, outer - whole, emit.idx(whole), at, scalar, lanes);
  });
}

void emitByColumns(Emit &emit, const MmaOperands &mma) {
  emitBlocks(
      emit, mma, mma.n, [&](Value k, Value n) { return mma.elementB(emit, k, n); },
      [&](Value k, Value at, int64_t width) { return emit.loadVector(mma.a, k, at, width); });
}

void emitByRows(Emit &emit, const MmaOperands &mma) {
  emitBlocks(
      emit, mma, mma.m, [&](Value k, Value m) { return emit.loadElement(mma.a, m, k); },
      [&](Value k, Value at, int64_t width) { return emit.loadVector(mma.b, k, at, width); });
}

/// Layouts that no fast way fits (a single column): right, and small where it happens.
void emitScalar(Emit &emit, const MmaOperands &mma) {
  emit.loop(0, mma.m, 1, [&](Value m) {
    emit.loop(0, mma.n, 1, [&](Value n) {
      Value start = mma.startScalar ? mma.startScalar : emit.loadElement(mma.start, m, n);
      auto sum = emit.loop(0, mma.k, 1, ValueRange{start}, [&](Value k, ValueRange carried) {
        Value product = emit.fma(emit.loadElement(mma.a, m, k), mma.elementB(emit, k, n), carried[0]);
        return SmallVector<Value>{product};
      });
      emit.storeElement(sum[0], mma.result, m, n);
    });
  });
}

} // namespace

LogicalResult Lowering::lowerMma(tile::MmaOp op) {
  auto a = cast<RankedTensorType>(op.getA().getType());
  if (!a.getElementType().isF32())
    return op.emitOpError() << "multiplies " << a.getElementType()
                            << "; this CPU multiplies f32 here, run tile-cpu-promote first";
  Emit emit = emitAt(op);
  MmaOperands mma;
  mma.a = buffer(op.getA());
  mma.b = buffer(op.getB());
  mma.result = buffer(op.getResult());
  mma.transposeB = op.getTransposeB();
  mma.m = mma.result.shape.rows;
  mma.n = mma.result.shape.columns;
  mma.k = a.getDimSize(1);
  DenseElementsAttr splat;
  if (isSplat(op.getC()) && matchPattern(op.getC(), m_Constant(&splat)))
    mma.startScalar = arith::ConstantOp::create(emit, cast<TypedAttr>(splat.getSplatValue<Attribute>()));
  else
    mma.start = buffer(op.getC());

  bool columnsA = mma.a.shape.lanesOverRows, columnsC = mma.result.shape.lanesOverRows;
  if (columnsC && columnsA)
    emitByColumns(emit, mma);
  else if (!columnsC && mma.contiguousAlongN())
    emitByRows(emit, mma);
  else if (!columnsC && !columnsA && !mma.contiguousAlongN())
    emitDotProduct(emit, mma);
  else
    emitScalar(emit, mma);
  return success();
}

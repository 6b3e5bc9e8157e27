// tile.mma as register-blocked loops of fused multiply-adds.
//
// A *block* is `count` accumulators, each a vector of several registers, that stay in
// registers over the whole k loop. Three ways, by layout:
//   by columns   lanes over m: C[n][m..] += B(k, n) * A[k][m..]; B is only broadcast, so
//                that K and V need no packing
//   by rows, B along n   lanes over n: C[m][n..] += A(m, k) * B[k][n..]
//   by rows, B along k   lanes over k and sums across them (LowerDot.cpp)
// With few rows, B is read where it lies in memory (InPlaceRows.h).
// Measured, AVX-512, f32: 64 lanes x 4..6 accumulators reach 87 % of the FMA peak;
// 64 x 8 spills and reaches 55 %.
#include "codegen/cpu/tovector/Lowering.h"

#include "codegen/cpu/tovector/ControlFlow.h"
#include "codegen/cpu/tovector/InPlaceRows.h"

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

Value MmaOperands::startVector(Emit &emit, Value outer, Value inner, int64_t width) const {
  if (startScalar)
    return emit.splat(startScalar, width);
  Value value = emit.loadVector(start, outer, inner, width);
  if (!rowScale)
    return value;
  Value factor = result.shape.lanesOverRows
                     ? emit.loadVector(*rowScale, emit.idx(0), inner, width)
                     : emit.splat(emit.loadElement(*rowScale, outer, emit.idx(0)), width);
  return arith::MulFOp::create(emit, value, factor);
}

/// Wide enough to use few loads, such that accumulators and operands fit the registers:
/// 24 of 32, or 12 of 16 (8 without FMA, whose products need registers too).
RegisterBlock llmopt::cpu::chooseBlock(const CpuIsa &isa, int64_t padded, int64_t count) {
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

namespace {

using ScalarAt = llvm::function_ref<Value(Value k, Value i)>;
using VectorAt = llvm::function_ref<Value(Value k)>;
/// What is done before block `block` of `blocks`.
using Between = llvm::function_ref<void(Value block, int64_t blocks)>;

/// C[first + i][at..] for i < count, over `depth` steps of k.
void emitBlock(Emit &emit, const MmaOperands &mma, int64_t width, int64_t count, Value first,
               Value at, int64_t depth, ScalarAt scalar, VectorAt vector) {
  SmallVector<Value> sums;
  for (int64_t i = 0; i < count; ++i)
    sums.push_back(mma.startVector(emit, emit.add(first, i), at, width));
  sums = emit.loop(0, depth, 1, sums, [&](Value k, ValueRange carried) {
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

/// All blocks of an `outer` x `inner` result; `between` is called before each, the last ones of
/// `outer` that are fewer than a block's excepted.
void emitBlocks(Emit &emit, const MmaOperands &mma, int64_t outer, int64_t depth, ScalarAt scalar,
                llvm::function_ref<Value(Value k, Value at, int64_t width)> vector,
                Between between = nullptr) {
  int64_t inner = mma.result.shape.inner;
  RegisterBlock block = chooseBlock(emit.target, inner, outer);
  int64_t blocks = outer / block.count, whole = blocks * block.count;
  emit.overLanes(mma.result, block.width, [&](Value at) {
    auto lanes = [&](Value k) { return vector(k, at, block.width); };
    emit.loop(0, whole, block.count, [&](Value first) {
      if (between) {
        auto number = [&](Value at, int64_t step) {
          return arith::DivUIOp::create(emit, at, emit.idx(step)).getResult();
        };
        Value before = emit.mul(number(at, block.width), emit.idx(blocks));
        between(emit.add(before, number(first, block.count)), inner / block.width * blocks);
      }
      emitBlock(emit, mma, block.width, block.count, first, at, depth, scalar, lanes);
    });
    if (whole < outer)
      emitBlock(emit, mma, block.width, outer - whole, emit.idx(whole), at, depth, scalar, lanes);
  });
}

/// A panel of A (k x 64 lanes) is read once for each block of n: it must stay in the first
/// level (48 KiB) beside as much of B and C. 64 steps are 16 KiB; at d = 128 without this,
/// half the time went to the second level.
constexpr int64_t kDepth = 64;

void emitByColumns(Emit &emit, MmaOperands mma) {
  int64_t passes = std::max<int64_t>(1, mma.k / kDepth);
  auto blocks = [&](int64_t depth, Value k0) {
    Value pass = arith::DivUIOp::create(emit, k0, emit.idx(kDepth));
    emitBlocks(
        emit, mma, mma.n, depth,
        [&](Value k, Value n) { return mma.elementB(emit, emit.add(k0, k), n); },
        [&](Value k, Value at, int64_t width) {
          return emit.loadVector(mma.a, emit.add(k0, k), at, width);
        },
        [&](Value block, int64_t count) {
          if (mma.fetch)
            mma.fetch->between(emit, emit.add(emit.mul(pass, emit.idx(count)), block),
                               passes * count);
        });
  };
  if (mma.k < 2 * kDepth || mma.rowScale)
    return blocks(mma.k, emit.idx(0));
  if (mma.startScalar)
    emit.fill(mma.result, mma.startScalar);
  else if (mma.start.memory != mma.result.memory)
    emit.copy(mma.start, mma.result);
  mma.startScalar = {};
  mma.start = mma.result;
  int64_t whole = mma.k / kDepth * kDepth;
  emit.loop(0, whole, kDepth, [&](Value k0) { blocks(kDepth, k0); });
  if (whole < mma.k)
    blocks(mma.k - whole, emit.idx(whole));
}

void emitByRows(Emit &emit, const MmaOperands &mma) {
  if (mma.fetch)
    mma.fetch->all(emit);
  emitBlocks(
      emit, mma, mma.m, mma.k, [&](Value k, Value m) { return emit.loadElement(mma.a, m, k); },
      [&](Value k, Value at, int64_t width) { return emit.loadVector(mma.b, k, at, width); });
}

/// Layouts that no fast way fits (a single column): right, and small where it happens.
void emitScalar(Emit &emit, const MmaOperands &mma) {
  emit.loop(0, mma.m, 1, [&](Value m) {
    emit.loop(0, mma.n, 1, [&](Value n) {
      Value start = mma.startScalar ? mma.startScalar : emit.loadElement(mma.start, m, n);
      if (mma.rowScale)
        start = arith::MulFOp::create(emit, start, emit.loadElement(*mma.rowScale, m, emit.idx(0)));
      auto sum = emit.loop(0, mma.k, 1, ValueRange{start}, [&](Value k, ValueRange carried) {
        Value product =
            emit.fma(emit.loadElement(mma.a, m, k), mma.elementB(emit, k, n), carried[0]);
        return SmallVector<Value>{product};
      });
      emit.storeElement(sum[0], mma.result, m, n);
    });
  });
}

} // namespace

/// Rows of slice `slice` of a tile by rows, or of a column.
Buffer Lowering::sliceOf(Value tile, int64_t slice, int64_t slices) {
  auto type = cast<RankedTensorType>(tile.getType());
  int64_t rows = type.getDimSize(0) / slices;
  TileShape whole = TileShape::get(type, target);
  TileShape part = TileShape::get(
      RankedTensorType::get({rows, type.getDimSize(1)}, type.getElementType()), target);
  int64_t elements = slice * rows;
  if (whole.lanesOverRows)
    part.inner = rows;
  else
    elements *= whole.inner;
  int64_t bytes = elements * part.element.getIntOrFloatBitWidth() / 8;
  return {
      memoryAt(MemRefType::get({part.outer, part.inner}, part.element), plan.offset(tile) + bytes),
      part};
}

LogicalResult Lowering::lowerMma(tile::MmaOp op) {
  auto a = cast<RankedTensorType>(op.getA().getType());
  bool pairs = a.getElementType().isBF16() && target.bf16Dot;
  if (!a.getElementType().isF32() && !pairs)
    return op.emitOpError() << "multiplies " << a.getElementType()
                            << "; this CPU multiplies f32 here, run tile-cpu-promote first";
  Emit emit = emitAt(op);
  MmaOperands mma;
  mma.a = buffer(op.getA());
  bool rowPairs = takesRowPairs(op, target), inPlace = !plan.hasPlace(op.getB());
  if (!rowPairs && !inPlace)
    mma.b = buffer(op.getB());
  mma.result = buffer(op.getResult());
  mma.transposeB = op.getTransposeB();
  mma.m = mma.result.shape.rows;
  mma.n = mma.result.shape.columns;
  mma.k = a.getDimSize(1);
  mma.slices = op.getSlices();
  mma.fetch = fetchBefore(op);
  DenseElementsAttr splat;
  if (isSplat(op.getC()) && matchPattern(op.getC(), m_Constant(&splat)))
    mma.startScalar =
        arith::ConstantOp::create(emit, cast<TypedAttr>(splat.getSplatValue<Attribute>()));
  else if (tile::MapOp scale = rowScaleOf(op)) {
    mma.start = buffer(scale.getInputs()[0]);
    mma.rowScale = buffer(scale.getInputs()[1]);
  } else {
    mma.start = buffer(op.getC());
  }

  if (rowPairs)
    return lowerRowPairs(op, mma), success();
  if (inPlace)
    return lowerRows(op, mma), success();
  if (mma.slices == 1)
    return lowerAnyMma(op, mma);
  // Each slice is a product of its own.
  if (mma.a.shape.lanesOverRows || mma.result.shape.lanesOverRows || pairs)
    return op.emitOpError() << "has " << mma.slices
                            << " slices of tiles by columns; the CPU target takes tiles by rows";
  if (mma.fetch)
    mma.fetch->all(emit);
  int64_t slices = mma.slices;
  mma.fetch.reset();
  mma.m /= slices, mma.slices = 1;
  tile::MapOp scale = mma.rowScale ? rowScaleOf(op) : tile::MapOp();
  for (int64_t slice = 0; slice < slices; ++slice) {
    mma.a = sliceOf(op.getA(), slice, slices);
    mma.b = sliceOf(op.getB(), slice, slices);
    mma.result = sliceOf(op.getResult(), slice, slices);
    if (!mma.startScalar)
      mma.start = sliceOf(scale ? scale.getInputs()[0] : op.getC(), slice, slices);
    if (scale)
      mma.rowScale = sliceOf(scale.getInputs()[1], slice, slices);
    if (failed(lowerAnyMma(op, mma)))
      return failure();
  }
  return success();
}

LogicalResult Lowering::lowerAnyMma(tile::MmaOp op, const MmaOperands &mma) {
  Emit emit = emitAt(op);
  if (cast<RankedTensorType>(op.getA().getType()).getElementType().isBF16())
    return lowerPairMma(op, mma);
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

// Few rows times rows of B: lanes along k, and horizontal sums of many vectors at once.
//
// Scores of decode: K's rows are contiguous along d. For one row of A, `lanes` rows of B
// are summed side by side, each in its own accumulator; a tree then adds the lanes of all
// of them at once: 15 additions and 30 shuffles for 16 sums, against 64 + 64 one by one.
#include "codegen/cpu/tovector/Lowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace llmopt::cpu;

SmallVector<Value> llmopt::cpu::foldLanes(Emit &emit, ArrayRef<Value> parts, int64_t distance) {
  int64_t lanes = cast<VectorType>(parts.front().getType()).getNumElements();
  SmallVector<int64_t> own(lanes), partner(lanes);
  for (int64_t lane = 0; lane < lanes; ++lane) {
    int64_t from = lane & distance ? lanes : 0;
    own[lane] = from + lane;
    partner[lane] = from + (lane ^ distance);
  }
  SmallVector<Value> sums;
  for (size_t i = 0, half = parts.size() / 2; i < half; ++i) {
    Value a = vector::ShuffleOp::create(emit, parts[i], parts[i + half], own);
    Value b = vector::ShuffleOp::create(emit, parts[i], parts[i + half], partner);
    sums.push_back(arith::AddFOp::create(emit, a, b));
  }
  return sums;
}

Value llmopt::cpu::transposingSum(Emit &emit, SmallVector<Value> parts, int64_t lanes) {
  parts.resize(lanes, emit.zero(parts.front().getType()));
  for (int64_t distance = lanes / 2; distance > 0; distance /= 2)
    parts = foldLanes(emit, parts, distance);
  return parts.front();
}

namespace {

/// Products of row m of A with `count` rows of B from n on, summed over k.
void emitGroup(Emit &emit, const MmaOperands &mma, Value m, Value n, int64_t count) {
  int64_t lanes = emit.target.lanes, whole = mma.k / lanes * lanes;
  Type vector = emit.vec(lanes, emit.getF32Type());
  SmallVector<Value> sums(count, emit.zero(vector));
  auto step = [&](Value k, ValueRange carried, Value mask) {
    Value zero = emit.zero(vector);
    auto clean = [&](Value value) {
      return mask ? Value(arith::SelectOp::create(emit, mask, value, zero)) : value;
    };
    Value a = clean(emit.loadVector(mma.a, m, k, lanes));
    SmallVector<Value> next;
    for (int64_t i = 0; i < count; ++i)
      next.push_back(
          emit.fma(a, clean(emit.loadVector(mma.b, emit.add(n, i), k, lanes)), carried[i]));
    return next;
  };
  sums = emit.loop(0, whole, lanes, sums,
                   [&](Value k, ValueRange carried) { return step(k, carried, {}); });
  if (whole < mma.k) {
    // The padding of a row may hold anything: it must not enter the sum.
    SmallVector<bool> inside(lanes);
    for (int64_t i = 0; i < lanes; ++i)
      inside[i] = whole + i < mma.k;
    Value mask = arith::ConstantOp::create(
        emit, DenseElementsAttr::get(emit.vec(lanes, emit.getI1Type()), ArrayRef<bool>(inside)));
    sums = step(emit.idx(whole), sums, mask);
  }
  Value total = transposingSum(emit, sums, lanes);
  // C is padded to whole vectors, so a full store stays inside its row.
  Value start = mma.startVector(emit, m, n, lanes);
  emit.storeVector(arith::AddFOp::create(emit, start, total), mma.result, m, n);
}

} // namespace

void llmopt::cpu::emitDotProduct(Emit &emit, const MmaOperands &mma) {
  int64_t lanes = emit.target.lanes, groups = mma.n / lanes, whole = groups * lanes;
  // Rows of A inside: the group of B's rows stays in the first-level cache.
  auto group = [&](Value n, int64_t count) {
    emit.loop(0, mma.m, 1, [&](Value m) { emitGroup(emit, mma, m, n, count); });
  };
  emit.loop(0, groups, 1, [&](Value g) {
    if (mma.fetch)
      mma.fetch->part(emit, g, groups);
    group(emit.mul(g, emit.idx(lanes)), lanes);
  });
  if (whole < mma.n)
    group(emit.idx(whole), mma.n - whole);
}

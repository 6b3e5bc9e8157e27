// tile.mma of bf16 with few rows by AVX512-BF16, B read where it lies in memory.
//
// Decode must keep up with memory. Measured, d = 128, data in the second-level cache: K and
// V staged as f32 gave 26 GB/s with 4 rows and 15 GB/s with 8, of 34 GB/s that memory gives.
// Here a table of row pointers takes the place of the tile; absent rows point at zeros.
//   S = Q K^T   lanes along d: 16 rows of K side by side, then one transposing sum
//   O += P V    lanes along d: two rows of V interleaved in registers, times a pair of P
#include "codegen/cpu/tovector/Lowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace llmopt;
using namespace llmopt::cpu;

namespace {

constexpr int64_t kLanes = 16, kPairs = 32; // f32 and bf16 elements of a register

struct RowPairMma {
  Emit &emit;
  const MmaOperands &mma;
  Value table; ///< address of each row of B
  Value pairs; ///< A as i32: [m][k / 2]

  /// 32 elements of a row of B.
  Value load(Value pointer, Value column, int64_t more = 0) {
    Type i64 = emit.getI64Type(), pointerType = LLVM::LLVMPointerType::get(emit.getContext());
    Value at = LLVM::IntToPtrOp::create(emit, pointerType, pointer);
    Value index = arith::IndexCastOp::create(emit, i64, column);
    at = LLVM::GEPOp::create(emit, pointerType, emit.getI16Type(), at,
                             ArrayRef<LLVM::GEPArg>{index});
    if (more)
      at = LLVM::GEPOp::create(emit, pointerType, emit.getI16Type(), at,
                               ArrayRef<LLVM::GEPArg>{int32_t(more)});
    return LLVM::LoadOp::create(emit, emit.vec(kPairs, emit.getBF16Type()), at, /*alignment=*/2);
  }
  Value row(Value r) { return memref::LoadOp::create(emit, table, ValueRange{r}); }

  /// Scores of `high` rows from m on with `wide` rows of B from n on; their product is at most
  /// kLanes. A step of k goes through all sums before the next, so that each has time to finish.
  void scores(Value m, int64_t high, Value n, int64_t wide) {
    int64_t steps = mma.k / kPairs, unroll = steps % 4 == 0 ? 4 : steps % 2 == 0 ? 2 : 1;
    SmallVector<Value> sums(high * wide, emit.zero(emit.vec(kLanes, emit.getF32Type()))), pointers;
    for (int64_t i = 0; i < wide; ++i)
      pointers.push_back(row(emit.add(n, i)));
    sums = emit.loop(0, mma.k, unroll * kPairs, sums, [&](Value k, ValueRange carried) {
      SmallVector<Value> next(carried);
      for (int64_t u = 0; u < unroll; ++u) {
        SmallVector<Value> a;
        for (int64_t j = 0; j < high; ++j)
          a.push_back(emit.loadVector(mma.a, emit.add(m, j), emit.add(k, u * kPairs), kPairs));
        for (int64_t i = 0; i < wide; ++i) {
          Value b = load(pointers[i], k, u * kPairs);
          for (int64_t j = 0; j < high; ++j)
            next[j * wide + i] = pairDot(emit, next[j * wide + i], a[j], b);
        }
      }
      return next;
    });
    Value total = transposingSum(emit, sums, kLanes);
    for (int64_t j = 0; j < high; ++j) {
      Value at = emit.add(m, j), start = mma.startVector(emit, at, n, kLanes / high), sum = total;
      if (high > 1)
        sum = vector::ShuffleOp::create(
            emit, total, total, llvm::to_vector(llvm::seq<int64_t>(j * wide, (j + 1) * wide)));
      emit.storeVector(arith::AddFOp::create(emit, start, sum), mma.result, at, n);
    }
  }

  /// Two rows of A share what is loaded of B. Measured (attention-bench --tiles "bf16 d128 8 rows")
  /// on an Emerald Rapids core: 4.1 instead of 4.3 us a tile in a cache, 4.3 instead of 4.9 in
  /// memory.
  void allScores() {
    int64_t high = mma.m % 2 == 0 && mma.n % (kLanes / 2) == 0 ? 2 : 1, wide = kLanes / high;
    int64_t whole = mma.n / wide, bands = mma.m / high;
    emit.loop(0, whole, 1, [&](Value group) {
      Value n = emit.mul(group, emit.idx(wide));
      emit.loop(0, bands, 1, [&](Value band) {
        if (mma.fetch)
          mma.fetch->part(emit, emit.add(emit.mul(group, emit.idx(bands)), band), whole * bands);
        scores(emit.mul(band, emit.idx(high)), high, n, wide);
      });
    });
    if (whole * wide < mma.n)
      emit.loop(0, mma.m, 1,
                [&](Value m) { scores(m, 1, emit.idx(whole * wide), mma.n - whole * wide); });
  }

  /// Elements 2i of `a` and `b`, from a half of each, side by side.
  Value interleave(Value a, Value b, int64_t from) {
    SmallVector<int64_t> order;
    for (int64_t i = 0; i < kLanes; ++i)
      order.append({from + i, from + i + kPairs});
    return vector::ShuffleOp::create(emit, a, b, order);
  }

  /// All rows of C, `chunks` * 32 columns: pass `pass` of `passes`.
  void columns(Value pass, int64_t passes, int64_t chunks) {
    int64_t vectors = 2 * chunks, trips = mma.k / 2;
    Value at = emit.mul(pass, emit.idx(chunks * kPairs));
    SmallVector<Value> sums;
    auto column = [&](int64_t v) { return emit.add(at, v * kLanes); };
    for (int64_t m = 0; m < mma.m; ++m)
      for (int64_t v = 0; v < vectors; ++v)
        sums.push_back(mma.startVector(emit, emit.idx(m), column(v), kLanes));
    sums = emit.loop(0, trips, 1, sums, [&](Value pair, ValueRange carried) {
      Value even = emit.mul(pair, emit.idx(2)), odd = emit.add(even, 1);
      if (mma.fetch)
        mma.fetch->part(emit, emit.add(emit.mul(pass, emit.idx(trips)), pair), passes * trips);
      SmallVector<Value> b, next;
      Value first = row(even), second = row(odd);
      for (int64_t c = 0; c < chunks; ++c) {
        Value x = load(first, at, c * kPairs), y = load(second, at, c * kPairs);
        b.push_back(interleave(x, y, 0));
        b.push_back(interleave(x, y, kLanes));
      }
      for (int64_t m = 0; m < mma.m; ++m) {
        Value word = memref::LoadOp::create(emit, pairs, ValueRange{emit.idx(m), pair});
        Value p = vector::BitCastOp::create(emit, emit.vec(kPairs, emit.getBF16Type()),
                                            emit.splat(word, kLanes));
        for (int64_t v = 0; v < vectors; ++v)
          next.push_back(pairDot(emit, carried[m * vectors + v], b[v], p));
      }
      return next;
    });
    for (int64_t m = 0; m < mma.m; ++m)
      for (int64_t v = 0; v < vectors; ++v)
        emit.storeVector(sums[m * vectors + v], mma.result, emit.idx(m), column(v));
  }

  void allColumns() {
    // 24 of 32 registers are accumulators.
    int64_t chunks = mma.n / kPairs, together = 1;
    for (int64_t c : {2, 4})
      if (chunks % c == 0 && mma.m * 2 * c <= 24)
        together = c;
    int64_t passes = chunks / together;
    emit.loop(0, passes, 1, [&](Value pass) { columns(pass, passes, together); });
  }
};

} // namespace

void Lowering::lowerRowPairs(tile::MmaOp op, MmaOperands mma) {
  Emit emit = emitAt(op);
  const TileShape &a = mma.a.shape;
  Value pairs =
      memoryAt(MemRefType::get({a.outer, a.inner / 2}, emit.getI32Type()), plan.offset(op.getA()));
  RowPairMma product{emit, mma, rowTable(op), pairs};
  if (mma.transposeB)
    product.allScores();
  else
    product.allColumns();
}

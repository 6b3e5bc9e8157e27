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
/// Rows of B that all slices of O += P V go through before the next ones.
constexpr int64_t kDepth = 16;
/// With one slice: rows of V ahead that are asked for in the first cache, in the columns of the
/// pass. Measured on Zen 4, GQA 8:1: 8 % more GB/s; 8 and 32 rows ahead less.
constexpr int64_t kNear = 16;

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

  /// Asks for `lines` times 32 elements of a row of B in the first cache.
  void bringNear(Value pointer, Value column, int64_t lines) {
    Type i64 = emit.getI64Type(), pointerType = LLVM::LLVMPointerType::get(emit.getContext());
    Value at = LLVM::IntToPtrOp::create(emit, pointerType, pointer);
    Value index = arith::IndexCastOp::create(emit, i64, column);
    at = LLVM::GEPOp::create(emit, pointerType, emit.getI16Type(), at,
                             ArrayRef<LLVM::GEPArg>{index});
    for (int64_t line = 0; line < lines; ++line) {
      Value place = LLVM::GEPOp::create(emit, pointerType, emit.getI16Type(), at,
                                        ArrayRef<LLVM::GEPArg>{int32_t(line * kPairs)});
      LLVM::Prefetch::create(emit, place, /*rw=*/0, /*hint=*/3, /*cache=*/1);
    }
  }

  int64_t own = mma.m / mma.slices; ///< rows of A that meet the same part of B

  /// Scores of `high` rows from m on with `wide` rows of B from n of a part on, which begins at
  /// row `part`; their product is at most kLanes. A step of k goes through all sums before the
  /// next, so that each has time to finish.
  void scores(Value m, int64_t high, Value part, Value n, int64_t wide) {
    int64_t steps = mma.k / kPairs, unroll = steps % 4 == 0 ? 4 : steps % 2 == 0 ? 2 : 1;
    SmallVector<Value> sums(high * wide, emit.zero(emit.vec(kLanes, emit.getF32Type()))), pointers;
    for (int64_t i = 0; i < wide; ++i)
      pointers.push_back(row(emit.add(emit.add(part, n), i)));
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
    int64_t high = own % 2 == 0 && mma.n % (kLanes / 2) == 0 ? 2 : 1, wide = kLanes / high;
    int64_t whole = mma.n / wide, bands = own / high;
    emit.loop(0, whole, 1, [&](Value group) {
      Value n = emit.mul(group, emit.idx(wide));
      emit.loop(0, mma.slices, 1, [&](Value slice) {
        Value turn = emit.add(emit.mul(group, emit.idx(mma.slices)), slice);
        emit.loop(0, bands, 1, [&](Value band) {
          if (mma.fetch)
            mma.fetch->part(emit, emit.add(emit.mul(turn, emit.idx(bands)), band),
                            whole * mma.slices * bands);
          Value m = emit.add(emit.mul(slice, emit.idx(own)), emit.mul(band, emit.idx(high)));
          scores(m, high, emit.mul(slice, emit.idx(mma.n)), n, wide);
        });
      });
    });
    if (whole * wide < mma.n)
      emit.loop(0, mma.m, 1, [&](Value m) {
        Value slice = arith::DivUIOp::create(emit, m, emit.idx(own));
        scores(m, 1, emit.mul(slice, emit.idx(mma.n)), emit.idx(whole * wide),
               mma.n - whole * wide);
      });
  }

  /// Elements 2i of `a` and `b`, from a half of each, side by side.
  Value interleave(Value a, Value b, int64_t from) {
    SmallVector<int64_t> order;
    for (int64_t i = 0; i < kLanes; ++i)
      order.append({from + i, from + i + kPairs});
    return vector::ShuffleOp::create(emit, a, b, order);
  }

  /// Asks for what the next slice takes of B, in the first cache: part `call` of all parts that
  /// all slices of all blocks of `depth` rows ask for, `calls` each.
  void bringNext(Value call, int64_t calls, int64_t depth) {
    int64_t chunks = mma.n / kPairs, lines = depth * chunks / calls,
            last = mma.k / depth * mma.slices - 1;
    Value place = arith::DivUIOp::create(emit, call, emit.idx(calls));
    place = emit.minIndex(emit.add(place, 1), emit.idx(last));
    Value block = arith::DivUIOp::create(emit, place, emit.idx(mma.slices)),
          slice = arith::RemUIOp::create(emit, place, emit.idx(mma.slices)),
          part = arith::RemUIOp::create(emit, call, emit.idx(calls));
    Value first = emit.add(emit.mul(slice, emit.idx(mma.k)), emit.mul(block, emit.idx(depth)));
    // A part of a row, or some; a part may end in the row beside, which does no harm.
    Value line = emit.mul(part, emit.idx(lines)),
          r = emit.add(first, arith::DivUIOp::create(emit, line, emit.idx(chunks))),
          chunk = lines < chunks ? arith::RemUIOp::create(emit, line, emit.idx(chunks)).getResult()
                                 : emit.idx(0);
    for (int64_t i = 0; i < lines; i += chunks)
      bringNear(row(emit.add(r, i / chunks)), emit.mul(chunk, emit.idx(kPairs)),
                std::min(lines, chunks));
  }

  /// Adds to all rows of a slice of C, in `chunks` * 32 columns from `at` on, `depth` rows of its
  /// part of B from k0 on. Requests ahead are shared by `turns` such calls, this being `turn`.
  void columns(Value slice, Value at, int64_t chunks, Value k0, int64_t depth, Value turn,
               int64_t turns) {
    int64_t vectors = 2 * chunks, trips = depth / 2, calls = turns * trips;
    SmallVector<Value> sums;
    Value m0 = emit.mul(slice, emit.idx(own)), part = emit.mul(slice, emit.idx(mma.k));
    auto column = [&](int64_t v) { return emit.add(at, v * kLanes); };
    for (int64_t m = 0; m < own; ++m)
      for (int64_t v = 0; v < vectors; ++v)
        sums.push_back(mma.slices == 1
                           ? mma.startVector(emit, emit.add(m0, m), column(v), kLanes)
                           : emit.loadVector(mma.result, emit.add(m0, m), column(v), kLanes));
    sums = emit.loop(0, trips, 1, sums, [&](Value trip, ValueRange carried) {
      Value even = emit.add(k0, emit.mul(trip, emit.idx(2)));
      Value call = emit.add(emit.mul(turn, emit.idx(trips)), trip);
      if (mma.fetch)
        mma.fetch->part(emit, call, calls);
      if (mma.slices > 1)
        bringNext(call, calls / (mma.slices * mma.k / depth), depth);
      else if (own > 1) // measured: one row is no faster with it
        for (int64_t i = 0; i < 2; ++i)
          bringNear(row(emit.minIndex(emit.add(even, kNear + i), emit.idx(mma.k - 1))), at, chunks);
      SmallVector<Value> b, next;
      Value x0 = row(emit.add(part, even)), y0 = row(emit.add(emit.add(part, even), 1));
      for (int64_t c = 0; c < chunks; ++c) {
        Value x = load(x0, at, c * kPairs), y = load(y0, at, c * kPairs);
        b.push_back(interleave(x, y, 0));
        b.push_back(interleave(x, y, kLanes));
      }
      Value pair = arith::DivUIOp::create(emit, even, emit.idx(2));
      for (int64_t m = 0; m < own; ++m) {
        Value word = memref::LoadOp::create(emit, pairs, ValueRange{emit.add(m0, m), pair});
        Value p = vector::BitCastOp::create(emit, emit.vec(kPairs, emit.getBF16Type()),
                                            emit.splat(word, kLanes));
        for (int64_t v = 0; v < vectors; ++v)
          next.push_back(pairDot(emit, carried[m * vectors + v], b[v], p));
      }
      return next;
    });
    for (int64_t m = 0; m < own; ++m)
      for (int64_t v = 0; v < vectors; ++v)
        emit.storeVector(sums[m * vectors + v], mma.result, emit.add(m0, m), column(v));
  }

  /// With one slice, a pass over all of B for some columns of C, whose sums stay in registers. With
  /// several, all slices take what they need of some rows of B before the next rows: slices lie
  /// side by side, and memory is read in the order in which it lies. Measured on Zen 4, decode of
  /// GQA 8:1 and 4:1, d = 128, 4 heads: 11 to 15 GB/s a core, two cores 20 and 22 to 22 and 29.
  void allColumns() {
    // 24 of 32 registers are accumulators.
    int64_t chunks = mma.n / kPairs, together = 1;
    for (int64_t c : {2, 4})
      if (chunks % c == 0 && own * 2 * c <= 24)
        together = c;
    int64_t passes = chunks / together, depth = mma.k;
    if (mma.slices > 1) {
      if (mma.k % kDepth == 0)
        depth = kDepth;
      emit.loop(0, mma.m, 1, [&](Value m) {
        emit.loop(0, mma.n, kLanes, [&](Value n) {
          emit.storeVector(mma.startVector(emit, m, n, kLanes), mma.result, m, n);
        });
      });
    }
    int64_t blocks = mma.k / depth, turns = blocks * mma.slices * passes;
    emit.loop(0, blocks, 1, [&](Value block) {
      emit.loop(0, mma.slices, 1, [&](Value slice) {
        emit.loop(0, passes, 1, [&](Value pass) {
          Value turn = emit.add(emit.mul(block, emit.idx(mma.slices)), slice);
          turn = emit.add(emit.mul(turn, emit.idx(passes)), pass);
          columns(slice, emit.mul(pass, emit.idx(together * kPairs)), together,
                  emit.mul(block, emit.idx(depth)), depth, turn, turns);
        });
      });
    });
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

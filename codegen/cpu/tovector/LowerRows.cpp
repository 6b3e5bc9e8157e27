// tile.mma of f32 with few rows, B read where it lies in memory and widened in registers.
//
// A copy of K and V as f32 is 32 KiB each at d = 128: as much as a first-level cache holds.
// Here a table of row pointers takes the place of the tile; absent rows point at zeros.
//   S = Q K^T   lanes along d: some rows of Q by some of K, then one transposing sum
//   O += P V    lanes along d: a row of V times one broadcast of each row of P
#include "codegen/cpu/tovector/Lowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace llmopt;
using namespace llmopt::cpu;

namespace {

/// Rows of A that share what is loaded of B; more would leave no registers for B.
constexpr int64_t kBand = 4;
/// Sums that hide the latency of one: two pipes, four cycles.
constexpr int64_t kSums = 8;

struct RowMma {
  Emit &emit;
  const MmaOperands &mma;
  Value table;  ///< address of each row of B
  Type element; ///< of B in memory
  int64_t lanes = emit.target.lanes;

  Value row(Value r) { return memref::LoadOp::create(emit, table, ValueRange{r}); }

  /// A register of a row of B from `column` on, as f32.
  Value load(Value pointer, Value column, int64_t more = 0) {
    Type type = LLVM::LLVMPointerType::get(emit.getContext());
    Type stored = element.isF32() ? element : emit.getI16Type();
    Value at = LLVM::IntToPtrOp::create(emit, type, pointer);
    Value index = arith::IndexCastOp::create(emit, emit.getI64Type(), emit.add(column, more));
    at = LLVM::GEPOp::create(emit, type, stored, at, ArrayRef<LLVM::GEPArg>{index});
    Value value = LLVM::LoadOp::create(emit, emit.vec(lanes, element), at,
                                       element.getIntOrFloatBitWidth() / 8);
    return emit.convert(value, emit.getF32Type());
  }

  /// Steps of k through `step`, that many at a time. Rows to come are asked for between the
  /// steps of `parts` such products, number `part` being this one: a core has room for some two
  /// dozen misses at a time, so each request should be of few lines.
  SmallVector<Value> overK(int64_t width, ValueRange sums, Value part, int64_t parts,
                           Emit::CarryBody step) {
    int64_t steps = mma.k / width, chunks = 1;
    while (mma.fetch && part && parts * chunks < mma.fetch->rows && steps % (2 * chunks) == 0)
      chunks *= 2;
    int64_t depth = mma.k / chunks;
    return emit.loop(0, chunks, 1, sums, [&](Value chunk, ValueRange carried) {
      if (mma.fetch && part)
        mma.fetch->part(emit, emit.add(emit.mul(part, emit.idx(chunks)), chunk), parts * chunks);
      Value first = emit.mul(chunk, emit.idx(depth));
      return emit.loop(0, depth, width, carried,
                       [&](Value k, ValueRange inner) { return step(emit.add(first, k), inner); });
    });
  }

  /// Scores of `high` rows from m on with `wide` rows of B from n on; high * wide <= lanes.
  void scores(Value m, int64_t high, Value n, int64_t wide, Value part, int64_t parts) {
    SmallVector<Value> sums(high * wide, emit.zero(emit.vec(lanes, emit.getF32Type()))), pointers;
    for (int64_t i = 0; i < wide; ++i)
      pointers.push_back(row(emit.add(n, i)));
    sums = overK(lanes, sums, part, parts, [&](Value k, ValueRange carried) {
      SmallVector<Value> a, next(carried);
      for (int64_t j = 0; j < high; ++j)
        a.push_back(emit.loadVector(mma.a, emit.add(m, j), k, lanes));
      for (int64_t i = 0; i < wide; ++i) {
        Value b = load(pointers[i], k);
        for (int64_t j = 0; j < high; ++j)
          next[j * wide + i] = emit.fma(a[j], b, carried[j * wide + i]);
      }
      return next;
    });
    Value total = transposingSum(emit, sums, lanes);
    for (int64_t j = 0; j < high; ++j) {
      Value at = emit.add(m, j), sum = total, start = mma.startVector(emit, at, n, wide);
      if (wide < lanes)
        sum = vector::ShuffleOp::create(
            emit, total, total, llvm::to_vector(llvm::seq<int64_t>(j * wide, (j + 1) * wide)));
      emit.storeVector(arith::AddFOp::create(emit, start, sum), mma.result, at, n);
    }
  }

  /// Rows of A in bands of four; what is left makes a band of its own. Each band is told how
  /// many others like it ask for the rows to come, and which it is of them: none for the last.
  void bands(llvm::function_ref<void(Value m, int64_t high, Value band, int64_t like)> emitBand) {
    int64_t whole = mma.m / kBand;
    emit.loop(0, whole, 1,
              [&](Value band) { emitBand(emit.mul(band, emit.idx(kBand)), kBand, band, whole); });
    if (int64_t rest = mma.m % kBand)
      emitBand(emit.idx(whole * kBand), rest, whole ? Value() : emit.idx(0), 1);
  }

  /// A register's worth of B's rows at a time: all rows of A find it in the first-level cache.
  void allScores() {
    int64_t groups = mma.n / lanes;
    emit.loop(0, groups, 1, [&](Value group) {
      Value first = emit.mul(group, emit.idx(lanes));
      bands([&](Value m, int64_t high, Value band, int64_t like) {
        int64_t wide = lanes / llvm::PowerOf2Ceil(high), turns = lanes / wide;
        emit.loop(0, turns, 1, [&](Value turn) {
          Value part = band;
          if (band) {
            part = emit.add(emit.mul(group, emit.idx(like)), band);
            part = emit.add(emit.mul(part, emit.idx(turns)), turn);
          }
          scores(m, high, emit.add(first, emit.mul(turn, emit.idx(wide))), wide, part,
                 groups * like * turns);
        });
      });
    });
  }

  /// `high` rows of C from m on, `vectors` registers from column `at` on.
  void columns(Value m, int64_t high, Value at, int64_t vectors, Value part, int64_t parts) {
    SmallVector<Value> sums;
    auto column = [&](int64_t v) { return emit.add(at, v * lanes); };
    for (int64_t j = 0; j < high; ++j)
      for (int64_t v = 0; v < vectors; ++v)
        sums.push_back(mma.startVector(emit, emit.add(m, j), column(v), lanes));
    sums = overK(1, sums, part, parts, [&](Value k, ValueRange carried) {
      SmallVector<Value> b, next;
      Value pointer = row(k);
      for (int64_t v = 0; v < vectors; ++v)
        b.push_back(load(pointer, at, v * lanes));
      for (int64_t j = 0; j < high; ++j) {
        Value p = emit.splat(emit.loadElement(mma.a, emit.add(m, j), k), lanes);
        for (int64_t v = 0; v < vectors; ++v)
          next.push_back(emit.fma(p, b[v], carried[j * vectors + v]));
      }
      return next;
    });
    for (int64_t j = 0; j < high; ++j)
      for (int64_t v = 0; v < vectors; ++v)
        emit.storeVector(sums[j * vectors + v], mma.result, emit.add(m, j), column(v));
  }

  void allColumns() {
    int64_t all = mma.n / lanes;
    bands([&](Value m, int64_t high, Value band, int64_t like) {
      int64_t vectors = 1;
      for (int64_t v = 2; v * high <= kSums; ++v)
        if (all % v == 0)
          vectors = v;
      int64_t passes = all / vectors;
      emit.loop(0, passes, 1, [&](Value pass) {
        Value part = band ? emit.add(emit.mul(band, emit.idx(passes)), pass) : Value();
        columns(m, high, emit.mul(pass, emit.idx(vectors * lanes)), vectors, part, like * passes);
      });
    });
  }
};

} // namespace

void Lowering::lowerRows(tile::MmaOp op, MmaOperands mma) {
  Emit emit = emitAt(op);
  auto load = op.getB().getDefiningOp<tile::LoadOp>();
  RowMma product{emit, mma, rowTable(op),
                 cast<MemRefType>(load.getBase().getType()).getElementType()};
  if (mma.transposeB)
    product.allScores();
  else
    product.allColumns();
}

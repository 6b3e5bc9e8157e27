// tile.mma of f32 with few rows, B read where it lies in memory and widened in registers.
//
// A copy of K and V as f32 is 32 KiB each at d = 128: as much as a first-level cache holds.
// Here a table of row pointers takes the place of the tile; absent rows point at zeros.
//   S = Q K^T   lanes along d: some rows of Q by some of K, then one transposing sum
//   O += P V    lanes along d: a row of V times one broadcast of each row of P
#include "codegen/cpu/tovector/InPlaceRows.h"
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
/// Rows of B that all of O += P V goes through before the next ones: a cache line of V is needed
/// for each band of P and each of the line's registers. Rows of one head often lie 1 KiB or more
/// apart, and of 64 such rows a first-level cache of 64 sets and 8 ways keeps a line of each other
/// one at most. Measured on Zen 3 (8 rows, 4 KV heads, K and V in a cache): 7 % of a tile's time.
constexpr int64_t kDepth = 16;

struct RowMma {
  Emit &emit;
  MmaOperands mma;
  Value table;   ///< address of each row of B
  Type element;  ///< of B in memory
  bool pairs;    ///< B is read by pairs of registers: InPlaceRows.h, splitsPairs
  Value partial; ///< memory for sums of a band that are not yet added up
  int64_t lanes = emit.target.lanes;
  int64_t together = pairs ? 2 : 1; ///< registers of one read of B
  Type vector = emit.vec(lanes, emit.getF32Type());

  Value row(Value r) { return memref::LoadOp::create(emit, table, ValueRange{r}); }

  /// `together` registers of a row of B from `column` on, as f32.
  SmallVector<Value, 2> load(Value pointer, Value column, int64_t more = 0) {
    Type type = LLVM::LLVMPointerType::get(emit.getContext()), i32 = emit.getI32Type();
    Type stored = element.isF32() ? element : emit.getI16Type();
    Value at = LLVM::IntToPtrOp::create(emit, type, pointer);
    Value index = arith::IndexCastOp::create(emit, emit.getI64Type(), emit.add(column, more));
    at = LLVM::GEPOp::create(emit, type, stored, at, ArrayRef<LLVM::GEPArg>{index});
    Value value = LLVM::LoadOp::create(emit, emit.vec(lanes, pairs ? i32 : element), at,
                                       element.getIntOrFloatBitWidth() / 8);
    if (!pairs)
      return {emit.convert(value, emit.getF32Type())};
    Type words = value.getType();
    Value even = arith::ShLIOp::create(emit, value, emit.constant(words, 16)),
          odd = arith::AndIOp::create(emit, value, emit.constant(words, int32_t(0xffff0000)));
    return {arith::BitcastOp::create(emit, vector, even),
            arith::BitcastOp::create(emit, vector, odd)};
  }

  /// Two registers of neighbours to one of the even and one of the odd elements, and back.
  std::pair<Value, Value> split(Value low, Value high) {
    SmallVector<int64_t> even, odd;
    for (int64_t i = 0; i < lanes; ++i)
      even.push_back(2 * i), odd.push_back(2 * i + 1);
    return {vector::ShuffleOp::create(emit, low, high, even),
            vector::ShuffleOp::create(emit, low, high, odd)};
  }
  std::pair<Value, Value> join(Value even, Value odd) {
    SmallVector<int64_t> low, high;
    for (int64_t i = 0; i < lanes; ++i)
      (i < lanes / 2 ? low : high).append({i, i + lanes});
    return {vector::ShuffleOp::create(emit, even, odd, low),
            vector::ShuffleOp::create(emit, even, odd, high)};
  }

  /// Steps of k through `step`, that many at a time. Rows to come are asked for between the
  /// steps of `parts` such products, number `part` being this one: a core has room for 16 to two
  /// dozen misses at a time, so each request should be of few lines. They are of rows far apart:
  /// the second cache's own prefetches follow each 4 KiB of memory apart, and are ahead of the
  /// requests there when those come slowly. Measured on Emerald Rapids (16 sequences of 4096,
  /// d = 128, two cores): 18.4 to 21.2 GB/s for GQA 8:1, 26.0 to 27.9 for 4:1.
  SmallVector<Value> overK(Value k0, int64_t depth, int64_t width, ValueRange sums, Value part,
                           int64_t parts, Emit::CarryBody step) {
    int64_t steps = depth / width, chunks = 1;
    while (mma.fetch && part && parts * chunks < mma.fetch->rows && steps % (2 * chunks) == 0)
      chunks *= 2;
    depth /= chunks;
    return emit.loop(0, chunks, 1, sums, [&](Value chunk, ValueRange carried) {
      if (mma.fetch && part)
        mma.fetch->part(emit, emit.add(emit.mul(part, emit.idx(chunks)), chunk), parts * chunks);
      Value first = emit.add(k0, emit.mul(chunk, emit.idx(depth)));
      return emit.loop(0, depth, width, carried,
                       [&](Value k, ValueRange inner) { return step(emit.add(first, k), inner); });
    });
  }

  /// A in the order in which B is read, in `memory`.
  void splitA(Value memory) {
    Buffer ordered{memory, mma.a.shape};
    emit.loop(0, mma.m, 1, [&](Value m) {
      emit.loop(0, mma.k, 2 * lanes, [&](Value k) {
        Value next = emit.add(k, lanes);
        auto [even, odd] =
            split(emit.loadVector(mma.a, m, k, lanes), emit.loadVector(mma.a, m, next, lanes));
        emit.storeVector(even, ordered, m, k);
        emit.storeVector(odd, ordered, m, next);
      });
    });
    mma.a = ordered;
  }

  /// Scores of `high` rows from m on with every `turns`-th of a register's worth of B's rows,
  /// from row from + n + turn on, `from` being where the slice's begin: half of all registers hold
  /// sums. What is left of each row's sums goes to `partial`.
  void scores(Value m, int64_t high, Value from, Value n, Value turn, int64_t turns, Value part,
              int64_t parts) {
    int64_t wide = lanes / turns;
    SmallVector<Value> sums(high * wide, emit.zero(vector)), pointers;
    for (int64_t i = 0; i < wide; ++i)
      pointers.push_back(row(emit.add(emit.add(emit.add(from, n), turn), i * turns)));
    sums = overK(
        emit.idx(0), mma.k, lanes * together, sums, part, parts, [&](Value k, ValueRange carried) {
          SmallVector<Value> next(carried);
          SmallVector<SmallVector<Value, 2>> b;
          for (Value pointer : pointers)
            b.push_back(load(pointer, k));
          for (int64_t r = 0; r < together; ++r)
            for (int64_t j = 0; j < high; ++j) {
              Value a = emit.loadVector(mma.a, emit.add(m, j), emit.add(k, r * lanes), lanes);
              for (int64_t i = 0; i < wide; ++i)
                next[j * wide + i] = emit.fma(a, b[i][r], next[j * wide + i]);
            }
          return next;
        });
    for (int64_t j = 0; j < high; ++j) {
      SmallVector<Value> own(sums.begin() + j * wide, sums.begin() + (j + 1) * wide);
      for (int64_t distance = lanes / 2; own.size() > 1; distance /= 2)
        own = foldLanes(emit, own, distance);
      if (turns == 1)
        store(emit.add(m, j), n, own.front());
      else
        vector::StoreOp::create(emit, own.front(), partial,
                                ValueRange{emit.add(turn, j * turns), emit.idx(0)});
    }
  }

  /// Adds up what the turns left of row j of a band.
  void finish(Value m, Value j, Value n, int64_t turns) {
    SmallVector<Value> sums;
    for (int64_t turn = 0; turn < turns; ++turn) {
      Value at = emit.add(emit.mul(j, emit.idx(turns)), turn);
      sums.push_back(vector::LoadOp::create(emit, vector, partial, ValueRange{at, emit.idx(0)}));
    }
    for (int64_t distance = turns / 2; distance > 0; distance /= 2)
      sums = foldLanes(emit, sums, distance);
    store(emit.add(m, j), n, sums.front());
  }

  void store(Value at, Value n, Value sum) {
    Value start = mma.startVector(emit, at, n, lanes);
    emit.storeVector(arith::AddFOp::create(emit, start, sum), mma.result, at, n);
  }

  /// Rows of A in bands of four; what is left makes a band of its own. Each band is told how
  /// many others like it ask for the rows to come, and which it is of them: none for the last.
  void bands(Value slice,
             llvm::function_ref<void(Value m, int64_t high, Value band, int64_t like)> emitBand) {
    int64_t own = mma.m / mma.slices, whole = own / kBand;
    Value first = emit.mul(slice, emit.idx(own));
    auto bandOf = [&](Value band, int64_t like) {
      return emit.add(emit.mul(slice, emit.idx(like)), band);
    };
    emit.loop(0, whole, 1, [&](Value band) {
      emitBand(emit.add(first, emit.mul(band, emit.idx(kBand))), kBand, bandOf(band, whole),
               whole * mma.slices);
    });
    if (int64_t rest = own % kBand)
      emitBand(emit.add(first, emit.idx(whole * kBand)), rest,
               whole ? Value() : bandOf(emit.idx(0), 1), mma.slices);
  }

  /// A register's worth of B's rows at a time: all rows of A find it in the first-level cache.
  void allScores() {
    int64_t groups = mma.n / lanes;
    emit.loop(0, groups, 1, [&](Value group) {
      Value first = emit.mul(group, emit.idx(lanes));
      emit.loop(0, mma.slices, 1, [&](Value slice) {
        bands(slice, [&](Value m, int64_t high, Value band, int64_t like) {
          int64_t most = emit.target.registers / 2,
                  turns = std::max<int64_t>(1, lanes * llvm::PowerOf2Ceil(high) / most);
          emit.loop(0, turns, 1, [&](Value turn) {
            Value part = band;
            if (band) {
              part = emit.add(emit.mul(group, emit.idx(like)), band);
              part = emit.add(emit.mul(part, emit.idx(turns)), turn);
            }
            scores(m, high, emit.mul(slice, emit.idx(mma.n)), first, turn, turns, part,
                   groups * like * turns);
          });
          if (turns > 1)
            emit.loop(0, high, 1, [&](Value j) { finish(m, j, first, turns); });
        });
      });
    });
  }

  /// C's start to the result, in the order in which B is read.
  void startColumns() {
    emit.loop(0, mma.m, 1, [&](Value m) {
      emit.loop(0, mma.n, lanes * together, [&](Value n) {
        Value low = mma.startVector(emit, m, n, lanes);
        if (!pairs)
          return emit.storeVector(low, mma.result, m, n);
        Value next = emit.add(n, lanes);
        auto [even, odd] = split(low, mma.startVector(emit, m, next, lanes));
        emit.storeVector(even, mma.result, m, n);
        emit.storeVector(odd, mma.result, m, next);
      });
    });
  }
  /// Back to C's own order.
  void joinColumns() {
    emit.loop(0, mma.m, 1, [&](Value m) {
      emit.loop(0, mma.n, 2 * lanes, [&](Value n) {
        Value next = emit.add(n, lanes);
        auto [low, high] = join(emit.loadVector(mma.result, m, n, lanes),
                                emit.loadVector(mma.result, m, next, lanes));
        emit.storeVector(low, mma.result, m, n);
        emit.storeVector(high, mma.result, m, next);
      });
    });
  }

  /// Adds `depth` rows of B from row from + k0 on to `high` rows of C from m on, `vectors`
  /// registers from column `at` on.
  void columns(Value m, int64_t high, Value from, Value at, int64_t vectors, Value k0,
               int64_t depth, Value part, int64_t parts) {
    SmallVector<Value> sums;
    auto column = [&](int64_t v) { return emit.add(at, v * lanes); };
    for (int64_t j = 0; j < high; ++j)
      for (int64_t v = 0; v < vectors; ++v)
        sums.push_back(emit.loadVector(mma.result, emit.add(m, j), column(v), lanes));
    sums = overK(k0, depth, 1, sums, part, parts, [&](Value k, ValueRange carried) {
      SmallVector<Value> b, next;
      Value pointer = row(emit.add(from, k));
      for (int64_t v = 0; v < vectors; v += together)
        llvm::append_range(b, load(pointer, at, v * lanes));
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
    startColumns();
    int64_t depth = mma.k % kDepth == 0 ? kDepth : mma.k, all = mma.n / lanes;
    emit.loop(0, mma.k, depth, [&](Value k0) {
      Value chunk = arith::DivUIOp::create(emit, k0, emit.idx(depth));
      emit.loop(0, mma.slices, 1, [&](Value slice) {
        bands(slice, [&](Value m, int64_t high, Value band, int64_t like) {
          int64_t vectors = together;
          for (int64_t v = vectors + together; v * high <= kSums; v += together)
            if (all % v == 0)
              vectors = v;
          int64_t passes = all / vectors;
          emit.loop(0, passes, 1, [&](Value pass) {
            Value part;
            if (band) {
              part = emit.add(emit.mul(chunk, emit.idx(like)), band);
              part = emit.add(emit.mul(part, emit.idx(passes)), pass);
            }
            columns(m, high, emit.mul(slice, emit.idx(mma.k)),
                    emit.mul(pass, emit.idx(vectors * lanes)), vectors, k0, depth, part,
                    mma.k / depth * like * passes);
          });
        });
      });
    });
    if (pairs)
      joinColumns();
  }
};

} // namespace

void Lowering::lowerRows(tile::MmaOp op, MmaOperands mma) {
  Emit emit = emitAt(op);
  auto load = op.getB().getDefiningOp<tile::LoadOp>();
  Type f32 = emit.getF32Type();
  Value partial;
  if (mma.transposeB)
    partial = memoryAt(MemRefType::get({kPartialSums, target.lanes}, f32), plan.temporary(op, 1));
  RowMma product{emit,
                 mma,
                 rowTable(op),
                 cast<MemRefType>(load.getBase().getType()).getElementType(),
                 splitsPairs(op, target),
                 partial};
  if (product.mma.fetch)
    product.mma.fetch->spread = true;
  if (!mma.transposeB)
    return product.allColumns();
  if (product.pairs)
    product.splitA(memoryAt(MemRefType::get({mma.a.shape.outer, mma.a.shape.inner}, f32),
                            plan.temporary(op, 2)));
  product.allScores();
}

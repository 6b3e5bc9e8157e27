// Merging of partial results: of the plan's split items, and of an attn.merge op. Both
// walk the partials of one (token, head) by the same loop.
#include "passes/attn/AttendKernel.h"

#include "mlir/Dialect/Math/IR/Math.h"

#include <cmath>
#include <numbers>

using namespace mlir;
using namespace llmopt;
using bundle::BufferRole;

namespace {

class Merger {
public:
  Merger(KernelBuilder &k, int64_t dV) : k(k), dV(dV) {}

  struct Source {
    Value out, lse;                                              ///< bases
    std::function<std::pair<Value, Value>(Value split)> offsets; ///< of output row and LSE
    Value innerStride;
  };
  struct Result {
    Value acc, m, l;
  };

  /// acc = sum w_k o_k, l = sum w_k with w_k = exp(lse_k - m); natural units, so that one
  /// finite partial comes back bit for bit (w = 1, l = 1, m its LSE).
  Result walk(Value count, const Source &source) {
    SmallVector<Value> init{k.splat(1, dV, 0), k.splat(1, 1, -INFINITY), k.splat(1, 1, 0)};
    SmallVector<Value> last = k.forEach(k.idx(0), count, init, [&](Value split, ValueRange s) {
      KernelBuilder::noted("Partial results of the row: each has an output and the log of the sum "
                           "of its exponentials.",
                           split);
      split.setLoc(k.named("split"));
      constexpr const char *kNames[] = {"acc", "m", "l"};
      for (auto [value, name] : llvm::zip(s, kNames))
        Value(value).setLoc(k.named(name));
      return step(source, split, s);
    });
    return {last[0], last[1], last[2]};
  }

  Value output(Result r, Value sink) {
    SmallVector<Value> inputs{r.acc, r.l};
    if (sink)
      inputs.append({r.m, sink});
    return k.map(
        row(dV), inputs, [&](OpBuilder &b, ValueRange x, Value, Value) -> SmallVector<Value> {
          Value acc = x[0], sum = x[1], zero = constant(b, 0);
          Value unseen = arith::CmpFOp::create(b, k.loc, arith::CmpFPredicate::OEQ, sum, zero);
          if (sink) {
            Value top = arith::MaximumFOp::create(b, k.loc, x[2], x[3]);
            Value rescale = exp(b, arith::SubFOp::create(b, k.loc, x[2], top));
            sum = math::FmaOp::create(b, k.loc, sum, rescale,
                                      exp(b, arith::SubFOp::create(b, k.loc, x[3], top)));
            acc = arith::MulFOp::create(b, k.loc, acc, rescale);
          }
          Value quotient = arith::DivFOp::create(b, k.loc, acc, sum);
          return {arith::SelectOp::create(b, k.loc, unseen, zero, quotient)};
        });
  }

  Value lse(Result r) {
    return k.map(
        row(1), {r.m, r.l}, [&](OpBuilder &b, ValueRange x, Value, Value) -> SmallVector<Value> {
          Value log = arith::MulFOp::create(
              b, k.loc, math::Log2Op::create(b, k.loc, x[1], arith::FastMathFlags::afn),
              constant(b, std::numbers::ln2));
          Value unseen =
              arith::CmpFOp::create(b, k.loc, arith::CmpFPredicate::OEQ, x[1], constant(b, 0));
          return {arith::SelectOp::create(b, k.loc, unseen, constant(b, -INFINITY),
                                          arith::AddFOp::create(b, k.loc, x[0], log))};
        });
  }

  /// Rows of memory go by `name` in text.
  void store(StringRef name, Value tile, int buffer, Value offset, Value inner) {
    tile::StoreOp::create(k.b, k.loc, tile, k.pointer(buffer), address(name, offset), Value(),
                          inner, Value());
  }
  Value load(StringRef name, Value base, Value offset, int64_t width, Value inner) {
    return tile::LoadOp::create(k.b, k.loc, row(width), base, address(name, offset), Value(), inner,
                                Value());
  }

private:
  SmallVector<Value> step(const Source &source, Value split, ValueRange s) {
    auto [outOffset, lseOffset] = source.offsets(split);
    auto called = KernelBuilder::called;
    Value part = called("part", load("part_row", source.out, outOffset, dV, source.innerStride));
    Value lse = called("part_lse", load("part_lse_at", source.lse, lseOffset, 1, Value()));
    Value m =
        called("m_new", k.map(row(1), {s[1], lse},
                              [&](OpBuilder &b, ValueRange x, Value, Value) -> SmallVector<Value> {
                                return {arith::MaximumFOp::create(b, k.loc, x[0], x[1])};
                              }));
    // A partial that saw no key counts for nothing: its weight is 0 also while m is -inf.
    auto weight = [&](OpBuilder &b, ValueRange x, Value, Value) -> SmallVector<Value> {
      Value hidden =
          arith::CmpFOp::create(b, k.loc, arith::CmpFPredicate::OEQ, x[0], constant(b, -INFINITY));
      Value w = exp(b, arith::SubFOp::create(b, k.loc, x[0], x[1]));
      return {arith::SelectOp::create(b, k.loc, hidden, constant(b, 0), w)};
    };
    Value alpha = called("alpha", k.map(row(1), {s[1], m}, weight));
    Value w = called("weight", k.map(row(1), {lse, m}, weight));
    Value l =
        called("l", k.map(row(1), {s[2], alpha, w},
                          [&](OpBuilder &b, ValueRange x, Value, Value) -> SmallVector<Value> {
                            return {math::FmaOp::create(b, k.loc, x[0], x[1], x[2])};
                          }));
    Value acc =
        called("acc", k.map(row(dV), {s[0], alpha, part, w},
                            [&](OpBuilder &b, ValueRange x, Value, Value) -> SmallVector<Value> {
                              Value zero = constant(b, 0);
                              Value none = arith::CmpFOp::create(
                                  b, k.loc, arith::CmpFPredicate::OEQ, x[3], zero);
                              Value clean = arith::SelectOp::create(b, k.loc, none, zero, x[2]);
                              Value kept = arith::MulFOp::create(b, k.loc, x[0], x[1]);
                              return {math::FmaOp::create(b, k.loc, clean, x[3], kept)};
                            }));
    return {acc, m, l};
  }

  Value exp(OpBuilder &b, Value x) {
    return math::Exp2Op::create(
        b, k.loc, arith::MulFOp::create(b, k.loc, x, constant(b, std::numbers::log2e)));
  }
  Value constant(OpBuilder &b, double value) {
    return arith::ConstantOp::create(b, k.loc, b.getF32FloatAttr(value));
  }
  RankedTensorType row(int64_t width) { return k.tileType(1, width, k.b.getF32Type()); }
  Value address(StringRef name, Value offset) {
    return tile::StridedRowsOp::create(k.b, k.named(name), k.tileType(1, 1, k.b.getI64Type()),
                                       offset, k.idx(0), k.idx(1));
  }

  KernelBuilder &k;
  int64_t dV;
};

void mergeItem(KernelBuilder &k, Merger &merger, Value item) {
  attn::AttentionOp op = k.signature.attention;
  auto of = [&](StringRef name, const RecordField &field) {
    return KernelBuilder::called(name, k.field(BufferRole::Merges, item, field));
  };
  Value packed = of("packed_row", LLMOPT_FIELD(MergeItem, row)),
        kvHead = of("kv_head", LLMOPT_FIELD(MergeItem, kvHead)),
        sequence = of("sequence", LLMOPT_FIELD(MergeItem, sequence)),
        first = of("first_partial", LLMOPT_FIELD(MergeItem, firstPartial)),
        count = of("split_count", LLMOPT_FIELD(MergeItem, count)),
        stride = of("split_stride", LLMOPT_FIELD(MergeItem, stride));
  auto ofSequence = [&](StringRef name, const RecordField &field) {
    return KernelBuilder::called(name, k.field(BufferRole::Sequences, sequence, field));
  };
  Value queryBase = ofSequence("query_base", LLMOPT_FIELD(SequenceRecord, queryBase)),
        batch = ofSequence("batch", LLMOPT_FIELD(SequenceRecord, batch));
  Value group = k.idx(op.getGroup());
  Value entry =
      KernelBuilder::called("query_entry", arith::DivUIOp::create(k.b, k.loc, packed, group));
  Value head = KernelBuilder::called(
      "query_head", k.add(k.mul(kvHead, group), k.sub(packed, k.mul(entry, group))));
  Value query = KernelBuilder::called(
      "query_index", k.field(BufferRole::Rows, entry, LLMOPT_FIELD(RowEntry, query)));

  Merger::Source source{k.pointer(BufferRole::PartialOut), k.pointer(BufferRole::PartialLse),
                        [&](Value split) {
                          Value partial =
                              KernelBuilder::called("partial", k.add(first, k.mul(split, stride)));
                          return std::pair{k.mul(partial, k.idx(op.getVDim())), partial};
                        },
                        Value()};
  Merger::Result result = merger.walk(count, source);
  Value sink;
  if (int buffer = k.signature.findBuffer(BufferRole::SinkLogit); buffer >= 0)
    sink = merger.load("sink_at", k.pointer(buffer), k.mul(head, k.stride(buffer, 0)), 1, Value());
  int o = k.signature.findBuffer(BufferRole::Output), lse = k.signature.findBuffer(BufferRole::Lse);
  TokenArray array(k, o, op.isRaggedQuery());
  merger.store("o_row",
               KernelBuilder::noted("The output: acc / l, and 0 where no split saw a key.",
                                    merger.output(result, sink)),
               o, array.offset(k, batch, queryBase, query, head), array.innerStride);
  if (lse >= 0)
    merger.store("lse_at", merger.lse(result), lse,
                 TokenArray(k, lse, op.isRaggedQuery()).offset(k, batch, queryBase, query, head),
                 Value());
}

} // namespace

void llmopt::emitMergeKernel(ModuleOp module, const Signature &signature, StringRef name) {
  attn::AttentionOp op = signature.attention;
  KernelBuilder k(module, op.getLoc(), signature, name);
  Merger merger(k, op.getVDim());
  auto [first, last] = k.range(BufferRole::MergeOffsets);
  k.forEach("item", first, last, 1, [&](Value item) { mergeItem(k, merger, item); });
  k.finish();
}

void llmopt::emitCombineKernel(ModuleOp module, const Signature &signature, StringRef name) {
  attn::MergeOp op = signature.merge;
  KernelBuilder k(module, op.getLoc(), signature, name);
  Merger merger(k, cast<RankedTensorType>(op.getPartials().getType()).getDimSize(3));
  int in = signature.findBuffer(BufferRole::PartialIn),
      lseIn = signature.findBuffer(BufferRole::PartialLseIn);
  int o = signature.findBuffer(BufferRole::Output), lse = signature.findBuffer(BufferRole::Lse);
  Value count = k.slot(in, bundle::SlotKind::Extent, 0),
        heads = k.slot(in, bundle::SlotKind::Extent, 2);
  auto [first, last] = k.range(BufferRole::ItemOffsets);
  k.forEach("item", first, last, 1, [&](Value pair) {
    Value token = arith::DivUIOp::create(k.b, k.loc, pair, heads);
    Value head = k.sub(pair, k.mul(token, heads));
    auto at = [&](int buffer, unsigned dim) {
      return k.add(k.mul(token, k.stride(buffer, dim)), k.mul(head, k.stride(buffer, dim + 1)));
    };
    Merger::Source source{k.pointer(in), k.pointer(lseIn),
                          [&](Value n) {
                            return std::pair{k.add(k.mul(n, k.stride(in, 0)), at(in, 1)),
                                             k.add(k.mul(n, k.stride(lseIn, 0)), at(lseIn, 1))};
                          },
                          k.stride(in, 3)};
    Merger::Result result = merger.walk(count, source);
    merger.store("o_row", merger.output(result, Value()), o, at(o, 0), k.stride(o, 2));
    if (lse >= 0)
      merger.store("lse_at", merger.lse(result), lse, at(lse, 0), Value());
  });
  k.finish();
}

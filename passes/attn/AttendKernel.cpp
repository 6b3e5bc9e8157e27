// See AttendKernel.h. Names follow the FlashAttention papers: m the running row maximum,
// l the running row sum, acc the unnormalised output, all in units of log 2.
#include "passes/attn/AttendKernel.h"

#include "mlir/Dialect/Math/IR/Math.h"

#include <cmath>
#include <cstddef>
#include <numbers>

using namespace mlir;
using namespace llmopt;
using bundle::BufferRole;
using Pred = arith::CmpIPredicate;

#define WORD_OF(record, field) unsigned(offsetof(bundle::record, field) / 4)
#define QUAD_OF(record, field) unsigned(offsetof(bundle::record, field) / 8)

namespace {

class AttendKernel {
public:
  AttendKernel(ModuleOp module, const Signature &signature, StringRef name, int64_t rows,
               int64_t keys, int64_t slices)
      : op(signature.attention), k(module, op.getLoc(), signature, name), itemRows(rows),
        rowCount(rows * slices), keys(keys), slices(slices), bounds(boundsOf(signature)),
        group(op.getGroup()) {}

  void emit() {
    if (op.getScheduleAttr() && op.getScheduleAttr().getBatchInvariant())
      k.func->setAttr("tile.batch_invariant", k.b.getUnitAttr());
    auto [first, last] = k.range(BufferRole::ItemOffsets);
    k.forEach(first, last, 1, [&](Value item) { emitItem(item); });
    k.finish();
  }

private:
  struct State {
    Value acc, m, l;
  };

  void emitItem(Value item);
  void loadItem(Value item);
  void loadRows();
  void loadTree();
  Value
  rowTile(Type element,
          llvm::function_ref<Value(Value query, Value head, Value position, Value row)> value);
  Value rowAddresses(const TokenArray &array, Value wanted);
  Value perHead(int buffer);
  Value keyRows(bool isValue, Value key, Value count);
  Value loadKeys(bool isValue, Value rows);
  bool hidesByData();
  Value onlySeen(Value addresses, Value scores);
  SmallVector<Value> weight(OpBuilder &b, ValueRange x);
  State step(Value tile, State state, TileWalk *masked);
  State walkKeys();
  State foldSlices(State state);
  void store(State state);
  Value normalise(State state, bool withSink);

  Value field(BufferRole role, unsigned words, unsigned word, Value record, bool isSigned = false) {
    return k.word(role, record, words, word, isSigned);
  }
  Value constant(OpBuilder &b, double value) {
    return arith::ConstantOp::create(b, k.loc, b.getF32FloatAttr(value));
  }
  RankedTensorType column(Type element) { return k.tileType(rowCount, 1, element); }
  RankedTensorType columnF32() { return column(k.b.getF32Type()); }

  attn::AttentionOp op;
  KernelBuilder k;
  /// Rows of an item. With several slices, which share out the keys of a tile, the walk has
  /// `rowCount` rows: the item's for each slice, one after another.
  int64_t itemRows;
  int64_t rowCount, keys, slices;
  attn::MaskBounds bounds;
  int64_t group;

  // The current item.
  Value firstRow, rowsUsed, kvHead, sequence, keyBegin, keyEnd, partialSlot;
  Value queryBase, keyBase, queryLen, keyLen, tableBase, batch;
  RowTiles rows;
  Value query; ///< the Q tile
  Value visited, predicated;
};

void AttendKernel::loadItem(Value item) {
  auto word = [&](unsigned w, bool isSigned = false) {
    return field(BufferRole::Items, 8, w, item, isSigned);
  };
  firstRow = KernelBuilder::called("first_row", word(WORD_OF(WorkItem, firstRow)));
  rowsUsed = KernelBuilder::called("row_count", word(WORD_OF(WorkItem, rowCount)));
  kvHead = KernelBuilder::called("kv_head", word(WORD_OF(WorkItem, kvHead)));
  sequence = KernelBuilder::called("sequence", word(WORD_OF(WorkItem, sequence)));
  partialSlot = KernelBuilder::called("partial_slot",
                                      word(WORD_OF(WorkItem, partialSlot), /*isSigned=*/true));
  auto quad = [&](unsigned q) { return field(BufferRole::Sequences, 8, q, sequence); };
  queryBase = KernelBuilder::called("query_base", quad(QUAD_OF(SequenceRecord, queryBase)));
  keyBase = KernelBuilder::called("key_base", quad(QUAD_OF(SequenceRecord, keyBase)));
  queryLen = KernelBuilder::called("query_len", quad(QUAD_OF(SequenceRecord, queryLen)));
  keyLen = KernelBuilder::called("key_len", quad(QUAD_OF(SequenceRecord, keyLen)));
  tableBase = KernelBuilder::called("table_base", quad(QUAD_OF(SequenceRecord, tableBase)));
  batch = KernelBuilder::called("batch", quad(QUAD_OF(SequenceRecord, batch)));
  keyBegin = KernelBuilder::called("key_begin", word(WORD_OF(WorkItem, keyBegin)));
  keyEnd = KernelBuilder::called("key_end", k.min(word(WORD_OF(WorkItem, keyEnd)), keyLen));
}

/// A column of one value for each row of the walk; rows beyond the item's repeat its last one.
Value AttendKernel::rowTile(Type element,
                            llvm::function_ref<Value(Value, Value, Value, Value)> value) {
  auto map = tile::MapOp::create(k.b, k.loc, TypeRange{column(element)}, ValueRange{}, ArrayAttr());
  OpBuilder::InsertionGuard guard(k.b);
  Block *block =
      k.b.createBlock(&map.getBody(), {}, {k.b.getI32Type(), k.b.getI32Type()}, {k.loc, k.loc});
  Value row = arith::IndexCastOp::create(k.b, k.loc, k.b.getIndexType(), block->getArgument(0));
  if (rowCount > itemRows)
    row = arith::RemUIOp::create(k.b, k.loc, row, k.idx(itemRows));
  Value last = k.max(k.sub(rowsUsed, k.idx(1)), k.idx(0));
  Value packed = k.add(firstRow, k.min(row, last));
  Value entry = arith::DivUIOp::create(k.b, k.loc, packed, k.idx(group));
  Value inGroup = k.sub(packed, k.mul(entry, k.idx(group)));
  Value head = k.add(k.mul(kvHead, k.idx(group)), inGroup);
  Value queryIndex = k.word(BufferRole::Rows, entry, 2, WORD_OF(RowEntry, query));
  Value position =
      k.word(BufferRole::Rows, entry, 2, WORD_OF(RowEntry, position), /*isSigned=*/true);
  Value result = value(queryIndex, head, position, row);
  tile::YieldOp::create(k.b, k.loc, ValueRange{result});
  return map.getResult(0);
}

/// Addresses of the item's rows in a Q-like array, nowhere where `wanted` (i1) is false.
Value AttendKernel::rowAddresses(const TokenArray &array, Value wanted) {
  return rowTile(k.b.getI64Type(), [&](Value queryIndex, Value head, Value, Value row) {
    Value offset = array.offset(k, batch, queryBase, queryIndex, head);
    Value used = k.cmp(Pred::slt, row, rowsUsed);
    if (wanted)
      used = arith::AndIOp::create(k.b, k.loc, used, wanted);
    Value address = k.select(used, offset, k.idx(-1));
    return arith::IndexCastOp::create(k.b, k.loc, k.b.getI64Type(), address).getResult();
  });
}

Value AttendKernel::perHead(int buffer) {
  Type memory = k.elementType(buffer);
  Type element = isa<FloatType>(memory) ? Type(k.b.getF32Type()) : Type(k.b.getI32Type());
  return rowTile(element, [&](Value, Value head, Value, Value) -> Value {
    Value raw =
        memref::LoadOp::create(k.b, k.loc, k.pointer(buffer), k.mul(head, k.stride(buffer, 0)));
    if (memory == element)
      return raw;
    if (isa<FloatType>(memory))
      return arith::ExtFOp::create(k.b, k.loc, element, raw);
    return arith::TruncIOp::create(k.b, k.loc, element, raw);
  });
}

void AttendKernel::loadRows() {
  Type i32 = k.b.getI32Type();
  auto cast = [&](Value index) {
    return arith::IndexCastOp::create(k.b, k.loc, i32, index).getResult();
  };
  rows = RowTiles();
  rows.position = KernelBuilder::called(
      "position",
      rowTile(i32, [&](Value, Value, Value position, Value) { return cast(position); }));
  rows.query =
      rowTile(i32, [&](Value queryIndex, Value, Value, Value) { return cast(queryIndex); });
  rows.head = rowTile(i32, [&](Value, Value head, Value, Value) { return cast(head); });
  rows.batch = batch, rows.queryLen = queryLen, rows.keyLen = keyLen;
  for (auto [i, buffer] : llvm::enumerate(k.signature.buffers)) {
    if (buffer.role == BufferRole::PerHead || buffer.role == BufferRole::SinkLogit)
      rows.perHead[i] = perHead(i);
    if (buffer.role != BufferRole::Bias && buffer.role != BufferRole::DenseMask)
      continue;
    rows.addresses[i] =
        rowTile(k.b.getI64Type(), [&](Value queryIndex, Value head, Value, Value row) {
          Value offset =
              k.add(k.mul(batch, k.stride(i, 0)),
                    k.add(k.mul(head, k.stride(i, 1)), k.mul(queryIndex, k.stride(i, 2))));
          Value address = k.select(k.cmp(Pred::slt, row, rowsUsed), offset, k.idx(-1));
          return arith::IndexCastOp::create(k.b, k.loc, k.b.getI64Type(), address).getResult();
        });
  }
  if (k.signature.findBuffer(BufferRole::Tree) >= 0)
    loadTree();
  int q = k.signature.findBuffer(BufferRole::Query);
  TokenArray array(k, q, op.isRaggedQuery());
  Location named = k.named("q");
  query = tile::LoadOp::create(k.b, named, k.tileType(rowCount, op.getQkDim(), k.elementType(q)),
                               k.pointer(q), rowAddresses(array, Value()), Value(),
                               array.innerStride, Value());
}

/// Sets of the rows' queries.
void AttendKernel::loadTree() {
  int buffer = k.signature.findBuffer(BufferRole::Tree);
  rows.treeSet = KernelBuilder::called(
      "tree_set", rowTile(k.b.getI64Type(), [&](Value queryIndex, Value, Value, Value row) {
        Value offset = op.isRaggedQuery() ? k.mul(k.add(queryBase, queryIndex), k.stride(buffer, 0))
                                          : k.add(k.mul(batch, k.stride(buffer, 0)),
                                                  k.mul(queryIndex, k.stride(buffer, 1)));
        Value used = k.select(k.cmp(Pred::slt, row, rowsUsed), offset, k.idx(0));
        return memref::LoadOp::create(k.b, k.loc, k.pointer(buffer), used).getResult();
      }));
  rows.placeByTree(k);
}

/// Addresses of `count` keys from `key` on, of K or V.
Value AttendKernel::keyRows(bool isValue, Value key, Value count) {
  RankedTensorType type = k.tileType(keys, 1, k.b.getI64Type());
  attn::KvCacheType cache = op.getCacheType();
  if (!cache) {
    int buffer = k.signature.findBuffer(isValue ? BufferRole::Value : BufferRole::Key);
    TokenArray array(k, buffer, op.isRaggedKv());
    Value offset = array.offset(k, batch, keyBase, key, kvHead);
    return tile::StridedRowsOp::create(k.b, k.loc, type, offset, array.tokenStride, count);
  }
  bool ownPool = isValue && !cache.getInterleaved();
  int pool = k.signature.findBuffer(ownPool ? BufferRole::ValuePool : BufferRole::KeyPool);
  unsigned inner = cache.getInterleaved() ? 2 : 1;
  Value slotStride = k.stride(pool, inner + (cache.getHeadMajor() ? 1 : 0));
  Value headStride = k.stride(pool, inner + (cache.getHeadMajor() ? 0 : 1));
  Value offset = k.mul(kvHead, headStride);
  if (isValue && cache.getInterleaved())
    offset = k.add(offset, k.stride(pool, 1));
  return tile::PagedRowsOp::create(k.b, k.loc, type, k.pointer(BufferRole::BlockTable), tableBase,
                                   key, count, cache.getPageSize(), offset, k.stride(pool, 0),
                                   slotStride);
}

Value AttendKernel::loadKeys(bool isValue, Value addresses) {
  attn::KvCacheType cache = op.getCacheType();
  BufferRole role = isValue ? BufferRole::Value : BufferRole::Key;
  if (cache)
    role = isValue && !cache.getInterleaved() ? BufferRole::ValuePool : BufferRole::KeyPool;
  int buffer = k.signature.findBuffer(role);
  Value inner = cache ? Value() : TokenArray(k, buffer, op.isRaggedKv()).innerStride;
  int64_t dim = isValue ? op.getVDim() : op.getQkDim();
  return tile::LoadOp::create(k.b, k.named(isValue ? "v" : "k"),
                              k.tileType(keys, dim, k.elementType(buffer)), k.pointer(buffer),
                              addresses, Value(), inner, Value());
}

/// True where the intervals do not tell which keys of a tile are hidden from all its rows.
bool AttendKernel::hidesByData() {
  return !bounds.exact || k.signature.findBuffer(BufferRole::Bias) >= 0;
}

/// Takes the address from keys that the scores of no row see: 0 times their value would
/// be NaN where that is NaN or infinite.
Value AttendKernel::onlySeen(Value addresses, Value scores) {
  Value best = tile::ReduceColumnsOp::create(k.b, k.loc, k.tileType(keys, 1, k.b.getF32Type()),
                                             tile::Combiner::Max, scores, slices);
  return k.map(cast<RankedTensorType>(addresses.getType()), {addresses, best},
               [&](OpBuilder &b, ValueRange x, Value, Value) -> SmallVector<Value> {
                 Value seen = arith::CmpFOp::create(b, k.loc, arith::CmpFPredicate::UNE, x[1],
                                                    constant(b, -INFINITY));
                 Value none = arith::ConstantOp::create(b, k.loc, b.getI64IntegerAttr(-1));
                 return {arith::SelectOp::create(b, k.loc, seen, x[0], none)};
               });
}

/// exp2(x - m), where m stays -inf until a row sees a key: 0 stands in, exp2 gives 0.
SmallVector<Value> AttendKernel::weight(OpBuilder &b, ValueRange x) {
  Value hidden = constant(b, -INFINITY);
  Value unseen = arith::CmpFOp::create(b, k.loc, arith::CmpFPredicate::OEQ, x[1], hidden);
  Value base = arith::SelectOp::create(b, k.loc, unseen, constant(b, 0), x[1]);
  Value shifted = arith::SubFOp::create(b, k.loc, x[0], base);
  return {math::Exp2Op::create(b, k.loc, shifted)};
}

/// One tile of keys: with `masked`, the mask and the item's key range are applied.
AttendKernel::State AttendKernel::step(Value tile, State state, TileWalk *masked) {
  Value key = KernelBuilder::called("first_key", k.mul(tile, k.idx(keys)));
  Value count = masked ? k.min(k.sub(keyEnd, key), k.idx(keys)) : k.idx(keys);
  auto addresses = [&](bool isValue) {
    Value all = KernelBuilder::called(isValue ? "v_rows" : "k_rows", keyRows(isValue, key, count));
    if (!masked)
      return all;
    // Keys that no row may see are zeros, whatever their memory holds.
    return k.map(cast<RankedTensorType>(all.getType()), {all},
                 [&](OpBuilder &b, ValueRange element, Value row, Value) -> SmallVector<Value> {
                   Value wide = arith::IndexCastOp::create(b, k.loc, b.getIndexType(), row);
                   Value seen = masked->mayContain(b, arith::AddIOp::create(b, k.loc, key, wide));
                   Value none = arith::ConstantOp::create(b, k.loc, b.getI64IntegerAttr(-1));
                   return {arith::SelectOp::create(b, k.loc, seen, element[0], none)};
                 });
  };
  Value keyTile = loadKeys(/*isValue=*/false, addresses(false));
  Value zero = k.splat(rowCount, keys / slices, 0);
  Value products = tile::MmaOp::create(k.b, k.named("s"), zero.getType(), query, keyTile, zero,
                                       /*transposeB=*/true, slices);
  Value scores =
      ScoreMap(k, rows, key, keyEnd, slices).build(products, masked ? keyBegin : Value());

  Value highest = KernelBuilder::called("m_new", k.reduce(tile::Combiner::Max, scores));
  Value m = k.map(columnF32(), {state.m, highest},
                  [&](OpBuilder &b, ValueRange x, Value, Value) -> SmallVector<Value> {
                    return {arith::MaximumFOp::create(b, k.loc, x[0], x[1])};
                  });
  auto weightOf = [&](OpBuilder &b, ValueRange x, Value, Value) { return weight(b, x); };
  Value alpha = KernelBuilder::called("alpha", k.map(columnF32(), {state.m, m}, weightOf));
  Value weights = k.map(cast<RankedTensorType>(scores.getType()), {scores, m}, weightOf);
  Value sum = KernelBuilder::called("row_sum", k.reduce(tile::Combiner::Sum, weights));
  Value l = k.map(columnF32(), {state.l, alpha, sum},
                  [&](OpBuilder &b, ValueRange x, Value, Value) -> SmallVector<Value> {
                    return {math::FmaOp::create(b, k.loc, x[0], x[1], x[2])};
                  });
  Value valueRows = addresses(true);
  if (masked && hidesByData())
    valueRows = onlySeen(valueRows, scores);
  Value valueTile = loadKeys(/*isValue=*/true, valueRows);
  auto valueType = cast<RankedTensorType>(valueTile.getType()).getElementType();
  if (!valueType.isF32())
    weights = KernelBuilder::called(
        "weights", k.map(k.tileType(rowCount, keys / slices, valueType), {weights},
                         [&](OpBuilder &b, ValueRange x, Value, Value) -> SmallVector<Value> {
                           return {arith::TruncFOp::create(b, k.loc, valueType, x[0])};
                         }));
  Value scaled = k.map(cast<RankedTensorType>(state.acc.getType()), {state.acc, alpha},
                       [&](OpBuilder &b, ValueRange x, Value, Value) -> SmallVector<Value> {
                         return {arith::MulFOp::create(b, k.loc, x[0], x[1])};
                       });
  Value acc = tile::MmaOp::create(k.b, k.loc, scaled.getType(), weights, valueTile, scaled,
                                  /*transposeB=*/false, slices);
  return {acc, m, l};
}

AttendKernel::State AttendKernel::walkKeys() {
  auto position = [&](Value packed) {
    Value entry = arith::DivUIOp::create(k.b, k.loc, packed, k.idx(group));
    return k.word(BufferRole::Rows, entry, 2, WORD_OF(RowEntry, position), /*isSigned=*/true);
  };
  Value last = k.add(firstRow, k.max(k.sub(rowsUsed, k.idx(1)), k.idx(0)));
  TileWalk walk(k, bounds,
                {position(firstRow), position(last), queryLen, keyLen, keyBegin, keyEnd,
                 [&](unsigned scalar) {
                   return perHeadRange(k, scalar, k.mul(kvHead, k.idx(group)), group);
                 }},
                keys);

  Value zero = k.idx(0);
  SmallVector<Value> init{walk.next(k.floorDiv(keyBegin, keys)),
                          k.splat(rowCount, op.getVDim(), 0),
                          k.splat(rowCount, 1, -INFINITY),
                          k.splat(rowCount, 1, 0),
                          zero,
                          zero};
  SmallVector<Type> types = llvm::to_vector(ValueRange(init).getTypes());
  auto loop = scf::WhileOp::create(k.b, k.loc, types, init);
  SmallVector<Location> locs;
  for (StringRef name : {"tile", "acc", "m", "l", "visited", "predicated"})
    locs.push_back(k.named(name));
  OpBuilder::InsertionGuard guard(k.b);
  Block *before = k.b.createBlock(&loop.getBefore(), {}, types, locs);
  Value more = k.cmp(Pred::slt, before->getArgument(0), walk.none());
  scf::ConditionOp::create(k.b, k.loc, more, before->getArguments());

  Block *body = k.b.createBlock(&loop.getAfter(), {}, types, locs);
  Value tile = body->getArgument(0);
  Value end = KernelBuilder::called("full_end", walk.runEnd(tile));
  auto run = [&](Value lo, Value hi, ValueRange state, TileWalk *masked) {
    SmallVector<Value> last =
        k.forEach(lo, hi, state, [&](Value u, ValueRange s) -> SmallVector<Value> {
          State next = step(u, {s[0], s[1], s[2]}, masked);
          return {next.acc, next.m, next.l};
        });
    if (masked)
      last[0].getDefiningOp()->setAttr(tile::kOnceAttr, k.b.getUnitAttr());
    return last;
  };
  SmallVector<Value> full = run(tile, end, body->getArguments().slice(1, 3), nullptr);
  Value isPartial = k.cmp(Pred::eq, end, tile);
  Value stop = k.select(isPartial, k.add(tile, k.idx(1)), tile);
  SmallVector<Value> state = run(tile, stop, full, &walk);
  Value after = k.max(end, stop);
  Value seen = k.add(body->getArgument(4), k.sub(after, tile));
  Value hidden = k.add(body->getArgument(5), k.sub(stop, tile));
  scf::YieldOp::create(k.b, k.loc,
                       ValueRange{walk.next(after), state[0], state[1], state[2], seen, hidden});
  visited = loop.getResult(4), predicated = loop.getResult(5);
  return {loop.getResult(1), loop.getResult(2), loop.getResult(3)};
}

/// The state over all keys: what the slices saw, brought to their common maximum.
AttendKernel::State AttendKernel::foldSlices(State state) {
  if (slices == 1)
    return state;
  auto fold = [&](tile::Combiner combiner, Value tile, int64_t rowsOfResult) -> Value {
    auto type = cast<RankedTensorType>(tile.getType());
    return tile::FoldOp::create(k.b, k.loc,
                                k.tileType(rowsOfResult, type.getDimSize(1), type.getElementType()),
                                combiner, tile, slices);
  };
  auto scaled = [&](Value tile, Value alpha) {
    return k.map(cast<RankedTensorType>(tile.getType()), {tile, alpha},
                 [&](OpBuilder &b, ValueRange x, Value, Value) -> SmallVector<Value> {
                   return {arith::MulFOp::create(b, k.loc, x[0], x[1])};
                 });
  };
  Value top = fold(tile::Combiner::Max, state.m, rowCount);
  Value alpha = k.map(columnF32(), {state.m, top},
                      [&](OpBuilder &b, ValueRange x, Value, Value) { return weight(b, x); });
  State whole{fold(tile::Combiner::Sum, scaled(state.acc, alpha), itemRows),
              fold(tile::Combiner::Max, state.m, itemRows),
              fold(tile::Combiner::Sum, scaled(state.l, alpha), itemRows)};
  rowCount = itemRows; // what follows is about the item's rows
  for (auto &[buffer, value] : rows.perHead)
    if (k.signature.buffers[buffer].role == BufferRole::SinkLogit)
      value = perHead(buffer);
  return whole;
}

/// acc / l, 0 for a row that saw no key. A sink logit joins the denominator (design: a
/// learned sink acts in the final normalisation only).
Value AttendKernel::normalise(State state, bool withSink) {
  SmallVector<Value> inputs{state.acc, state.l};
  if (withSink)
    inputs.append({state.m, rows.perHead.lookup(k.signature.findBuffer(BufferRole::SinkLogit))});
  return k.map(
      cast<RankedTensorType>(state.acc.getType()), inputs,
      [&](OpBuilder &b, ValueRange x, Value, Value) -> SmallVector<Value> {
        Value sum = x[1], acc = x[0], zero = constant(b, 0);
        Value unseen = arith::CmpFOp::create(b, k.loc, arith::CmpFPredicate::OEQ, sum, zero);
        if (withSink) {
          Value sink = arith::MulFOp::create(b, k.loc, x[3], constant(b, std::numbers::log2e));
          Value top = arith::MaximumFOp::create(b, k.loc, x[2], sink);
          Value rescale =
              math::Exp2Op::create(b, k.loc, arith::SubFOp::create(b, k.loc, x[2], top));
          Value extra = math::Exp2Op::create(b, k.loc, arith::SubFOp::create(b, k.loc, sink, top));
          sum = math::FmaOp::create(b, k.loc, sum, rescale, extra);
          acc = arith::MulFOp::create(b, k.loc, acc, rescale);
        }
        Value quotient = arith::DivFOp::create(b, k.loc, acc, sum);
        return {arith::SelectOp::create(b, k.loc, unseen, zero, quotient)};
      });
}

void AttendKernel::store(State state) {
  Value direct = k.cmp(Pred::slt, partialSlot, k.idx(0));
  bool hasSink = k.signature.findBuffer(BufferRole::SinkLogit) >= 0;
  Value output = normalise(state, hasSink);
  Value partial = hasSink ? normalise(state, false) : output;
  Value lse =
      k.map(columnF32(), {state.m, state.l},
            [&](OpBuilder &b, ValueRange x, Value, Value) -> SmallVector<Value> {
              Value log = math::Log2Op::create(b, k.loc, x[1]);
              Value sum = arith::AddFOp::create(b, k.loc, x[0], log);
              Value natural = arith::MulFOp::create(b, k.loc, sum, constant(b, std::numbers::ln2));
              Value unseen =
                  arith::CmpFOp::create(b, k.loc, arith::CmpFPredicate::OEQ, x[1], constant(b, 0));
              return {arith::SelectOp::create(b, k.loc, unseen, constant(b, -INFINITY), natural)};
            });
  auto put = [&](Value tile, int buffer, Value addresses, Value inner) {
    tile::StoreOp::create(k.b, k.loc, tile, k.pointer(buffer), addresses, Value(), inner, Value());
  };
  int o = k.signature.findBuffer(BufferRole::Output);
  TokenArray outputArray(k, o, op.isRaggedQuery());
  put(output, o, rowAddresses(outputArray, direct), outputArray.innerStride);
  if (int buffer = k.signature.findBuffer(BufferRole::Lse); buffer >= 0)
    put(lse, buffer, rowAddresses(TokenArray(k, buffer, op.isRaggedQuery()), direct), Value());

  // Partials: consecutive rows from the item's slot on.
  Value count = k.select(direct, k.idx(0), rowsUsed);
  auto partialRows = [&](int64_t width) {
    RankedTensorType type = column(k.b.getI64Type());
    return tile::StridedRowsOp::create(k.b, k.loc, type, k.mul(partialSlot, k.idx(width)),
                                       k.idx(width), count);
  };
  put(partial, k.signature.findBuffer(BufferRole::PartialOut), partialRows(op.getVDim()), Value());
  put(lse, k.signature.findBuffer(BufferRole::PartialLse), partialRows(1), Value());
}

void AttendKernel::emitItem(Value item) {
  rowCount = itemRows * slices;
  loadItem(item);
  loadRows();
  store(foldSlices(walkKeys()));
  Value counters = k.pointer(BufferRole::Counters);
  auto count = [&](unsigned which, Value amount) {
    Value place = k.add(k.mul(k.worker(), k.idx(2)), k.idx(which));
    Value old = memref::LoadOp::create(k.b, k.loc, counters, place);
    Value wide = arith::IndexCastOp::create(k.b, k.loc, k.b.getI64Type(), amount);
    memref::StoreOp::create(k.b, k.loc, arith::AddIOp::create(k.b, k.loc, old, wide), counters,
                            place);
  };
  count(0, visited);
  count(1, predicated);
}

} // namespace

void llmopt::emitAttendKernel(ModuleOp module, const Signature &signature, StringRef name,
                              int64_t rows, int64_t keys, int64_t slices) {
  AttendKernel(module, signature, name, rows, keys, slices).emit();
}

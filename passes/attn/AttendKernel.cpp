// See AttendKernel.h: the items of a worker, their rows, and what is written at their end.
#include "passes/attn/AttendBuilder.h"

#include "mlir/Dialect/Math/IR/Math.h"

#include <cmath>
#include <numbers>
#include <utility>

using namespace mlir;
using namespace llmopt;
using bundle::BufferRole;
using Pred = arith::CmpIPredicate;

AttendBuilder::AttendBuilder(ModuleOp module, const Signature &signature, const KernelName &kernel)
    : op(signature.attention), k(module, op.getLoc(), signature, kernel.name),
      itemRows(kernel.rows), rowCount(kernel.rows * kernel.slices * kernel.heads),
      keys(kernel.keys), slices(kernel.slices), heads(kernel.heads), endRows(kernel.endRows),
      partRows(kernel.partRows), oneLoop(kernel.oneLoop), branchScores(kernel.branchScores),
      bounds(boundsOf(signature)), group(op.getGroup()) {
  endRows = std::min(endRows, itemRows);
  if (endRows > 0 && itemRows % endRows)
    endRows = 0;
  // tile.used_rows speaks of all tiles with that many rows: keys' are not to be among them.
  if (rowCount <= partRows || rowCount == keys || slices > 1 || heads > 1)
    partRows = 0;
}

void AttendBuilder::emit() {
  if (op.getScheduleAttr() && op.getScheduleAttr().getBatchInvariant())
    k.func->setAttr("tile.batch_invariant", k.b.getUnitAttr());
  auto [first, last] = k.range(BufferRole::ItemOffsets);
  k.forEach("item", first, last, heads, [&](Value at) {
    KernelBuilder::noted("Work items: packed rows of one KV head against a range of the keys of "
                         "one sequence.",
                         at);
    emitItem(at);
  });
  k.finish();
}

void AttendBuilder::loadItem() {
  auto of = [&](StringRef name, const RecordField &field) {
    return KernelBuilder::called(name, k.field(BufferRole::Items, item, field));
  };
  firstRow = of("first_row", LLMOPT_FIELD(WorkItem, firstRow));
  rowsUsed = of("row_count", LLMOPT_FIELD(WorkItem, rowCount));
  kvHead = of("kv_head", LLMOPT_FIELD(WorkItem, kvHead));
  sequence = of("sequence", LLMOPT_FIELD(WorkItem, sequence));
  partialSlot = of("partial_slot", LLMOPT_FIELD(WorkItem, partialSlot));
  flags = of("flags", LLMOPT_FIELD(WorkItem, flags));
  auto ofSequence = [&](StringRef name, const RecordField &field) {
    return KernelBuilder::called(name, k.field(BufferRole::Sequences, sequence, field));
  };
  queryBase =
      KernelBuilder::noted("Its sequence: first token, key, page; lengths.",
                           ofSequence("query_base", LLMOPT_FIELD(SequenceRecord, queryBase)));
  keyBase = ofSequence("key_base", LLMOPT_FIELD(SequenceRecord, keyBase));
  queryLen = ofSequence("query_len", LLMOPT_FIELD(SequenceRecord, queryLen));
  keyLen = ofSequence("key_len", LLMOPT_FIELD(SequenceRecord, keyLen));
  tableBase = ofSequence("table_base", LLMOPT_FIELD(SequenceRecord, tableBase));
  batch = ofSequence("batch", LLMOPT_FIELD(SequenceRecord, batch));
  keyBegin = of("key_begin", LLMOPT_FIELD(WorkItem, keyBegin));
  Value itemEnd = of("item_key_end", LLMOPT_FIELD(WorkItem, keyEnd));
  keyEnd = KernelBuilder::called("key_end", k.min(itemEnd, keyLen));
}

Value AttendBuilder::rowTile(Type element,
                             llvm::function_ref<Value(Value, Value, Value, Value)> value) {
  auto map = tile::MapOp::create(k.b, k.loc, TypeRange{column(element)}, ValueRange{}, ArrayAttr());
  OpBuilder::InsertionGuard guard(k.b);
  Block *block =
      k.b.createBlock(&map.getBody(), {}, {k.b.getI32Type(), k.b.getI32Type()}, {k.loc, k.loc});
  Value row = arith::IndexCastOp::create(k.b, k.loc, k.b.getIndexType(), block->getArgument(0));
  Value firstHead = kvHead;
  if (heads > 1)
    firstHead = k.add(kvHead, arith::DivUIOp::create(k.b, k.loc, row, k.idx(itemRows)));
  if (rowCount > itemRows)
    row = arith::RemUIOp::create(k.b, k.named("row_in_item"), row, k.idx(itemRows));
  if (firstOfTurn)
    row = KernelBuilder::called("row", k.add(firstOfTurn, row));
  Value last = KernelBuilder::called("last_item_row", k.max(k.sub(rowsUsed, k.idx(1)), k.idx(0)));
  Value packed = KernelBuilder::called(
      "packed_row", k.add(firstRow, KernelBuilder::called("item_row", k.min(row, last))));
  Value entry = KernelBuilder::called("query_entry",
                                      arith::DivUIOp::create(k.b, k.loc, packed, k.idx(group)));
  Value inGroup = k.sub(packed, k.mul(entry, k.idx(group)));
  Value head = KernelBuilder::called("query_head", k.add(k.mul(firstHead, k.idx(group)), inGroup));
  Value queryIndex = KernelBuilder::called(
      "query_index", k.field(BufferRole::Rows, entry, LLMOPT_FIELD(RowEntry, query)));
  Value position = k.field(BufferRole::Rows, entry, LLMOPT_FIELD(RowEntry, position));
  Value result = value(queryIndex, head, position, row);
  tile::YieldOp::create(k.b, k.loc, ValueRange{result});
  return map.getResult(0);
}

Value AttendBuilder::rowAddresses(const TokenArray &array, Value wanted) {
  return rowTile(k.b.getI64Type(), [&](Value queryIndex, Value head, Value, Value row) {
    Value offset =
        KernelBuilder::called("row_offset", array.offset(k, batch, queryBase, queryIndex, head));
    if (!isa<NameLoc>(row.getLoc()))
      KernelBuilder::called("row", row);
    Value used = k.cmp(Pred::slt, row, rowsUsed);
    if (wanted)
      used = arith::AndIOp::create(k.b, k.loc, used, wanted);
    Value address = k.select(used, offset, k.idx(-1));
    return arith::IndexCastOp::create(k.b, k.loc, k.b.getI64Type(), address).getResult();
  });
}

Value AttendBuilder::perHead(int buffer) {
  bool isFloat = isa<FloatType>(k.elementType(buffer));
  Type element = isFloat ? Type(k.b.getF32Type()) : Type(k.b.getI32Type());
  return rowTile(element, [&](Value, Value head, Value, Value) { return k.perHead(buffer, head); });
}

void AttendBuilder::loadRows() {
  Type i32 = k.b.getI32Type();
  auto cast = [&](Value index) {
    return arith::IndexCastOp::create(k.b, k.loc, i32, index).getResult();
  };
  rows = RowTiles();
  auto known = [&](StringRef name, StringRef note, Value tile) {
    return KernelBuilder::noted(note, KernelBuilder::called(name, tile));
  };
  rows.position =
      known("position", "Positions of this thread's rows among the keys.",
            rowTile(i32, [&](Value, Value, Value position, Value) { return cast(position); }));
  rows.query =
      known("query", "Queries of this thread's rows, in their sequence.",
            rowTile(i32, [&](Value queryIndex, Value, Value, Value) { return cast(queryIndex); }));
  rows.head = known("head", "Heads of this thread's rows.",
                    rowTile(i32, [&](Value, Value head, Value, Value) { return cast(head); }));
  rows.batch = batch, rows.queryLen = queryLen, rows.keyLen = keyLen;
  for (auto [i, buffer] : llvm::enumerate(k.signature.buffers)) {
    if (buffer.role == BufferRole::PerHead || buffer.role == BufferRole::SinkLogit)
      rows.perHead[i] = perHead(i);
    if (buffer.role != BufferRole::Bias && buffer.role != BufferRole::DenseMask)
      continue;
    // Rows beyond the item's read what its last one reads, not zeros: those would let them see keys
    // that none of its rows sees, whose values may be NaN (onlySeen).
    rows.addresses[i] = rowTile(k.b.getI64Type(), [&](Value queryIndex, Value head, Value, Value) {
      Value offset = k.add(k.mul(batch, k.stride(i, 0)),
                           k.add(k.mul(head, k.stride(i, 1)), k.mul(queryIndex, k.stride(i, 2))));
      return arith::IndexCastOp::create(k.b, k.loc, k.b.getI64Type(), offset).getResult();
    });
  }
  if (k.signature.findBuffer(BufferRole::Tree) >= 0)
    loadTree();
  int q = k.signature.findBuffer(BufferRole::Query);
  TokenArray array(k, q, op.isRaggedQuery());
  Location named = k.named("q");
  // All slices have the same queries: they are there once.
  int64_t stacked = std::exchange(rowCount, rowCount / slices);
  Value addresses =
      KernelBuilder::noted("Q: where its rows lie, and its copy, once for the item.",
                           KernelBuilder::called("q_rows", rowAddresses(array, Value())));
  rowCount = stacked;
  query = tile::LoadOp::create(k.b, named,
                               k.tileType(itemRows * heads, op.getQkDim(), k.elementType(q)),
                               k.pointer(q), addresses, Value(), array.innerStride, Value());
}

void AttendBuilder::loadTree() {
  int buffer = k.signature.findBuffer(BufferRole::Tree);
  rows.treeSet = KernelBuilder::called(
      "tree_set", rowTile(k.b.getI64Type(), [&](Value queryIndex, Value, Value, Value) {
        Value offset = op.isRaggedQuery() ? k.mul(k.add(queryBase, queryIndex), k.stride(buffer, 0))
                                          : k.add(k.mul(batch, k.stride(buffer, 0)),
                                                  k.mul(queryIndex, k.stride(buffer, 1)));
        // Rows beyond the item's repeat its last one, which shows no key that the others do not.
        Value used = k.select(k.cmp(Pred::slt, k.idx(0), rowsUsed), offset, k.idx(0));
        return memref::LoadOp::create(k.b, k.loc, k.pointer(buffer), used).getResult();
      }));
  rows.placeByTree(k);
}

AttendBuilder::State AttendBuilder::scaleSlices(State state) {
  if (slices == 1)
    return state;
  auto scaled = [&](Value tile, Value alpha) {
    return k.map(cast<RankedTensorType>(tile.getType()), {tile, alpha},
                 [&](OpBuilder &b, ValueRange x, Value, Value) -> SmallVector<Value> {
                   return {arith::MulFOp::create(b, k.loc, x[0], x[1])};
                 });
  };
  Value top = KernelBuilder::noted(
      "The slices' states become one: all scaled to the common maximum, then summed.",
      KernelBuilder::called("m_all", tile::FoldOp::create(k.b, k.loc, state.m.getType(),
                                                          tile::Combiner::Max, state.m, slices)));
  Value alpha = weights("alpha", state.m, baseOf(top));
  return {scaled(state.acc, alpha), state.m, scaled(state.l, alpha)};
}

void AttendBuilder::finishItem(State state) {
  State parts = scaleSlices(state);
  auto fold = [&](StringRef name, tile::Combiner combiner, Value tile) -> Value {
    auto type = cast<RankedTensorType>(tile.getType());
    auto folded = tile::FoldOp::create(
        k.b, k.loc, k.tileType(rowCount, type.getDimSize(1), type.getElementType()), combiner, tile,
        slices);
    if (firstOfTurn)
      folded.getFirstMutable().assign(firstOfTurn);
    return KernelBuilder::called(name, folded);
  };
  // What follows is about the item's rows.
  auto write = [&] {
    State whole{fold("acc_all", tile::Combiner::Sum, parts.acc),
                fold("m_all", tile::Combiner::Max, parts.m),
                fold("l_all", tile::Combiner::Sum, parts.l)};
    for (auto &[buffer, value] : rows.perHead)
      if (k.signature.buffers[buffer].role == BufferRole::SinkLogit)
        value = perHead(buffer);
    store(whole);
  };
  if (endRows > 0) {
    rowCount = endRows;
    k.forEach("first_of_turn", k.idx(0), k.idx(itemRows), endRows, [&](Value first) {
      KernelBuilder::noted("The results, some rows at a time.", first);
      firstOfTurn = first;
      write();
      firstOfTurn = Value();
    });
  } else if (slices > 1) {
    rowCount = itemRows;
    write();
  } else {
    store(parts);
  }
}

/// What a row's acc is multiplied by: 1 / l, and 0 where it saw no key. A sink logit joins the
/// denominator (design: a learned sink acts in the final normalisation only).
Value AttendBuilder::normaliser(State state, bool withSink) {
  SmallVector<Value> inputs{state.l};
  if (withSink)
    inputs.append({state.m, rows.perHead.lookup(k.signature.findBuffer(BufferRole::SinkLogit))});
  return k.map(
      columnF32(), inputs, [&](OpBuilder &b, ValueRange x, Value, Value) -> SmallVector<Value> {
        Value sum = x[0], factor = constant(b, 1), zero = constant(b, 0);
        Value unseen = arith::CmpFOp::create(b, k.loc, arith::CmpFPredicate::OEQ, sum, zero);
        if (withSink) {
          auto exp2Of = [&](Value exponent, Value top) -> Value {
            return math::Exp2Op::create(b, k.loc, arith::SubFOp::create(b, k.loc, exponent, top));
          };
          Value sink = arith::MulFOp::create(b, k.loc, x[2], constant(b, std::numbers::log2e));
          Value top = arith::MaximumFOp::create(b, k.loc, x[1], sink);
          factor = exp2Of(x[1], top);
          sum = math::FmaOp::create(b, k.loc, sum, factor, exp2Of(sink, top));
        }
        Value quotient = arith::DivFOp::create(b, k.named("factor"), factor, sum);
        return {arith::SelectOp::create(b, k.loc, unseen, zero, quotient)};
      });
}

/// acc times its row's normaliser. A row that saw no key has 0, whatever the values that its
/// weights of 0 met.
Value AttendBuilder::normalise(State state, bool withSink) {
  Value factor = KernelBuilder::called("normaliser", normaliser(state, withSink));
  return k.map(cast<RankedTensorType>(state.acc.getType()), {state.acc, factor},
               [&](OpBuilder &b, ValueRange x, Value, Value) -> SmallVector<Value> {
                 Value zero = constant(b, 0);
                 Value unseen =
                     arith::CmpFOp::create(b, k.loc, arith::CmpFPredicate::OEQ, x[1], zero);
                 Value scaled = arith::MulFOp::create(b, k.loc, x[0], x[1]);
                 return {arith::SelectOp::create(b, k.loc, unseen, zero, scaled)};
               });
}

/// Consecutive rows from the item's slot on, none where it is `direct`; with several heads, from
/// the slots of their items.
Value AttendBuilder::partialRows(int64_t width, Value direct) {
  if (heads > 1)
    return rowTile(k.b.getI64Type(), [&](Value, Value head, Value, Value row) {
      Value own =
          k.add(item, k.sub(arith::DivUIOp::create(k.b, k.loc, head, k.idx(group)), kvHead));
      Value slot = k.field(BufferRole::Items, own, LLMOPT_FIELD(WorkItem, partialSlot));
      Value used = k.cmp(Pred::slt, row, k.select(direct, k.idx(0), rowsUsed));
      Value address = k.select(used, k.mul(k.add(slot, row), k.idx(width)), k.idx(-1));
      return arith::IndexCastOp::create(k.b, k.loc, k.b.getI64Type(), address).getResult();
    });
  Value count = KernelBuilder::called("partial_count", k.select(direct, k.idx(0), rowsUsed));
  Value left = firstOfTurn ? KernelBuilder::called("rows_left", k.sub(count, firstOfTurn)) : count;
  Value first = partialSlot;
  if (firstOfTurn)
    first = KernelBuilder::called("first_partial", k.add(partialSlot, firstOfTurn));
  return KernelBuilder::called(
      "partial_rows", tile::StridedRowsOp::create(k.b, k.loc, column(k.b.getI64Type()),
                                                  k.mul(first, k.idx(width)), k.idx(width), left));
}

void AttendBuilder::store(State state) {
  Value direct = KernelBuilder::called("is_whole", k.cmp(Pred::slt, partialSlot, k.idx(0)));
  bool hasSink = k.signature.findBuffer(BufferRole::SinkLogit) >= 0;
  Value partial = KernelBuilder::noted("Output: acc / l, and 0 for rows that saw no key.",
                                       KernelBuilder::called("o", normalise(state, false)));
  Value output = partial;
  if (hasSink)
    output = KernelBuilder::noted("The same with the sink's logit in the denominator.",
                                  KernelBuilder::called("o_with_sink", normalise(state, true)));
  Value lse = KernelBuilder::noted(
      "The log of the sum of exponentials, natural; -inf for rows that saw no key.",
      KernelBuilder::called(
          "lse", k.map(columnF32(), {state.m, state.l},
                       [&](OpBuilder &b, ValueRange x, Value, Value) -> SmallVector<Value> {
                         Value log =
                             math::Log2Op::create(b, k.loc, x[1], arith::FastMathFlags::afn);
                         Value sum = arith::AddFOp::create(b, k.loc, x[0], log);
                         Value natural =
                             arith::MulFOp::create(b, k.loc, sum, constant(b, std::numbers::ln2));
                         Value unseen = arith::CmpFOp::create(b, k.loc, arith::CmpFPredicate::OEQ,
                                                              x[1], constant(b, 0));
                         return {arith::SelectOp::create(b, k.loc, unseen, constant(b, -INFINITY),
                                                         natural)};
                       })));
  auto put = [&](Value tile, int buffer, Value addresses, Value inner) {
    tile::StoreOp::create(k.b, k.loc, tile, k.pointer(buffer), addresses, Value(), inner, Value());
  };
  int o = k.signature.findBuffer(BufferRole::Output);
  TokenArray outputArray(k, o, op.isRaggedQuery());
  put(output, o,
      KernelBuilder::noted("A whole item writes its rows; one of several splits has no address.",
                           KernelBuilder::called("o_rows", rowAddresses(outputArray, direct))),
      outputArray.innerStride);
  if (int buffer = k.signature.findBuffer(BufferRole::Lse); buffer >= 0)
    put(lse, buffer,
        KernelBuilder::called("lse_rows",
                              rowAddresses(TokenArray(k, buffer, op.isRaggedQuery()), direct)),
        Value());

  put(partial, k.signature.findBuffer(BufferRole::PartialOut),
      KernelBuilder::noted("A split writes f32 rows for the merge kernel.",
                           partialRows(op.getVDim(), direct)),
      Value());
  put(lse, k.signature.findBuffer(BufferRole::PartialLse), partialRows(1, direct), Value());
}

void AttendBuilder::emitItem(Value at) {
  rowCount = itemRows * slices * heads;
  item = at;
  loadItem();
  loadRows();
  finishItem(walkKeys());
  Value counters = k.pointer(BufferRole::Counters);
  auto count = [&](unsigned which, Value amount) {
    Value place =
        k.add(KernelBuilder::called("counters_at", k.mul(k.worker(), k.idx(2))), k.idx(which));
    if (which)
      KernelBuilder::called("masked_at", place);
    Value old = KernelBuilder::noted(
        which == 0 ? "For this worker's counters: tiles visited, ..." : "... and masked.",
        memref::LoadOp::create(k.b, k.named("before"), counters, place));
    Value wide = arith::IndexCastOp::create(k.b, k.loc, k.b.getI64Type(), amount);
    memref::StoreOp::create(k.b, k.loc, arith::AddIOp::create(k.b, k.loc, old, wide), counters,
                            place);
  };
  auto ofAll = [&](Value tiles) { return heads > 1 ? k.mul(tiles, k.idx(heads)) : tiles; };
  count(0, ofAll(visited));
  count(1, ofAll(predicated));
}

void llmopt::emitAttendKernel(ModuleOp module, const Signature &signature,
                              const KernelName &kernel) {
  AttendBuilder(module, signature, kernel).emit();
}

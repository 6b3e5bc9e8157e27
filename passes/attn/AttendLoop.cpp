// See AttendKernel.h: the walk over the tiles of keys that an item's rows may see, and the
// online softmax of one tile.
#include "passes/attn/AttendBuilder.h"

#include "mlir/Dialect/Math/IR/Math.h"

#include <cmath>
#include <cstddef>

using namespace mlir;
using namespace llmopt;
using bundle::BufferRole;
using Pred = arith::CmpIPredicate;

/// Where both K and V are brought by copies that are begun together, their pages are looked up
/// once: the page of each of `count` keys from `key` on, -1 for none. Null otherwise.
Value AttendBuilder::keyPages(Value key, Value count) {
  attn::KvCacheType cache = op.getCacheType();
  if (!cache || !oneLoop || branchScores)
    return {};
  // A row address at 1 a page and 0 a slot is the page's number.
  return KernelBuilder::called(
      "table_pages",
      tile::PagedRowsOp::create(k.b, k.loc, k.tileType(keys, 1, k.b.getI64Type()),
                                k.pointer(BufferRole::BlockTable), tableBase, key, count,
                                cache.getPageSize(), k.idx(0), k.idx(1), k.idx(0)));
}

/// Addresses of `count` keys from `key` on, of K or V; in `pages`, if they are known.
Value AttendBuilder::keyRows(bool isValue, Value key, Value count, Value pages) {
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
  Value offset =
      KernelBuilder::called(isValue ? "v_head" : "k_head", k.mul(kvHead, headStride(isValue)));
  if (isValue && cache.getInterleaved())
    offset = k.add(offset, k.stride(pool, 1));
  if (pages)
    return k.map(type, {pages}, [&](OpBuilder &b, ValueRange x, Value row, Value) {
      // The key's place in its page: keys and pages' sizes are 32-bit numbers.
      Value position = arith::AddIOp::create(b, k.loc, k.toI32(key), row);
      Value size = arith::ConstantOp::create(b, k.loc, b.getI32IntegerAttr(cache.getPageSize()));
      Value slot = arith::RemUIOp::create(b, k.named("slot"), position, size);
      Value wide = arith::IndexCastUIOp::create(b, k.loc, b.getIndexType(), slot);
      Value page = arith::IndexCastOp::create(b, k.loc, b.getIndexType(), x[0]);
      auto times = [&](Value x, Value y) { return arith::MulIOp::create(b, k.loc, x, y); };
      auto plus = [&](Value x, Value y) { return arith::AddIOp::create(b, k.loc, x, y); };
      Value address = KernelBuilder::called(
          isValue ? "v_row" : "k_row",
          plus(plus(offset, times(page, k.stride(pool, 0))), times(wide, slotStride)));
      Value none = arith::ConstantOp::create(b, k.loc, b.getI64IntegerAttr(-1));
      Value absent = arith::CmpIOp::create(
          b, k.loc, Pred::slt, x[0],
          arith::ConstantOp::create(b, k.loc, b.getIntegerAttr(x[0].getType(), 0)));
      return SmallVector<Value>{arith::SelectOp::create(
          b, k.loc, absent, none, arith::IndexCastOp::create(b, k.loc, b.getI64Type(), address))};
    });
  return tile::PagedRowsOp::create(k.b, k.loc, type, k.pointer(BufferRole::BlockTable), tableBase,
                                   key, count, cache.getPageSize(), offset, k.stride(pool, 0),
                                   slotStride);
}

/// From a head's row of a page to the next head's.
Value AttendBuilder::headStride(bool isValue) {
  attn::KvCacheType cache = op.getCacheType();
  bool ownPool = isValue && !cache.getInterleaved();
  int pool = k.signature.findBuffer(ownPool ? BufferRole::ValuePool : BufferRole::KeyPool);
  return k.stride(pool, (cache.getInterleaved() ? 2 : 1) + (cache.getHeadMajor() ? 0 : 1));
}

Value AttendBuilder::loadKeys(bool isValue, Value addresses) {
  attn::KvCacheType cache = op.getCacheType();
  BufferRole role = isValue ? BufferRole::Value : BufferRole::Key;
  if (cache)
    role = isValue && !cache.getInterleaved() ? BufferRole::ValuePool : BufferRole::KeyPool;
  int buffer = k.signature.findBuffer(role);
  Value inner = cache ? Value() : TokenArray(k, buffer, op.isRaggedKv()).innerStride;
  int64_t dim = isValue ? op.getVDim() : op.getQkDim();
  Location named = k.named(isValue ? "v" : "k");
  RankedTensorType type = k.tileType(keys * heads, dim, k.elementType(buffer));
  if (heads > 1)
    return tile::LoadOp::create(k.b, named, type, k.pointer(buffer), addresses, Value(), inner,
                                Value(), headStride(isValue), heads);
  return tile::LoadOp::create(k.b, named, type, k.pointer(buffer), addresses, Value(), inner,
                              Value());
}

/// True where the intervals do not tell which keys of a tile are hidden from all its rows: in a
/// tile with a mask, or, since a bias of -inf hides, in each one.
bool AttendBuilder::hidesByData(bool masked) {
  return (masked && !bounds.exact) || k.signature.findBuffer(BufferRole::Bias) >= 0;
}

/// Takes the address from keys that the scores of no row see: 0 times their value would
/// be NaN where that is NaN or infinite.
Value AttendBuilder::onlySeen(Value addresses, Value scores) {
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

Value AttendBuilder::baseOf(Value m) {
  return KernelBuilder::called(
      "shift", k.map(columnF32(), {m}, [&](OpBuilder &b, ValueRange x, Value, Value) {
        Value unseen = arith::CmpFOp::create(b, k.loc, arith::CmpFPredicate::OEQ, x[0],
                                             constant(b, -INFINITY));
        return SmallVector<Value>{arith::SelectOp::create(b, k.loc, unseen, constant(b, 0), x[0])};
      }));
}

Value AttendBuilder::weights(StringRef name, Value scores, Value base) {
  auto type = cast<RankedTensorType>(scores.getType());
  return KernelBuilder::called(
      name, k.map(type, {scores, base}, [&](OpBuilder &b, ValueRange x, Value, Value) {
        Value shifted = arith::SubFOp::create(b, k.loc, x[0], x[1]);
        return SmallVector<Value>{math::Exp2Op::create(b, k.loc, shifted)};
      }));
}

/// `condition` ? then() : otherwise(), one of which is run.
ResultRange AttendBuilder::choose(TypeRange types, Value condition,
                                  llvm::function_ref<SmallVector<Value>()> then,
                                  llvm::function_ref<SmallVector<Value>()> otherwise) {
  auto branch = scf::IfOp::create(k.b, k.loc, types, condition, true);
  OpBuilder::InsertionGuard guard(k.b);
  k.b.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(k.b, k.loc, then());
  k.b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(k.b, k.loc, otherwise());
  return branch.getResults();
}

/// The scores of a tile that begins at `key`, -inf for keys that their row does not see.
Value AttendBuilder::hide(Value scores, Value key, TileWalk &walk) {
  if (!walk.isExactByRow())
    return ScoreMap(k, rows, key, keyEnd, slices).buildMask(scores, keyBegin);
  RankedTensorType perRow = column(k.b.getI32Type());
  auto seen = tile::MapOp::create(k.b, k.loc, TypeRange{perRow, perRow}, ValueRange{rows.position},
                                  ArrayAttr());
  seen->setLoc(FusedLoc::get(k.b.getContext(), {k.named("first_seen"), k.named("keys_seen")}));
  {
    OpBuilder::InsertionGuard guard(k.b);
    Type i32 = k.b.getI32Type();
    Block *body = k.b.createBlock(&seen.getBody(), {}, {i32, i32, i32}, {k.loc, k.loc, k.loc});
    Value position = body->getArgument(0);
    Value first = KernelBuilder::called("first", walk.firstOfRow(position));
    Value end = KernelBuilder::called("end", walk.endOfRow(position));
    // Counted from the tile's first key.
    tile::YieldOp::create(
        k.b, k.loc,
        ValueRange{k.toI32(k.sub(first, key)), k.toI32(k.max(k.sub(end, first), k.idx(0)))});
  }
  return ScoreMap(k, rows, k.idx(0), keyEnd, slices)
      .buildRange(scores, seen.getResult(0), seen.getResult(1));
}

/// Scaled and modified scores of a tile that begins at `key`, masked as `step` says.
AttendBuilder::Scores AttendBuilder::scoresOf(Value products, Value key, TileWalk *masked,
                                              Value partial) {
  auto map = [&] { return ScoreMap(k, rows, key, keyEnd, slices); };
  auto withMaximum = [&](Value scores) -> Scores {
    Value highest = KernelBuilder::noted(
        "Online softmax: the new maximum of each row, the factor alpha of all that was summed "
        "under the old one, the weights exp2(s - m), their sum.",
        KernelBuilder::called("m_new", k.reduce(tile::Combiner::Max, scores)));
    return {scores, highest};
  };
  if (!partial)
    return withMaximum(map().build(products, masked ? keyBegin : Value()));

  if (branchScores) {
    auto side = [&](Value begin) {
      Scores made = withMaximum(map().build(products, begin));
      return SmallVector<Value>{made.scores, made.highest};
    };
    ResultRange made = choose(
        {products.getType(), columnF32()}, partial, [&] { return side(keyBegin); },
        [&] { return side(Value()); });
    return {made[0], made[1]};
  }
  Value scores = map().build(products, Value());
  using Values = SmallVector<Value>;
  ResultRange seen = choose(
      scores.getType(), partial, [&] { return Values{hide(scores, key, *masked)}; },
      [&] { return Values{scores}; });
  return withMaximum(
      KernelBuilder::noted("The mask, where the tile is not visible throughout.", seen[0]));
}

/// Addresses (i64) or pages (i32) of keys from `key` on, without those of keys that no row may see:
/// they are zeros, whatever their memory holds.
Value AttendBuilder::onlyVisible(TileWalk &walk, Value addresses, Value key, Type type) {
  return KernelBuilder::noted(
      "Keys that no row may see are not read.",
      k.map(k.tileType(keys, 1, type), {addresses},
            [&](OpBuilder &b, ValueRange element, Value row, Value) -> SmallVector<Value> {
              Value at = arith::AddIOp::create(b, k.named("key"), k.toI32(key), row);
              Value seen = walk.mayContain(b, at), address = element[0];
              if (address.getType() != type)
                address = arith::TruncIOp::create(b, k.loc, type, address);
              Value none = arith::ConstantOp::create(b, k.loc, b.getIntegerAttr(type, -1));
              return {arith::SelectOp::create(b, k.loc, seen, address, none)};
            }));
}

/// One tile of keys: with `masked`, the mask and the item's key range are applied; with
/// `partial`, where it is true.
AttendBuilder::State AttendBuilder::step(Value tile, State state, TileWalk *masked, Value partial) {
  Value key = KernelBuilder::called("tile_key", k.mul(tile, k.idx(keys)));
  Value count = k.idx(keys);
  if (masked)
    count = KernelBuilder::called("tile_keys", k.min(k.sub(masked->end(), key), count));
  if (partRows > 0)
    useRows(key);
  Value pages = keyPages(key, count);
  if (pages && masked)
    pages = KernelBuilder::called("pages", onlyVisible(*masked, pages, key, k.b.getI32Type()));
  auto addresses = [&](bool isValue) {
    auto rows = [&] {
      return KernelBuilder::called(isValue ? "v_rows" : "k_rows",
                                   keyRows(isValue, key, count, pages));
    };
    if (pages)
      return rows(); // only pages of keys that may be seen are known
    Value all = rows();
    auto visible = [&] { return onlyVisible(*masked, all, key, k.b.getI64Type()); };
    if (partial && branchScores)
      return Value(choose(
          all.getType(), partial, [&] { return SmallVector<Value>{visible()}; },
          [&] { return SmallVector<Value>{all}; })[0]);
    return masked ? visible() : all;
  };
  Value keyTile = loadKeys(/*isValue=*/false, addresses(false));
  Value zero = k.splat(rowCount, keys / slices, 0);
  Value products = KernelBuilder::noted("Scores: s = Q K^T.",
                                        tile::MmaOp::create(k.b, k.named("s"), zero.getType(),
                                                            query, keyTile, zero,
                                                            /*transposeB=*/true, slices * heads));
  auto [scores, highest] = scoresOf(products, key, masked, partial);

  Value m = KernelBuilder::called(
      "m_new", k.map(columnF32(), {state.m, highest},
                     [&](OpBuilder &b, ValueRange x, Value, Value) -> SmallVector<Value> {
                       return {arith::MaximumFOp::create(b, k.loc, x[0], x[1])};
                     }));
  Value base = baseOf(m), alpha = weights("alpha", state.m, base);
  Value p = weights("weights", scores, base);
  Value sum = KernelBuilder::called("row_sum", k.reduce(tile::Combiner::Sum, p));
  Value l = KernelBuilder::called(
      "l", k.map(columnF32(), {state.l, alpha, sum},
                 [&](OpBuilder &b, ValueRange x, Value, Value) -> SmallVector<Value> {
                   return {math::FmaOp::create(b, k.loc, x[0], x[1], x[2])};
                 }));
  Value valueRows = addresses(true);
  if (hidesByData(masked))
    valueRows = onlySeen(valueRows, scores);
  Value valueTile = loadKeys(/*isValue=*/true, valueRows);
  auto valueType = cast<RankedTensorType>(valueTile.getType()).getElementType();
  if (!valueType.isF32())
    p = KernelBuilder::called(
        "packed", k.map(k.tileType(rowCount, keys / slices, valueType), {p},
                        [&](OpBuilder &b, ValueRange x, Value, Value) -> SmallVector<Value> {
                          return {arith::TruncFOp::create(b, k.loc, valueType, x[0])};
                        }));
  Value scaled = KernelBuilder::noted(
      "Output: acc = alpha acc + weights V.",
      KernelBuilder::called(
          "acc", k.map(cast<RankedTensorType>(state.acc.getType()), {state.acc, alpha},
                       [&](OpBuilder &b, ValueRange x, Value, Value) -> SmallVector<Value> {
                         return {arith::MulFOp::create(b, k.loc, x[0], x[1])};
                       })));
  Value acc = tile::MmaOp::create(k.b, k.named("acc"), scaled.getType(), p, valueTile, scaled,
                                  /*transposeB=*/false, slices * heads);
  return {acc, m, l};
}

/// One turn of the walk: a run of full tiles, whose body has no mask, or one partial tile.
/// Carried are the tile, the state, and how many tiles were visited and predicated.
SmallVector<Value> AttendBuilder::turnOfTwoLoops(TileWalk &walk, ValueRange carried) {
  Value tile = carried[0];
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
  SmallVector<Value> full = run(tile, end, carried.slice(1, 3), nullptr);
  Value isPartial = k.cmp(Pred::eq, end, tile);
  Value stop = k.select(isPartial, k.add(tile, k.idx(1)), tile);
  SmallVector<Value> state = run(tile, stop, full, &walk);
  Value after = k.max(end, stop);
  Value seen = k.add(carried[4], k.sub(after, tile));
  Value hidden = k.add(carried[5], k.sub(stop, tile));
  return {walk.next(after), state[0], state[1], state[2], seen, hidden};
}

/// One turn of the walk: a run of neighbouring tiles that MAY be visible, full and partial
/// ones by the same body.
SmallVector<Value> AttendBuilder::turnOfOneLoop(TileWalk &walk, ValueRange carried) {
  Value tile = carried[0];
  Value end = KernelBuilder::called("run_end", walk.visibleEnd(tile));
  SmallVector<Value> init(carried.slice(1, 3));
  init.push_back(carried[5]);
  SmallVector<Value> last = walkRun(walk, tile, end, init);
  Value seen = k.add(carried[4], k.sub(end, tile));
  return {walk.next(end), last[0], last[1], last[2], seen, last[3]};
}

constexpr const char *kCarried[] = {"acc", "m", "l", "masked_tiles"};

/// Tiles [tile, end), full and partial ones by the same body. Carried are the state and how many
/// tiles were masked.
SmallVector<Value> AttendBuilder::walkRun(TileWalk &walk, Value tile, Value end, ValueRange init) {
  return k.forEach(tile, end, init, [&](Value u, ValueRange s) -> SmallVector<Value> {
    std::string note = "Tiles of keys.";
    if (slices > 1)
      note += " Each of " + std::to_string(slices) + " slices takes " +
              std::to_string(keys / slices) +
              " keys of a tile and has a softmax state of its own: row " +
              std::to_string(itemRows) + " * s + r of the state is the item's row r in slice s.";
    KernelBuilder::noted(note, u);
    u.setLoc(k.named("tile"));
    for (auto [value, name] : llvm::zip(s, kCarried))
      Value(value).setLoc(k.named(name));
    Value needsMask = KernelBuilder::called("needs_mask", walk.isPartial(u));
    State next = step(u, {s[0], s[1], s[2]}, &walk, needsMask);
    Value one = k.select(needsMask, k.idx(1), k.idx(0));
    return {next.acc, next.m, next.l, k.add(s[3], one)};
  });
}

/// Rows of an item stand in the order of their positions, except those of trees and, which useRows
/// looks at, of several sequences.
void AttendBuilder::boundParts(TileWalk &walk, const TileWalk::Range &range) {
  partEnds.clear(), partBegins.clear();
  if (partRows == 0 || !walk.isOneRun() || k.signature.findBuffer(BufferRole::Tree) >= 0)
    return;
  auto position = [&](Value row) {
    Value entry = arith::DivUIOp::create(k.b, k.loc, k.add(firstRow, row), k.idx(group));
    return k.field(BufferRole::Rows, entry, LLMOPT_FIELD(RowEntry, position));
  };
  Value last = k.max(k.sub(rowsUsed, k.idx(1)), k.idx(0));
  for (int64_t row = partRows; row < rowCount; row += partRows) {
    TileWalk::Range before = range, behind = range;
    before.queryHi = position(k.min(k.idx(row - 1), last));
    behind.queryLo = position(k.min(k.idx(row), last));
    partEnds.push_back(walk.visibleTo(before).second);
    partBegins.push_back(walk.visibleTo(behind).first);
  }
}

void AttendBuilder::useRows(Value key) {
  Value from = k.idx(0), to = rowsUsed, end = k.add(key, k.idx(keys));
  auto row = [&](size_t part) { return k.idx(int64_t(part + 1) * partRows); };
  for (size_t i = 0; i < partEnds.size(); ++i)
    if (partEnds[i] != keyEnd)
      from = k.select(k.cmp(Pred::sle, partEnds[i], key), row(i), from);
  for (size_t i = partBegins.size(); i-- > 0;)
    if (partBegins[i] != keyBegin)
      to = k.select(k.cmp(Pred::sge, partBegins[i], end), k.min(rowsUsed, row(i)), to);
  if (mayMixSequences(k.signature) && !partEnds.empty()) {
    Value mixed = k.cmp(Pred::eq, flags, k.idx(bundle::kMixedSequences));
    from = k.select(mixed, k.idx(0), from), to = k.select(mixed, rowsUsed, to);
  }
  tile::UsedRowsOp::create(k.b, k.loc, from, to, rowCount);
}

AttendBuilder::State AttendBuilder::walkKeys() {
  auto [low, high] = positionRange(k, firstRow, rowsUsed, flags);
  TileWalk::Range range{low, high, queryLen, keyLen, keyBegin, keyEnd, [&](unsigned scalar) {
                          return perHeadRange(k, scalar, k.mul(kvHead, k.idx(group)),
                                              group * heads);
                        }};
  TileWalk walk(k, bounds, range, keys);
  boundParts(walk, range);

  // Masks that depend on data take addresses from V by the scores, which no copy can run
  // ahead of.
  bool together = oneLoop && !hidesByData(/*masked=*/true);
  Value zero = k.idx(0);
  State unseen{k.splat(rowCount, op.getVDim(), 0), k.splat(rowCount, 1, -INFINITY),
               k.splat(rowCount, 1, 0)};
  if (together && walk.isOneRun()) {
    auto [tile, end] = walk.run();
    SmallVector<Value> last = walkRun(walk, tile, end, {unseen.acc, unseen.m, unseen.l, zero});
    visited = KernelBuilder::called("visited_tiles", k.sub(end, tile)), predicated = last[3];
    return {last[0], last[1], last[2]};
  }
  SmallVector<Value> init{
      walk.next(k.floorDiv(keyBegin, keys)), unseen.acc, unseen.m, unseen.l, zero, zero};
  k.func->setAttr(tile::kConstantsAttr, k.b.getDictionaryAttr(k.b.getNamedAttr(
                                            "no_tile", k.b.getI64IntegerAttr(attn::kUnbounded))));
  SmallVector<Type> types = llvm::to_vector(ValueRange(init).getTypes());
  auto loop = scf::WhileOp::create(k.b, k.loc, types, init);
  KernelBuilder::noted("Runs of neighbouring tiles that hold a key which some row may see.",
                       loop.getResult(0));
  SmallVector<Location> locs{k.named(together ? "run" : "tile")};
  for (StringRef name : {"acc", "m", "l", "visited_tiles", "masked_tiles"})
    locs.push_back(k.named(name));
  OpBuilder::InsertionGuard guard(k.b);
  Block *before = k.b.createBlock(&loop.getBefore(), {}, types, locs);
  Value more = k.cmp(Pred::slt, before->getArgument(0), walk.none());
  scf::ConditionOp::create(k.b, k.loc, more, before->getArguments());

  Block *body = k.b.createBlock(&loop.getAfter(), {}, types, locs);
  scf::YieldOp::create(k.b, k.loc,
                       together ? turnOfOneLoop(walk, body->getArguments())
                                : turnOfTwoLoops(walk, body->getArguments()));
  visited = loop.getResult(4), predicated = loop.getResult(5);
  return {loop.getResult(1), loop.getResult(2), loop.getResult(3)};
}

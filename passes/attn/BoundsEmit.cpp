// See BoundsEmit.h.
#include "passes/attn/BoundsEmit.h"

using namespace mlir;
using namespace llmopt;
using attn::BoundExprKind;
using Pred = arith::CmpIPredicate;

std::pair<Value, Value> llmopt::perHeadRange(KernelBuilder &k, unsigned scalar, Value first,
                                             int64_t count) {
  int buffer = k.signature.scalars[scalar].perHeadBuffer;
  auto load = [&](Value head) -> Value {
    return arith::IndexCastOp::create(k.b, k.loc, k.b.getIndexType(), k.perHead(buffer, head));
  };
  Value start = load(first);
  SmallVector<Value> range =
      k.forEach(k.add(first, k.idx(1)), k.add(first, k.idx(count)), {start, start},
                [&](Value head, ValueRange carried) -> SmallVector<Value> {
                  Value value = load(head);
                  return {k.min(carried[0], value), k.max(carried[1], value)};
                });
  return {range[0], range[1]};
}

/// Whether an expression is of numbers that differ by head.
static bool differsByHead(const attn::BoundExpr &expr) {
  switch (expr.kind()) {
  case BoundExprKind::ScalarMin:
  case BoundExprKind::ScalarMax:
    return true;
  case BoundExprKind::Constant:
  case BoundExprKind::Symbol:
  case BoundExprKind::Scalar:
    return false;
  default:
    return differsByHead(expr.lhs()) || differsByHead(expr.rhs());
  }
}

TileWalk::TileWalk(KernelBuilder &k, const attn::MaskBounds &bounds, Range range, int64_t keys)
    : k(k), bounds(bounds), range(range), keys(keys), keyBegin(range.keyBegin),
      keyEnd(range.keyEnd), noTile(k.idx(attn::kUnbounded)) {
  if (bounds.exact && bounds.may.intervals.size() == 1) {
    const attn::Interval &only = bounds.may.intervals.front();
    if (!only.thinning && !differsByHead(only.lo) && !differsByHead(only.hi))
      ofRow = only;
  }
  for (const attn::Interval &interval : bounds.may.intervals)
    may.push_back(evaluate(interval, range));
  for (const attn::Interval &interval : bounds.surely.intervals)
    surely.push_back(evaluate(interval, range));
  name(may, "may", "Keys that some of these rows may see: all others are not even read.");
  name(surely, "sure", "Keys that all of these rows see: tiles within need no mask.");
}

TileWalk::Ends TileWalk::evaluate(const attn::Interval &interval, const Range &range) {
  auto isUnbounded = [](const attn::BoundExpr &expr) {
    return expr.kind() == BoundExprKind::Constant && std::abs(expr.value()) >= attn::kUnbounded;
  };
  Ends ends;
  ends.lo = isUnbounded(interval.lo) ? keyBegin : k.max(emit(interval.lo, range), keyBegin);
  ends.hi = isUnbounded(interval.hi) ? keyEnd : k.min(emit(interval.hi, range), keyEnd);
  if (interval.thinning) {
    ends.stride = k.max(emit(interval.thinning->stride, range), k.idx(1));
    ends.phase = emit(interval.thinning->phase, range);
    ends.width = emit(interval.thinning->width, range);
  }
  return ends;
}

TileWalk::Range TileWalk::rangeOfRow(Value position) {
  Range row = range;
  row.queryLo = row.queryHi = arith::IndexCastOp::create(k.b, k.loc, k.b.getIndexType(), position);
  return row;
}

Value TileWalk::firstOfRow(Value position) {
  return k.min(evaluate({ofRow->lo, attn::kUnbounded, {}}, rangeOfRow(position)).lo, keyEnd);
}

Value TileWalk::endOfRow(Value position) {
  return k.max(evaluate({-attn::kUnbounded, ofRow->hi, {}}, rangeOfRow(position)).hi, keyBegin);
}

void TileWalk::name(llvm::ArrayRef<Ends> set, const std::string &name, StringRef note) {
  for (const Ends &ends : set)
    for (Value end : {ends.lo, ends.hi}) {
      if (end == keyBegin || end == keyEnd)
        continue;
      KernelBuilder::called(name + (end == ends.lo ? "_begin" : "_end"), end);
      if (!note.empty())
        KernelBuilder::noted(note, end);
      note = "";
    }
}

Value TileWalk::guardedDiv(BoundExprKind kind, Value a, Value b) {
  // A divisor below 1 yields 0 (Bounds.h); dividing by max(b, 1) keeps it defined.
  Value safe = k.max(b, k.idx(1));
  Value quotient = arith::FloorDivSIOp::create(k.b, k.loc, a, safe);
  Value result = kind == BoundExprKind::FloorDiv ? quotient : k.sub(a, k.mul(quotient, safe));
  return k.select(k.cmp(Pred::slt, b, k.idx(1)), k.idx(0), result);
}

Value TileWalk::emit(const attn::BoundExpr &expr, const Range &range) {
  switch (expr.kind()) {
  case BoundExprKind::Constant:
    return k.idx(expr.value());
  case BoundExprKind::Symbol:
    switch (expr.symbol()) {
    case attn::BoundSymbol::QueryLo:
      return range.queryLo;
    case attn::BoundSymbol::QueryHi:
      return range.queryHi;
    case attn::BoundSymbol::QueryLen:
      return range.queryLen;
    case attn::BoundSymbol::KeyLen:
      return range.keyLen;
    }
    break;
  case BoundExprKind::Scalar:
    return k.scalar(expr.value());
  case BoundExprKind::ScalarMin:
    return range.minMax(expr.value()).first;
  case BoundExprKind::ScalarMax:
    return range.minMax(expr.value()).second;
  default:
    break;
  }
  // max(window, 1) of a number that callers may not set below 1.
  auto atLeast = [&](const attn::BoundExpr &number, const attn::BoundExpr &bound) {
    return expr.kind() == BoundExprKind::Max && number.kind() == BoundExprKind::Scalar &&
           bound.kind() == BoundExprKind::Constant &&
           k.signature.scalars[number.value()].least >= bound.value();
  };
  if (atLeast(expr.lhs(), expr.rhs()))
    return emit(expr.lhs(), range);
  if (atLeast(expr.rhs(), expr.lhs()))
    return emit(expr.rhs(), range);
  Value lhs = emit(expr.lhs(), range), rhs = emit(expr.rhs(), range);
  switch (expr.kind()) {
  case BoundExprKind::Add: {
    Value sum = k.add(lhs, rhs);
    if (lhs == range.queryLo || lhs == range.queryHi)
      KernelBuilder::called(range.queryLo == range.queryHi ? "after_row"
                            : lhs == range.queryLo         ? "after_lowest"
                                                           : "after_highest",
                            sum);
    return sum;
  }
  case BoundExprKind::Sub:
    return k.sub(lhs, rhs);
  case BoundExprKind::Mul:
    return k.mul(lhs, rhs);
  case BoundExprKind::Min:
    return k.min(lhs, rhs);
  case BoundExprKind::Max:
    return k.max(lhs, rhs);
  default:
    return guardedDiv(expr.kind(), lhs, rhs);
  }
}

std::pair<Value, Value> TileWalk::run() {
  const Ends &ends = may[0];
  Value first = KernelBuilder::called("first_tile", k.floorDiv(ends.lo, keys));
  Value last = k.floorDiv(k.add(ends.hi, k.idx(keys - 1)), keys);
  Value some = k.cmp(Pred::slt, ends.lo, ends.hi);
  return {first, KernelBuilder::called("tile_end", k.select(some, last, first))};
}

std::pair<Value, Value> TileWalk::visibleTo(const Range &range) {
  Ends ends = evaluate(bounds.may.intervals[0], range);
  return {ends.lo, ends.hi};
}

Value TileWalk::next(Value tile) {
  Value first = k.mul(tile, k.idx(keys));
  Value best;
  for (const Ends &ends : may) {
    Value key = KernelBuilder::called("next_key", k.max(ends.lo, first));
    Value some = k.cmp(Pred::slt, key, ends.hi);
    if (ends.stride) {
      Value rest = guardedDiv(BoundExprKind::FloorMod, k.sub(key, ends.phase), ends.stride);
      Value skip = k.select(k.cmp(Pred::slt, rest, ends.width), k.idx(0), k.sub(ends.stride, rest));
      key = k.add(key, skip);
      some = k.cmp(Pred::slt, key, ends.hi);
      Value any = k.cmp(Pred::sgt, ends.width, k.idx(0));
      some = arith::AndIOp::create(k.b, k.loc, some, any);
    }
    Value next = KernelBuilder::called("next_tile", k.select(some, k.floorDiv(key, keys), noTile));
    best = best ? k.min(best, next) : next;
  }
  return best ? best : noTile;
}

Value TileWalk::runEnd(Value tile) {
  Value first = KernelBuilder::called("tile_key", k.mul(tile, k.idx(keys)));
  return k.max(tile, k.floorDiv(sureEnd(first), keys));
}

Value TileWalk::isPartial(Value tile) {
  if (surely.empty())
    return arith::ConstantOp::create(k.b, k.loc, k.b.getBoolAttr(true));
  Value first = KernelBuilder::called("tile_key", k.mul(tile, k.idx(keys)));
  Value end = k.add(first, k.idx(keys));
  if (surely.size() != 1 || surely[0].stride)
    return k.cmp(Pred::slt, sureEnd(first), end);
  return arith::OrIOp::create(k.b, k.loc, k.cmp(Pred::slt, first, surely[0].lo),
                              k.cmp(Pred::slt, surely[0].hi, end));
}

/// Of the SURELY visible keys from `key` on, the first that is not one.
Value TileWalk::sureEnd(Value key) {
  // Walk a frontier through the intervals: each pass extends it through every interval
  // that holds it, so as many passes as intervals reach the end of any chain of them.
  Value frontier = key;
  for (size_t pass = 0; pass < surely.size(); ++pass) {
    for (const Ends &ends : surely) {
      Value inside = k.cmp(Pred::sle, ends.lo, frontier), hi = ends.hi;
      if (ends.stride) {
        Value rest = guardedDiv(BoundExprKind::FloorMod, k.sub(frontier, ends.phase), ends.stride);
        Value whole = k.cmp(Pred::sge, ends.width, ends.stride);
        Value thick = k.cmp(Pred::slt, rest, ends.width);
        inside = arith::AndIOp::create(k.b, k.loc, inside, thick);
        hi = k.select(whole, hi, k.min(hi, k.add(k.sub(frontier, rest), ends.width)));
      }
      frontier = KernelBuilder::called("sure_to", k.select(inside, k.max(frontier, hi), frontier));
    }
  }
  return frontier;
}

Value TileWalk::visibleEnd(Value tile) {
  // As in runEnd: as many passes as intervals reach the end of any chain of them.
  Value frontier = k.add(tile, k.idx(1)); // the first tile beyond the run
  for (size_t pass = 0; pass < may.size(); ++pass) {
    for (const Ends &ends : may) {
      if (ends.stride)
        continue;
      Value some = k.cmp(Pred::slt, ends.lo, ends.hi);
      Value touches = k.cmp(Pred::sle, k.floorDiv(ends.lo, keys), frontier);
      Value end = k.floorDiv(k.add(ends.hi, k.idx(keys - 1)), keys);
      Value extends = arith::AndIOp::create(k.b, k.loc, some, touches);
      frontier = k.select(extends, k.max(frontier, end), frontier);
    }
  }
  return frontier;
}

/// a - b * floor(a / b) for b >= 1, of a signed a.
Value TileWalk::floorMod(OpBuilder &b, Value value, Value divisor) {
  Value rest = arith::RemSIOp::create(b, k.loc, value, divisor);
  Value negative = arith::CmpIOp::create(b, k.loc, Pred::slt, rest, k.idx(0));
  return arith::SelectOp::create(b, k.loc, negative, arith::AddIOp::create(b, k.loc, rest, divisor),
                                 rest);
}

Value TileWalk::mayContain(OpBuilder &b, Value key) {
  // Where there is a tile to look at, its keys and the interval's begin are 32-bit numbers.
  if (isOneRun())
    return arith::CmpIOp::create(b, k.loc, Pred::sge, key, k.toI32(may[0].lo));
  key = arith::IndexCastOp::create(b, k.loc, b.getIndexType(), key);
  Value any;
  for (const Ends &ends : may) {
    Value above = arith::CmpIOp::create(b, k.loc, Pred::sge, key, ends.lo);
    Value below = arith::CmpIOp::create(b, k.loc, Pred::slt, key, ends.hi);
    Value inside = arith::AndIOp::create(b, k.loc, above, below);
    if (ends.stride) {
      // The tile's region emits through its own builder; so does this division.
      Value rest = floorMod(b, arith::SubIOp::create(b, k.loc, key, ends.phase), ends.stride);
      Value thick = arith::CmpIOp::create(b, k.loc, Pred::slt, rest, ends.width);
      inside = arith::AndIOp::create(b, k.loc, inside, thick);
    }
    any = any ? Value(arith::OrIOp::create(b, k.loc, any, inside)) : inside;
  }
  if (!any)
    any = arith::ConstantOp::create(b, k.loc, b.getBoolAttr(false));
  return any;
}

std::pair<Value, Value> llmopt::positionRange(KernelBuilder &k, Value firstRow, Value rowCount,
                                              Value flags) {
  attn::AttentionOp op = k.signature.attention;
  auto entryOf = [&](Value packed) -> Value {
    Value group = k.idx(op.getGroup());
    return arith::DivUIOp::create(k.b, k.loc, packed, group);
  };
  auto position = [&](Value entry) {
    return k.field(bundle::BufferRole::Rows, entry, LLMOPT_FIELD(RowEntry, position));
  };
  Value first = KernelBuilder::noted("Positions of the item's rows, lowest and highest.",
                                     KernelBuilder::called("first_entry", entryOf(firstRow)));
  Value lastRow =
      KernelBuilder::called("last_item_row", k.max(k.sub(rowCount, k.idx(1)), k.idx(0)));
  Value last = KernelBuilder::called("last_entry", entryOf(k.add(firstRow, lastRow)));
  Value lo = KernelBuilder::called("first_position", position(first)),
        hi = KernelBuilder::called("last_position", position(last));
  if (!mayMixSequences(k.signature))
    return {lo, hi};
  Value mixed = KernelBuilder::called(
      "is_mixed", k.cmp(arith::CmpIPredicate::eq, flags, k.idx(bundle::kMixedSequences)));
  KernelBuilder::noted("Mixed: an item may hold the rows of several sequences, where these share "
                       "its keys.",
                       mixed);
  mixed.getDefiningOp()->setAttr(tile::kConstantAttr, k.b.getStringAttr(KernelBuilder::constantName(
                                                          "WorkItem", "mixedSequences")));
  SmallVector<Value> range =
      k.forEach(k.add(first, k.idx(1)), k.select(mixed, last, first),
                {KernelBuilder::called("lower", k.select(mixed, k.min(lo, hi), lo)),
                 KernelBuilder::called("upper", k.select(mixed, k.max(lo, hi), hi))},
                [&](Value entry, ValueRange carried) -> SmallVector<Value> {
                  KernelBuilder::noted("Rows of several sequences stand in no order: all are "
                                       "looked at.",
                                       entry);
                  entry.setLoc(k.named("entry"));
                  Value(carried[0]).setLoc(k.named("lowest_position"));
                  Value(carried[1]).setLoc(k.named("highest_position"));
                  Value other = KernelBuilder::called("entry_position", position(entry));
                  return {k.min(carried[0], other), k.max(carried[1], other)};
                });
  return {range[0], range[1]};
}

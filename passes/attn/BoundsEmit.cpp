// See BoundsEmit.h.
#include "passes/attn/BoundsEmit.h"

#include <cstddef>

using namespace mlir;
using namespace llmopt;
using attn::BoundExprKind;
using Pred = arith::CmpIPredicate;

TileWalk::TileWalk(KernelBuilder &k, const attn::MaskBounds &bounds, Range range, int64_t keys)
    : k(k), keys(keys), keyBegin(range.keyBegin), keyEnd(range.keyEnd),
      noTile(k.idx(attn::kUnbounded)) {
  for (const attn::Interval &interval : bounds.may.intervals)
    may.push_back(evaluate(interval, range));
  for (const attn::Interval &interval : bounds.surely.intervals)
    surely.push_back(evaluate(interval, range));
}

TileWalk::Ends TileWalk::evaluate(const attn::Interval &interval, const Range &range) {
  Ends ends;
  ends.lo = k.max(emit(interval.lo, range), keyBegin);
  ends.hi = k.min(emit(interval.hi, range), keyEnd);
  if (interval.thinning) {
    ends.stride = k.max(emit(interval.thinning->stride, range), k.idx(1));
    ends.phase = emit(interval.thinning->phase, range);
    ends.width = emit(interval.thinning->width, range);
  }
  return ends;
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
  Value lhs = emit(expr.lhs(), range), rhs = emit(expr.rhs(), range);
  switch (expr.kind()) {
  case BoundExprKind::Add:
    return k.add(lhs, rhs);
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

Value TileWalk::next(Value tile) {
  Value first = k.mul(tile, k.idx(keys));
  Value best = noTile;
  for (const Ends &ends : may) {
    Value key = k.max(ends.lo, first);
    Value some = k.cmp(Pred::slt, key, ends.hi);
    if (ends.stride) {
      Value rest = guardedDiv(BoundExprKind::FloorMod, k.sub(key, ends.phase), ends.stride);
      Value skip = k.select(k.cmp(Pred::slt, rest, ends.width), k.idx(0), k.sub(ends.stride, rest));
      key = k.add(key, skip);
      some = k.cmp(Pred::slt, key, ends.hi);
      Value any = k.cmp(Pred::sgt, ends.width, k.idx(0));
      some = arith::AndIOp::create(k.b, k.loc, some, any);
    }
    best = k.min(best, k.select(some, k.floorDiv(key, keys), noTile));
  }
  return best;
}

Value TileWalk::runEnd(Value tile) {
  // Walk a frontier through the intervals: each pass extends it through every interval
  // that holds it, so as many passes as intervals reach the end of any chain of them.
  Value first = k.mul(tile, k.idx(keys));
  Value frontier = first;
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
      frontier = k.select(inside, k.max(frontier, hi), frontier);
    }
  }
  return k.max(tile, k.floorDiv(frontier, keys));
}

/// a - b * floor(a / b) for b >= 1, of a signed a.
Value TileWalk::floorMod(OpBuilder &b, Value value, Value divisor) {
  Value rest = arith::RemSIOp::create(b, k.loc, value, divisor);
  Value negative = arith::CmpIOp::create(b, k.loc, Pred::slt, rest, k.idx(0));
  return arith::SelectOp::create(b, k.loc, negative, arith::AddIOp::create(b, k.loc, rest, divisor),
                                 rest);
}

Value TileWalk::mayContain(OpBuilder &b, Value key) {
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
    return k.word(bundle::BufferRole::Rows, entry, 2, offsetof(bundle::RowEntry, position) / 4,
                  /*isSigned=*/true);
  };
  Value first = entryOf(firstRow);
  Value last = entryOf(k.add(firstRow, k.max(k.sub(rowCount, k.idx(1)), k.idx(0))));
  Value lo = position(first), hi = position(last);
  if (!mayMixSequences(k.signature))
    return {lo, hi};
  Value mixed = k.cmp(arith::CmpIPredicate::eq, flags, k.idx(bundle::kMixedSequences));
  SmallVector<Value> range =
      k.forEach(k.add(first, k.idx(1)), k.select(mixed, last, first),
                {k.select(mixed, k.min(lo, hi), lo), k.select(mixed, k.max(lo, hi), hi)},
                [&](Value entry, ValueRange carried) -> SmallVector<Value> {
                  Value other = position(entry);
                  return {k.min(carried[0], other), k.max(carried[1], other)};
                });
  return {range[0], range[1]};
}

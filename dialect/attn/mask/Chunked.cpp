// chunked<n>: floor(p / n) == floor(j / n).
#include "dialect/attn/Asm.h"
#include "dialect/attn/AttnDialect.h"
#include "dialect/attn/EmitUtils.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace llmopt::attn;

Attribute ChunkedAttr::parse(AsmParser &parser, Type) {
  SMLoc loc = parser.getCurrentLocation();
  Attribute size = parseBracketedNumber(parser, NumberKind::Integer);
  return size ? parser.getChecked<ChunkedAttr>(loc, parser.getContext(), size) : ChunkedAttr();
}

void ChunkedAttr::print(AsmPrinter &printer) const { printBracketedNumber(printer, getSize()); }

LogicalResult ChunkedAttr::verify(function_ref<InFlightDiagnostic()> emitError, Attribute size) {
  return verifyInteger(emitError, size, "the size of chunked", 1);
}

void ChunkedAttr::collectNumbers(SmallVectorImpl<NumberUse> &numbers) const {
  numbers.push_back({*this, 0, "chunk", getSize(), false});
}

// One division for a query, none for a key: the chunk starts at p - p mod n. Negative
// positions see no key of the cache, so that an overflow of j - start does not matter there;
// only in a tree, with more queries than keys, is a key's own position negative.
Value ChunkedAttr::emitPredicate(PairEmitter &e) const {
  OpBuilder &b = e.builder();
  Value zero = emit::i32(e, 0), p = e.queryPosition(), j = e.keyPosition();
  Value size = emit::maximum(e, e.number(*this, 0), emit::i32(e, 1));
  Value seen = emit::lessEqual(e, zero, p), rest = emit::remainder(e, p, size);
  if (j != e.keyIndex()) {
    seen = emit::either(e, seen, emit::less(e, j, zero));
    Value floored = arith::AddIOp::create(b, e.loc(), rest, size);
    rest = arith::SelectOp::create(b, e.loc(), emit::less(e, rest, zero), floored, rest);
  }
  Value place = emit::subtract(e, j, emit::subtract(e, p, rest));
  Value inChunk = emit::both(e, emit::lessEqual(e, zero, place), emit::less(e, place, size));
  return emit::both(e, seen, inChunk);
}

MaskBounds ChunkedAttr::getBounds(const BoundContext &context) const {
  BoundExpr lo = context.queryLo(), hi = context.queryHi();
  BoundExpr least = max(context.numberMin(*this, 0), 1);
  BoundExpr size = max(context.numberMax(*this, 0), 1);
  // Heads of unequal size: a chunk reaches less than `size` to either side.
  if (!(least == size))
    return {IntervalSet::of(lo + 1 - size, hi + size), IntervalSet::none(), false};
  BoundExpr firstStart = lo - floorMod(lo, size), lastStart = hi - floorMod(hi, size);
  return {IntervalSet::of(firstStart, lastStart + size),
          IntervalSet::of(lastStart, firstStart + size)};
}

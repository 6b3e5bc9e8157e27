// window<W>: p - W + 1 <= j <= p; window<left = L, right = R>: p - L <= j <= p + R.
//
// All comparisons are between the distance p - j and a number: p - W could overflow.
#include "dialect/attn/Asm.h"
#include "dialect/attn/AttnDialect.h"
#include "dialect/attn/EmitUtils.h"

using namespace mlir;
using namespace llmopt::attn;

Attribute WindowAttr::parse(AsmParser &parser, Type) {
  SMLoc loc = parser.getCurrentLocation();
  Attribute left, right;
  if (parser.parseLess())
    return {};
  bool twoSided = succeeded(parser.parseOptionalKeyword("left"));
  if (twoSided) {
    if (parser.parseEqual() || parseNumber(parser, NumberKind::Integer, left) ||
        parser.parseComma() || parser.parseKeyword("right") || parser.parseEqual() ||
        parseNumber(parser, NumberKind::Integer, right))
      return {};
  } else if (parseNumber(parser, NumberKind::Integer, left)) {
    return {};
  }
  if (parser.parseGreater())
    return {};
  return parser.getChecked<WindowAttr>(loc, parser.getContext(), left, right, twoSided);
}

void WindowAttr::print(AsmPrinter &printer) const {
  printer << (getTwoSided() ? "<left = " : "<");
  printNumber(printer, getLeft());
  if (getTwoSided()) {
    printer << ", right = ";
    printNumber(printer, getRight());
  }
  printer << '>';
}

LogicalResult WindowAttr::verify(function_ref<InFlightDiagnostic()> emitError, Attribute left,
                                 Attribute right, bool twoSided) {
  if (!twoSided) {
    if (right)
      return emitError() << "a one-sided window has no right side, got " << right;
    return verifyInteger(emitError, left, "window", 1);
  }
  if (failed(verifyInteger(emitError, left, "left of a window", -1)))
    return failure();
  return verifyInteger(emitError, right, "right of a window", -1);
}

void WindowAttr::collectNumbers(SmallVectorImpl<NumberUse> &numbers) const {
  if (!getTwoSided()) {
    numbers.push_back(
        {*this, 0, "window", getSize(), false, 1, "leave the window out of the mask for none"});
    return;
  }
  numbers.push_back({*this, 0, "window_left", getLeft(), false});
  numbers.push_back({*this, 1, "window_right", getRight(), false});
}

Value WindowAttr::emitPredicate(PairEmitter &e) const {
  Value distance = emit::subtract(e, e.queryPosition(), e.keyPosition());
  if (!getTwoSided()) // the first half as `causal` says it: together they are one comparison
    return emit::both(e, emit::lessEqual(e, e.keyPosition(), e.queryPosition()),
                      emit::less(e, distance, e.number(*this, 0)));
  Value zero = emit::i32(e, 0);
  auto withinSide = [&](Value distance, Value side) {
    return emit::either(e, emit::less(e, side, zero), emit::lessEqual(e, distance, side));
  };
  Value ahead = emit::subtract(e, zero, distance);
  Value left = withinSide(distance, e.number(*this, 0));
  return emit::both(e, left, withinSide(ahead, e.number(*this, 1)));
}

/// kUnbounded where `side` is negative (open), else 0.
static BoundExpr beyondWhereOpen(BoundExpr side) { return max(min(side, 0), -1) * -kUnbounded; }

MaskBounds WindowAttr::getBounds(const BoundContext &context) const {
  BoundExpr lo = context.queryLo(), hi = context.queryHi();
  BoundExpr leftMin = context.numberMin(*this, 0), leftMax = context.numberMax(*this, 0);
  if (!getTwoSided())
    return {IntervalSet::of(lo + 1 - max(leftMax, 1), hi + 1),
            IntervalSet::of(hi + 1 - leftMin, lo + 1)};

  // Heads may differ. MAY follows the widest: an open one (the smallest number) or the
  // largest number. SURELY follows the narrowest that is not open; where some heads are
  // open and others not, the smallest number does not tell it, and 0 stands for it.
  BoundExpr rightMin = context.numberMin(*this, 1), rightMax = context.numberMax(*this, 1);
  MaskBounds bounds;
  bounds.may = IntervalSet::of(lo - max(leftMax, 0) - beyondWhereOpen(leftMin),
                               hi + 1 + max(rightMax, 0) + beyondWhereOpen(rightMin));
  bounds.surely = IntervalSet::of(hi - max(leftMin, 0) - beyondWhereOpen(leftMax),
                                  lo + 1 + max(rightMin, 0) + beyondWhereOpen(rightMax));
  bounds.exact = leftMin == leftMax && rightMin == rightMax;
  return bounds;
}

// dilated<n>: (p - j) mod n == 0.
#include "dialect/attn/Asm.h"
#include "dialect/attn/AttnDialect.h"
#include "dialect/attn/EmitUtils.h"

using namespace mlir;
using namespace llmopt::attn;

Attribute DilatedAttr::parse(AsmParser &parser, Type) {
  SMLoc loc = parser.getCurrentLocation();
  Attribute stride = parseBracketedNumber(parser, NumberKind::Integer);
  return stride ? parser.getChecked<DilatedAttr>(loc, parser.getContext(), stride) : DilatedAttr();
}

void DilatedAttr::print(AsmPrinter &printer) const { printBracketedNumber(printer, getStride()); }

LogicalResult DilatedAttr::verify(function_ref<InFlightDiagnostic()> emitError, Attribute stride) {
  return verifyInteger(emitError, stride, "the stride of dilated", 1);
}

void DilatedAttr::collectNumbers(SmallVectorImpl<NumberUse> &numbers) const {
  numbers.push_back({*this, 0, "dilation", getStride(), false});
}

Value DilatedAttr::emitPredicate(PairEmitter &e) const {
  Value distance = emit::subtract(e, e.queryPosition(), e.keyPosition());
  Value stride = emit::maximum(e, e.number(*this, 0), emit::i32(e, 1));
  return emit::equal(e, emit::remainder(e, distance, stride), emit::i32(e, 0));
}

MaskBounds DilatedAttr::getBounds(const BoundContext &context) const {
  BoundExpr least = max(context.numberMin(*this, 0), 1);
  BoundExpr stride = max(context.numberMax(*this, 0), 1);
  if (stride.constant() == 1)
    return {IntervalSet::all(), IntervalSet::all()};

  // Query p sees the keys congruent to p; queries lo .. hi cover the next hi - lo
  // residues too. Heads of unequal stride: all keys, or none. Two queries share a key
  // only with stride 1.
  BoundExpr further = context.queryHi() - context.queryLo();
  BoundExpr unequal = stride - least;
  BoundExpr mayWidth = min(further + 1 + min(unequal, 1) * kUnbounded, stride);
  BoundExpr surelyWidth = max(max(2 - stride, 1 - further - unequal), 0);
  auto thinned = [&](BoundExpr width) {
    IntervalSet set = IntervalSet::all();
    set.intervals[0].thinning = Interval::Thinning{stride, context.queryLo(), width};
    return set;
  };
  return {thinned(mayWidth), thinned(surelyWidth), least == stride};
}

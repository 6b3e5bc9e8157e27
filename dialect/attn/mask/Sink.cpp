// sink<n>: key j < n.
#include "dialect/attn/Asm.h"
#include "dialect/attn/AttnDialect.h"
#include "dialect/attn/EmitUtils.h"

using namespace mlir;
using namespace llmopt::attn;

Attribute SinkAttr::parse(AsmParser &parser, Type) {
  SMLoc loc = parser.getCurrentLocation();
  Attribute count = parseBracketedNumber(parser, NumberKind::Integer);
  return count ? parser.getChecked<SinkAttr>(loc, parser.getContext(), count) : SinkAttr();
}

void SinkAttr::print(AsmPrinter &printer) const { printBracketedNumber(printer, getCount()); }

LogicalResult SinkAttr::verify(function_ref<InFlightDiagnostic()> emitError, Attribute count) {
  return verifyInteger(emitError, count, "the count of a sink", 0);
}

void SinkAttr::collectNumbers(SmallVectorImpl<NumberUse> &numbers) const {
  numbers.push_back({*this, 0, "sink_keys", getCount(), false});
}

Value SinkAttr::emitPredicate(PairEmitter &e) const {
  return emit::less(e, e.keyPosition(), e.number(*this, 0));
}

MaskBounds SinkAttr::getBounds(const BoundContext &context) const {
  return {IntervalSet::of(-kUnbounded, context.numberMax(*this, 0)),
          IntervalSet::of(-kUnbounded, context.numberMin(*this, 0))};
}

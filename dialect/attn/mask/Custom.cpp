// custom<N>: mask region N of the op.
#include "dialect/attn/AttnDialect.h"

using namespace mlir;
using namespace llmopt::attn;

Attribute CustomMaskAttr::parse(AsmParser &parser, Type) {
  unsigned region = 0;
  if (succeeded(parser.parseOptionalLess()) &&
      (parser.parseInteger(region) || parser.parseGreater()))
    return {};
  return CustomMaskAttr::get(parser.getContext(), region);
}

void CustomMaskAttr::print(AsmPrinter &printer) const {
  if (getRegion())
    printer << '<' << getRegion() << '>';
}

void CustomMaskAttr::collectNumbers(SmallVectorImpl<NumberUse> &) const {}

Value CustomMaskAttr::emitPredicate(PairEmitter &e) const {
  return e.inlineRegion(getRegion(), Value());
}

MaskBounds CustomMaskAttr::getBounds(const BoundContext &context) const {
  return context.regionBounds(getRegion());
}

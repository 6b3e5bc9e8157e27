// causal: key j <= query position p (bottom-right) or <= query index (top-left).
#include "dialect/attn/AttnDialect.h"
#include "dialect/attn/EmitUtils.h"

using namespace mlir;
using namespace llmopt::attn;

Attribute CausalAttr::parse(AsmParser &parser, Type) {
  auto alignment = Alignment::BottomRight;
  if (succeeded(parser.parseOptionalLess())) {
    SMLoc loc = parser.getCurrentLocation();
    StringRef keyword;
    if (parser.parseKeyword(&keyword))
      return {};
    std::optional<Alignment> parsed = symbolizeAlignment(keyword);
    if (!parsed) {
      parser.emitError(loc) << "expected bottom_right or top_left, got '" << keyword << "'";
      return {};
    }
    alignment = *parsed;
    if (parser.parseGreater())
      return {};
  }
  return CausalAttr::get(parser.getContext(), alignment);
}

void CausalAttr::print(AsmPrinter &printer) const {
  if (getAlignment() != Alignment::BottomRight)
    printer << '<' << stringifyAlignment(getAlignment()) << '>';
}

void CausalAttr::collectNumbers(SmallVectorImpl<NumberUse> &) const {}

Value CausalAttr::emitPredicate(PairEmitter &e) const {
  bool topLeft = getAlignment() == Alignment::TopLeft;
  return emit::lessEqual(e, e.keyPosition(), topLeft ? e.queryIndex() : e.queryPosition());
}

MaskBounds CausalAttr::getBounds(const BoundContext &context) const {
  BoundExpr shift = 1;
  if (getAlignment() == Alignment::TopLeft)
    shift = context.queryLen() - context.keyLen() + 1;
  return {IntervalSet::of(-kUnbounded, context.queryHi() + shift),
          IntervalSet::of(-kUnbounded, context.queryLo() + shift)};
}

// dense<argN>: a boolean tensor. Run-time data: nothing is known of its bounds.
#include "dialect/attn/Asm.h"
#include "dialect/attn/AttnDialect.h"

using namespace mlir;
using namespace llmopt::attn;

Attribute DenseMaskAttr::parse(AsmParser &parser, Type) {
  unsigned arg;
  if (parser.parseLess() || parseArg(parser, arg) || parser.parseGreater())
    return {};
  return DenseMaskAttr::get(parser.getContext(), arg);
}

void DenseMaskAttr::print(AsmPrinter &printer) const { printer << "<arg" << getArg() << '>'; }

void DenseMaskAttr::collectNumbers(SmallVectorImpl<NumberUse> &) const {}

Value DenseMaskAttr::emitPredicate(PairEmitter &e) const { return e.element(getArg()); }

MaskBounds DenseMaskAttr::getBounds(const BoundContext &) const { return MaskBounds::unknown(); }

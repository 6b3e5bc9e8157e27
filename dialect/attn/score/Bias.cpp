// bias(argN): s -> s + element of a rank-4 tensor.
#include "dialect/attn/Asm.h"
#include "dialect/attn/AttnDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace llmopt::attn;

Attribute BiasAttr::parse(AsmParser &parser, Type) {
  unsigned arg;
  if (parser.parseLess() || parseArg(parser, arg) || parser.parseGreater())
    return {};
  return BiasAttr::get(parser.getContext(), arg);
}

void BiasAttr::print(AsmPrinter &printer) const { printer << "<arg" << getArg() << '>'; }

void BiasAttr::collectNumbers(SmallVectorImpl<NumberUse> &) const {}

Value BiasAttr::emitScore(PairEmitter &e, Value score) const {
  return arith::AddFOp::create(e.builder(), e.loc(), score, e.element(getArg()));
}

// alibi(m): s -> s + m * (j - p).
#include "dialect/attn/Asm.h"
#include "dialect/attn/AttnDialect.h"
#include "dialect/attn/EmitUtils.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace llmopt::attn;

Attribute AlibiAttr::parse(AsmParser &parser, Type) {
  SMLoc loc = parser.getCurrentLocation();
  Attribute slope = parseBracketedNumber(parser, NumberKind::Float);
  return slope ? parser.getChecked<AlibiAttr>(loc, parser.getContext(), slope) : AlibiAttr();
}

void AlibiAttr::print(AsmPrinter &printer) const { printBracketedNumber(printer, getSlope()); }

LogicalResult AlibiAttr::verify(function_ref<InFlightDiagnostic()> emitError, Attribute slope) {
  return verifyFloat(emitError, slope, "the slope of alibi");
}

void AlibiAttr::collectNumbers(SmallVectorImpl<NumberUse> &numbers) const {
  numbers.push_back({*this, 0, "alibi_slope", getSlope(), true});
}

Value AlibiAttr::emitScore(PairEmitter &e, Value score) const {
  OpBuilder &b = e.builder();
  Location loc = e.loc();
  Value ahead = emit::subtract(e, e.keyPosition(), e.queryPosition());
  Value distance = arith::SIToFPOp::create(b, loc, b.getF32Type(), ahead);
  Value addend = arith::MulFOp::create(b, loc, e.number(*this, 0), distance);
  return arith::AddFOp::create(b, loc, score, addend);
}

// softcap(c): s -> c * tanh(s / c); c <= 0 leaves s.
#include "dialect/attn/Asm.h"
#include "dialect/attn/AttnDialect.h"
#include "dialect/attn/EmitUtils.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <limits>

using namespace mlir;
using namespace llmopt::attn;

Attribute SoftcapAttr::parse(AsmParser &parser, Type) {
  SMLoc loc = parser.getCurrentLocation();
  Attribute cap = parseBracketedNumber(parser, NumberKind::Float);
  return cap ? parser.getChecked<SoftcapAttr>(loc, parser.getContext(), cap) : SoftcapAttr();
}

void SoftcapAttr::print(AsmPrinter &printer) const { printBracketedNumber(printer, getCap()); }

LogicalResult SoftcapAttr::verify(function_ref<InFlightDiagnostic()> emitError, Attribute cap) {
  if (failed(verifyFloat(emitError, cap, "softcap")))
    return failure();
  if (auto number = dyn_cast<FloatAttr>(cap); number && number.getValueAsDouble() < 0)
    return emitError() << "softcap is 0 (off) or more, got " << cap;
  return success();
}

void SoftcapAttr::collectNumbers(SmallVectorImpl<NumberUse> &numbers) const {
  numbers.push_back({*this, 0, "softcap", getCap(), true, 0, "0 turns it off"});
}

// A cap that is off divides by 1 instead, so that no NaN of s / 0 arises at all. A score
// of -inf means hidden and stays so: tanh would turn it into a visible -c.
Value SoftcapAttr::emitScore(PairEmitter &e, Value score) const {
  OpBuilder &b = e.builder();
  Location loc = e.loc();
  Value cap = e.number(*this, 0);
  Value on = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGT, cap, emit::f32(e, 0));
  Value divisor = arith::SelectOp::create(b, loc, on, cap, emit::f32(e, 1));
  Value ratio = arith::DivFOp::create(b, loc, score, divisor);
  Value bent = math::TanhOp::create(b, loc, ratio);
  Value capped = arith::MulFOp::create(b, loc, divisor, bent);
  Value seen = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNE, score,
                                     emit::f32(e, -std::numeric_limits<float>::infinity()));
  Value bends = arith::AndIOp::create(b, loc, on, seen);
  return arith::SelectOp::create(b, loc, bends, capped, score);
}

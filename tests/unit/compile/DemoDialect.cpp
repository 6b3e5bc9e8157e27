#include "DemoDialect.h"

#include "dialect/reference/Masks.h"
#include "dialect/reference/Scores.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/DialectImplementation.h"

#include <cmath>

using namespace mlir;
using namespace llmopt;
using namespace llmopt::demo;

MLIR_DEFINE_EXPLICIT_TYPE_ID(llmopt::demo::DemoDialect)
MLIR_DEFINE_EXPLICIT_TYPE_ID(llmopt::demo::StripesAttr)
MLIR_DEFINE_EXPLICIT_TYPE_ID(llmopt::demo::TiltAttr)

DemoDialect::DemoDialect(MLIRContext *context)
    : Dialect(getDialectNamespace(), context, TypeID::get<DemoDialect>()) {
  addAttributes<StripesAttr, TiltAttr>();
}

Attribute DemoDialect::parseAttribute(DialectAsmParser &parser, Type) const {
  StringRef keyword;
  Builder &builder = parser.getBuilder();
  if (parser.parseKeyword(&keyword) || parser.parseLess())
    return {};
  Attribute result;
  if (keyword == "stripes") {
    int64_t size;
    if (parser.parseInteger(size))
      return {};
    result = StripesAttr::get(parser.getContext(), builder.getI64IntegerAttr(size));
  } else {
    double slope;
    if (parser.parseFloat(slope))
      return {};
    result = TiltAttr::get(parser.getContext(), builder.getF32FloatAttr(float(slope)));
  }
  return parser.parseGreater() ? Attribute() : result;
}

void DemoDialect::printAttribute(Attribute attribute, DialectAsmPrinter &printer) const {
  if (auto stripes = dyn_cast<StripesAttr>(attribute))
    printer << "stripes<" << cast<IntegerAttr>(stripes.getSize()).getInt() << '>';
  else
    printer << "tilt<" << cast<FloatAttr>(cast<TiltAttr>(attribute).getSlope()).getValue() << '>';
}

void StripesAttr::collectNumbers(SmallVectorImpl<attn::NumberUse> &numbers) const {
  numbers.push_back({*this, 0, "stripe", getSize(), false});
}

Value StripesAttr::emitPredicate(attn::PairEmitter &e) const {
  OpBuilder &b = e.builder();
  Value block = arith::DivSIOp::create(b, e.loc(), e.keyPosition(), e.number(*this, 0));
  Value one = arith::ConstantOp::create(b, e.loc(), b.getI32IntegerAttr(1));
  Value zero = arith::ConstantOp::create(b, e.loc(), b.getI32IntegerAttr(0));
  Value odd = arith::AndIOp::create(b, e.loc(), block, one);
  Value even = arith::CmpIOp::create(b, e.loc(), arith::CmpIPredicate::eq, odd, zero);
  Value past = arith::CmpIOp::create(b, e.loc(), arith::CmpIPredicate::sle, e.keyPosition(),
                                     e.queryPosition());
  return arith::AndIOp::create(b, e.loc(), even, past);
}

attn::MaskBounds StripesAttr::getBounds(const attn::BoundContext &context) const {
  attn::BoundExpr size = context.numberMin(*this, 0);
  attn::Interval::Thinning even{size * 2, 0, size};
  auto until = [&](attn::BoundExpr query) {
    attn::IntervalSet set;
    set.intervals.push_back({-attn::kUnbounded, query + 1, even});
    return set;
  };
  return {until(context.queryHi()), until(context.queryLo())};
}

void TiltAttr::collectNumbers(SmallVectorImpl<attn::NumberUse> &numbers) const {
  numbers.push_back({*this, 0, "tilt", getSlope(), true});
}

Value TiltAttr::emitScore(attn::PairEmitter &e, Value score) const {
  OpBuilder &b = e.builder();
  Value distance = arith::SubIOp::create(b, e.loc(), e.keyPosition(), e.queryPosition());
  Value wide = arith::SIToFPOp::create(b, e.loc(), b.getF32Type(), distance);
  Value tilt = arith::MulFOp::create(b, e.loc(), wide, e.number(*this, 0));
  return arith::AddFOp::create(b, e.loc(), score, tilt);
}

void demo::teachOracle() {
  using namespace reference;
  registerMask(TypeID::get<StripesAttr>(),
               [](Attribute mask, const Context &context) -> llvm::Expected<Predicate> {
                 llvm::Expected<Number> size =
                     context.number(mask, 0, cast<StripesAttr>(mask).getSize());
                 if (!size)
                   return size.takeError();
                 return [n = int64_t(size->of(0))](const Pair &p) {
                   return p.key / n % 2 == 0 && p.key <= p.queryPosition;
                 };
               });
  registerScore(TypeID::get<TiltAttr>(),
                [](Attribute score, const Context &context) -> llvm::Expected<ScoreFunction> {
                  llvm::Expected<Number> slope =
                      context.number(score, 0, cast<TiltAttr>(score).getSlope());
                  if (!slope)
                    return slope.takeError();
                  return [c = slope->of(0)](double s, const Pair &p, Mode mode) {
                    double tilt = c * double(p.key - p.queryPosition);
                    return mode == Mode::Exact ? s + tilt : double(float(s) + float(tilt));
                  };
                });
}

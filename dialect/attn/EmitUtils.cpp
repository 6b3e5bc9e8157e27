#include "dialect/attn/EmitUtils.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace llmopt::attn;

Value emit::i1(PairEmitter &e, bool value) {
  return arith::ConstantOp::create(e.builder(), e.loc(), e.builder().getBoolAttr(value));
}

Value emit::i32(PairEmitter &e, int32_t value) {
  return arith::ConstantOp::create(e.builder(), e.loc(), e.builder().getI32IntegerAttr(value));
}

Value emit::f32(PairEmitter &e, float value) {
  return arith::ConstantOp::create(e.builder(), e.loc(), e.builder().getF32FloatAttr(value));
}

Value emit::subtract(PairEmitter &e, Value a, Value b) {
  return arith::SubIOp::create(e.builder(), e.loc(), a, b);
}

Value emit::maximum(PairEmitter &e, Value a, Value b) {
  return arith::MaxSIOp::create(e.builder(), e.loc(), a, b);
}

Value emit::remainder(PairEmitter &e, Value a, Value b) {
  return arith::RemSIOp::create(e.builder(), e.loc(), a, b);
}

static Value compare(PairEmitter &e, arith::CmpIPredicate predicate, Value a, Value b) {
  return arith::CmpIOp::create(e.builder(), e.loc(), predicate, a, b);
}

Value emit::less(PairEmitter &e, Value a, Value b) {
  return compare(e, arith::CmpIPredicate::slt, a, b);
}

Value emit::lessEqual(PairEmitter &e, Value a, Value b) {
  return compare(e, arith::CmpIPredicate::sle, a, b);
}

Value emit::equal(PairEmitter &e, Value a, Value b) {
  return compare(e, arith::CmpIPredicate::eq, a, b);
}

/// Two comparisons that say the same.
static bool isSame(Value a, Value b) {
  auto first = a.getDefiningOp<arith::CmpIOp>(), second = b.getDefiningOp<arith::CmpIOp>();
  return a == b || (first && second && first.getPredicate() == second.getPredicate() &&
                    first->getOperands() == second->getOperands());
}

/// Whether `all` is a conjunction with `part` in it.
static bool holds(Value all, Value part) {
  auto both = all.getDefiningOp<arith::AndIOp>();
  return isSame(all, part) || (both && (holds(both.getLhs(), part) || holds(both.getRhs(), part)));
}

Value emit::both(PairEmitter &e, Value a, Value b) {
  // `causal and window<W>`: the window's upper end is the causal one.
  if (holds(b, a))
    return b;
  if (holds(a, b))
    return a;
  return arith::AndIOp::create(e.builder(), e.loc(), a, b);
}

Value emit::either(PairEmitter &e, Value a, Value b) {
  return arith::OrIOp::create(e.builder(), e.loc(), a, b);
}

Value emit::negate(PairEmitter &e, Value a) {
  return arith::XOrIOp::create(e.builder(), e.loc(), a, i1(e, true));
}

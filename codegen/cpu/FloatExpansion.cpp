// Conversions between f32 and f16 or bf16 in integer arithmetic, where the CPU has none.
#include "codegen/cpu/FloatOps.h"
#include "codegen/cpu/Passes.h"

#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace llmopt::cpu;

namespace {

using CompareInt = FloatOps::CompareInt;

Value bitsOfNarrow(FloatOps &o, Value x) {
  Type i16 = o.like(o.b.getIntegerType(16));
  return arith::ExtUIOp::create(o.b, o.i32(), arith::BitcastOp::create(o.b, i16, x));
}

Value narrowFromBits(FloatOps &o, Value bits, Type type) {
  Type i16 = o.like(o.b.getIntegerType(16));
  return arith::BitcastOp::create(o.b, type, arith::TruncIOp::create(o.b, i16, bits));
}

/// bf16 is the upper half of an f32.
Value extendBf16(FloatOps &o, Value x) { return o.real(o.shl(bitsOfNarrow(o, x), 16)); }

/// Nearest even: add half of the last place, less one when the last bit is 0. A NaN would
/// overflow into infinity or lose its payload, so it is made quiet instead.
Value truncateBf16(FloatOps &o, Value x, Type type) {
  Value bits = o.bits(x);
  Value odd = o.andi(o.shr(bits, 16), o.i(1));
  Value rounded = o.addi(bits, o.addi(odd, o.i(0x7fff)));
  Value nan = o.cmp(FloatOps::Compare::UNO, x, x);
  Value kept = o.select(nan, o.ori(bits, o.i(0x00400000)), rounded);
  return narrowFromBits(o, o.shr(kept, 16), type);
}

/// Shifting exponent and fraction into place leaves the bias wrong by 112: a product with
/// 2^112 mends it, for subnormals too. Inf and NaN get the full exponent.
Value extendF16(FloatOps &o, Value x) {
  Value bits = bitsOfNarrow(o, x);
  Value magnitude = o.shl(o.andi(bits, o.i(0x7fff)), 13);
  Value value = o.bits(o.mul(o.real(magnitude), o.real(o.i(0x77800000))));
  Value special = o.cmp(CompareInt::uge, magnitude, o.i(0x0f800000));
  value = o.select(special, o.ori(magnitude, o.i(0x7f800000)), value);
  return o.real(o.ori(value, o.shl(o.andi(bits, o.i(0x8000)), 16)));
}

Value truncateF16(FloatOps &o, Value x, Type type) {
  Value bits = o.bits(x);
  Value magnitude = o.andi(bits, o.i(0x7fffffff));
  // Subnormal halves: the sum with 0.5 leaves the rounded fraction in the low bits.
  Value half = o.i(0x3f000000);
  Value subnormal = o.subi(o.bits(o.add(o.real(magnitude), o.real(half))), half);
  Value odd = o.andi(o.shr(magnitude, 13), o.i(1));
  Value normal = o.shr(o.addi(o.addi(magnitude, o.i(0xc8000fff)), odd), 13);
  Value small = o.cmp(CompareInt::ult, magnitude, o.i(113u << 23));
  Value result = o.select(small, subnormal, normal);
  Value nan = o.cmp(CompareInt::ugt, magnitude, o.i(0x7f800000));
  Value large = o.cmp(CompareInt::uge, magnitude, o.i((127u + 16) << 23));
  result = o.select(large, o.select(nan, o.i(0x7e00), o.i(0x7c00)), result);
  return narrowFromBits(o, o.ori(result, o.andi(o.shr(bits, 16), o.i(0x8000))), type);
}

struct ExpandExtF : OpRewritePattern<arith::ExtFOp> {
  ExpandExtF(MLIRContext *context, const CpuIsa &isa) : OpRewritePattern(context), isa(isa) {}

  LogicalResult matchAndRewrite(arith::ExtFOp op, PatternRewriter &rewriter) const override {
    Type from = getElementTypeOrSelf(op.getIn().getType());
    bool half = from.isF16() && !isa.f16c;
    if (!getElementTypeOrSelf(op.getType()).isF32() || (!half && !from.isBF16()))
      return failure();
    FloatOps ops{ImplicitLocOpBuilder(op.getLoc(), rewriter), op.getType(), isa};
    rewriter.replaceOp(op, half ? extendF16(ops, op.getIn()) : extendBf16(ops, op.getIn()));
    return success();
  }
  const CpuIsa &isa;
};

struct ExpandTruncF : OpRewritePattern<arith::TruncFOp> {
  ExpandTruncF(MLIRContext *context, const CpuIsa &isa) : OpRewritePattern(context), isa(isa) {}

  LogicalResult matchAndRewrite(arith::TruncFOp op, PatternRewriter &rewriter) const override {
    Type to = getElementTypeOrSelf(op.getType());
    bool half = to.isF16() && !isa.f16c, brain = to.isBF16() && !isa.bf16Dot;
    if (!getElementTypeOrSelf(op.getIn().getType()).isF32() || (!half && !brain))
      return failure();
    FloatOps ops{ImplicitLocOpBuilder(op.getLoc(), rewriter), op.getType(), isa};
    rewriter.replaceOp(op, half ? truncateF16(ops, op.getIn(), op.getType())
                                : truncateBf16(ops, op.getIn(), op.getType()));
    return success();
  }
  const CpuIsa &isa;
};

} // namespace

void llmopt::cpu::populateFloatExpansion(RewritePatternSet &patterns, const CpuIsa &isa) {
  patterns.add<ExpandExtF, ExpandTruncF>(patterns.getContext(), isa);
}

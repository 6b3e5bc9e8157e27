// exp2, exp, tanh, log, log2, sinh, cosh and powf as straight-line code, for f32 scalars and
// vectors; all else that has no instruction is left to LibraryCalls.cpp.
//
// Largest errors against double, over all exponents (tests/unit/cpu/MathTest.cpp):
// exp2 and exp 1.5 ulp, log and log2 2 ulp, tanh 5 ulp, sinh and cosh 4 ulp; powf's error is
// relative to y log2(x): up to 1e-5 of the result at the ends of the range. Special values:
// exp2(-inf) and all arguments of -127 and less give exactly 0 (a masked key must weigh
// nothing), +inf stays, NaN stays; log(0) = -inf, log of a negative number is NaN; powf as
// IEEE 754 and C have it (x^0 = 1 for every x).
#include "codegen/cpu/FloatOps.h"
#include "codegen/cpu/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"

#include <limits>

using namespace mlir;
using namespace llmopt::cpu;

namespace llmopt::cpu {
#define GEN_PASS_DEF_TILECPUEXPANDMATH
#include "codegen/cpu/Passes.h.inc"
} // namespace llmopt::cpu

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLog2E = 1.44269504f;
/// Adding it rounds to an integer (nearest even), which then stands in the low bits.
constexpr float kRound = 12582912.0f; // 1.5 * 2^23

/// p * 2^n for the integer in the low bits of `rounded` (= n + kRound): the shift drops
/// all but n, and the sum of bit patterns is the product. `f` is NaN where x is.
Value scale(FloatOps &o, Value p, Value rounded, Value f) {
  Value scaled = o.real(o.addi(o.bits(p), o.shl(o.bits(rounded), 23)));
  return o.fma(f, o.f(0.0f), scaled); // a NaN's payload may have left the exponent
}

/// 2^x for one register of AVX-512: what x has beyond its floor and a product with 2^floor(x) are
/// one instruction each, and right for infinities and NaN. Minimax on [0, 1), error 2.0e-9.
/// Arguments of -126 and less give 0: results below the normal range would be slow, and so would
/// products with them.
Value scaledExp2(FloatOps &o, Value x) {
  auto intrinsic = [&](StringRef name, Value first, Value second) {
    Value rest = o.f(0.0f), all = LLVM::ConstantOp::create(o.b, o.b.getI16IntegerAttr(-1)),
          rounding = LLVM::ConstantOp::create(o.b, o.b.getI32IntegerAttr(4)); // as MXCSR says
    return LLVM::CallIntrinsicOp::create(o.b, o.shape,
                                         o.b.getStringAttr("llvm.x86.avx512.mask." + name),
                                         ValueRange{first, second, rest, all, rounding})
        .getResult(0);
  };
  Value floor = LLVM::ConstantOp::create(o.b, o.b.getI32IntegerAttr(9)); // quiet, to -infinity
  Value f = intrinsic("reduce.ps.512", x, floor);
  Value p = o.polynomial(f, {2.16129425e-4f, 1.24678388e-3f, 9.67545249e-3f, 5.54852821e-2f,
                             2.40229309e-1f, 6.93147063e-1f, 1.0f});
  Value normal = o.cmp(FloatOps::Compare::UGT, x, o.f(-126.0f));
  return o.select(normal, intrinsic("scalef.ps.512", p, x), o.f(0.0f));
}

/// The same for a scalar or several registers: a kernel's results do not depend on the width.
Value expandScaledExp2(FloatOps &o, Value x) {
  constexpr int64_t kLanes = 16;
  auto type = VectorType::get({kLanes}, o.b.getF32Type());
  FloatOps one{o.b, type, o.isa};
  auto wide = dyn_cast<VectorType>(o.shape);
  if (!wide)
    return vector::ExtractOp::create(o.b,
                                     scaledExp2(one, vector::BroadcastOp::create(o.b, type, x)), 0);
  SmallVector<Value> parts;
  for (int64_t at = 0; at < wide.getNumElements(); at += kLanes)
    parts.push_back(scaledExp2(
        one, vector::ShuffleOp::create(o.b, x, x, llvm::to_vector(llvm::seq(at, at + kLanes)))));
  for (int64_t lanes = 2 * kLanes; parts.size() > 1; lanes *= 2)
    for (size_t i = 0; i < parts.size(); ++i) {
      parts[i] = vector::ShuffleOp::create(o.b, parts[i], parts[i + 1],
                                           llvm::to_vector(llvm::seq<int64_t>(0, lanes)));
      parts.erase(parts.begin() + i + 1);
    }
  return parts.front();
}

/// True for a scalar and for 1, 2, 4, … whole registers.
bool isWhole(Type shape) {
  auto type = dyn_cast<VectorType>(shape);
  int64_t lanes = type ? type.getNumElements() : 16;
  return lanes % 16 == 0 && llvm::isPowerOf2_64(lanes) && (!type || type.getRank() == 1);
}

// 2^x = 2^n * 2^f, |f| <= 1/2; minimax with the constant term held at 1, error 2.6e-9.
// The lower bound gives exactly 0 there (exponent and fraction both 0); between -127 and
// -126 the result is some number below 1.2e-38.
Value expandExp2(FloatOps &o, Value x) {
  if (o.isa.scalef && isWhole(o.shape))
    return expandScaledExp2(o, x);
  Value bounded = o.atLeast(o.atMost(x, o.f(128.0f)), o.f(-127.0f));
  Value rounded = o.add(bounded, o.f(kRound));
  Value f = o.sub(bounded, o.sub(rounded, o.f(kRound)));
  Value p = o.polynomial(f, {1.55946778e-4f, 1.34066434e-3f, 9.61769279e-3f, 5.55031039e-2f,
                             2.40226522e-1f, 6.93147242e-1f, 1.0f});
  return scale(o, p, rounded, f);
}

Value expandExp(FloatOps &o, Value x) {
  // 88.72284 is the last argument with a finite result, -87.33654 the last normal one.
  Value bounded = o.atMost(x, o.f(88.7228394f));
  Value rounded = o.fma(bounded, o.f(kLog2E), o.f(kRound));
  Value n = o.sub(rounded, o.f(kRound));
  // ln 2 in two parts, the first with few bits, so that n * high is exact.
  Value f = o.fma(n, o.f(-0.693359375f), bounded);
  f = o.fma(n, o.f(2.12194440e-4f), f);
  Value p = o.polynomial(f, {1.40612677e-3f, 8.37901887e-3f, 4.16647755e-2f, 1.66663647e-1f,
                             5.0000006e-1f, 1.0f, 1.0f});
  Value result = scale(o, p, rounded, f);
  result = o.select(o.cmp(FloatOps::Compare::OGT, x, o.f(88.7228394f)), o.f(kInfinity), result);
  return o.select(o.cmp(FloatOps::Compare::OLT, x, o.f(-87.3365479f)), o.f(0.0f), result);
}

// Rational minimax approximation (as in Eigen); saturates beyond 7.9.
Value expandTanh(FloatOps &o, Value x) {
  Value c = o.atLeast(o.atMost(x, o.f(7.90531111f)), o.f(-7.90531111f));
  Value square = o.mul(c, c);
  Value p =
      o.polynomial(square, {-2.76076847742355e-16f, 2.00018790482477e-13f, -8.60467152213735e-11f,
                            5.12229709037114e-08f, 1.48572235717979e-05f, 6.37261928875436e-04f,
                            4.89352455891786e-03f});
  Value q = o.polynomial(square, {1.19825839466702e-06f, 1.18534705686654e-04f,
                                  2.26843463243900e-03f, 4.89352518554385e-03f});
  Value result = o.div(o.mul(c, p), q);
  Value magnitude = math::AbsFOp::create(o.b, x);
  // From 9.011 on the result rounds to 1; the quotient may be a unit off.
  Value one = math::CopySignOp::create(o.b, o.f(1.0f), x);
  result = o.select(o.cmp(FloatOps::Compare::OGT, magnitude, o.f(9.01f)), one, result);
  return o.select(o.cmp(FloatOps::Compare::OLT, magnitude, o.f(0.0004f)), x, result);
}

/// Splits x into e and m - 1 with x = m * 2^e, m in [sqrt(1/2), sqrt(2)), and returns
/// log(m) - (m - 1) besides.
struct LogParts {
  Value exponent, fraction, rest;
};

LogParts splitLog(FloatOps &o, Value x) {
  // Subnormals have no exponent of their own: scale them up first.
  Value tiny = o.cmp(FloatOps::Compare::OLT, x, o.f(1.17549435e-38f));
  Value normal = o.select(tiny, o.mul(x, o.f(8388608.0f)), x);
  Value bits = o.bits(normal);
  Value e = o.subi(o.shr(bits, 23), o.select(tiny, o.i(126 + 23), o.i(126)));
  Value m = o.real(o.ori(o.andi(bits, o.i(0x007fffff)), o.i(0x3f000000)));
  Value low = o.cmp(FloatOps::Compare::OLT, m, o.f(0.707106781f));
  e = o.subi(e, o.select(low, o.i(1), o.i(0)));
  Value exponent = arith::SIToFPOp::create(o.b, o.f32(), e);
  Value t = o.sub(o.select(low, o.add(m, m), m), o.f(1.0f));
  Value square = o.mul(t, t);
  Value p = o.polynomial(t, {7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f,
                             -1.2420140846e-1f, 1.4249322787e-1f, -1.6668057665e-1f,
                             2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f});
  Value rest = o.fma(o.f(-0.5f), square, o.mul(o.mul(p, t), square));
  return {exponent, t, rest};
}

Value logSpecials(FloatOps &o, Value x, Value result) {
  using Compare = FloatOps::Compare;
  float nan = std::numeric_limits<float>::quiet_NaN();
  result = o.select(o.cmp(Compare::OEQ, x, o.f(kInfinity)), x, result);
  result = o.select(o.cmp(Compare::ULT, x, o.f(0.0f)), o.f(nan), result);
  return o.select(o.cmp(Compare::OEQ, x, o.f(0.0f)), o.f(-kInfinity), result);
}

Value expandLog(FloatOps &o, Value x) {
  LogParts parts = splitLog(o, x);
  Value low = o.fma(parts.exponent, o.f(-2.12194440e-4f), parts.rest);
  Value result = o.fma(parts.exponent, o.f(0.693359375f), o.add(parts.fraction, low));
  return logSpecials(o, x, result);
}

Value expandLog2(FloatOps &o, Value x) {
  LogParts parts = splitLog(o, x);
  // log2(e) - 1 keeps the product's rounding away from the leading term.
  Value sum = o.add(parts.fraction, parts.rest);
  Value low = o.fma(parts.rest, o.f(kLog2E - 1.0f), o.mul(parts.fraction, o.f(kLog2E - 1.0f)));
  Value result = o.add(o.add(sum, low), parts.exponent);
  return logSpecials(o, x, result);
}

/// e^(|x| - ln 2): half of e^|x|, finite as long as sinh and cosh are.
Value halfExp(FloatOps &o, Value magnitude) {
  // ln 2 in two parts: the difference must be exact to what exp amplifies.
  Value shifted = o.sub(magnitude, o.f(0.693359375f));
  Value half = expandExp(o, shifted);
  return o.fma(half, o.f(2.12194440e-4f), half); // e^2.1219444e-4 to 2.3e-8
}

Value expandCosh(FloatOps &o, Value x) {
  Value half = halfExp(o, math::AbsFOp::create(o.b, x));
  return o.add(half, o.div(o.f(0.25f), half));
}

Value expandSinh(FloatOps &o, Value x) {
  Value magnitude = math::AbsFOp::create(o.b, x);
  Value half = halfExp(o, magnitude);
  Value large = math::CopySignOp::create(o.b, o.sub(half, o.div(o.f(0.25f), half)), x);
  // Below 1 the difference would cancel: the Taylor series, rest below 3e-8.
  Value square = o.mul(x, x);
  Value p = o.polynomial(square, {2.75573192e-6f, 1.98412698e-4f, 8.33333333e-3f, 1.66666667e-1f});
  Value small = o.fma(o.mul(square, p), x, x);
  return o.select(o.cmp(FloatOps::Compare::OLT, magnitude, o.f(1.0f)), small, large);
}

/// x^y: 2^(y log2|x|), then the special values of C's Annex F in its order.
Value expandPow(FloatOps &o, Value x, Value y) {
  using Compare = FloatOps::Compare;
  Value magnitude = math::AbsFOp::create(o.b, x);
  Value result = expandExp2(o, o.mul(y, expandLog2(o, magnitude)));
  // From 2^24 on all numbers, infinity too, are even integers.
  Value large = o.cmp(Compare::UGE, math::AbsFOp::create(o.b, y), o.f(16777216.0f));
  Value whole = arith::FPToSIOp::create(o.b, o.i32(), o.select(large, o.f(0.0f), y));
  Value same = o.cmp(Compare::OEQ, arith::SIToFPOp::create(o.b, o.f32(), whole), y);
  Value odd = o.cmp(FloatOps::CompareInt::ne, o.andi(whole, o.i(1)), o.i(0));
  odd = arith::AndIOp::create(o.b, odd, same);
  Value isInteger = arith::OrIOp::create(o.b, large, same);
  result = o.select(odd, math::CopySignOp::create(o.b, result, x), result);
  // A negative finite number has no real power that is no integer.
  Value negative = o.cmp(Compare::OLT, x, o.f(0.0f));
  negative = arith::AndIOp::create(o.b, negative, o.cmp(Compare::OGT, x, o.f(-kInfinity)));
  Value nan = o.f(std::numeric_limits<float>::quiet_NaN());
  result = o.select(negative, o.select(isInteger, result, nan), result);
  // (-1)^inf = 1, where the product above was 0 times infinity.
  Value endless = o.cmp(Compare::OEQ, math::AbsFOp::create(o.b, y), o.f(kInfinity));
  Value unit = o.cmp(Compare::OEQ, magnitude, o.f(1.0f));
  result = o.select(arith::AndIOp::create(o.b, endless, unit), o.f(1.0f), result);
  Value isOne = o.cmp(Compare::OEQ, x, o.f(1.0f)), none = o.cmp(Compare::OEQ, y, o.f(0.0f));
  return o.select(arith::OrIOp::create(o.b, isOne, none), o.f(1.0f), result);
}

template <typename Op> struct Expand : OpRewritePattern<Op> {
  using Function = Value (*)(FloatOps &, Value);
  Expand(MLIRContext *context, const CpuIsa &isa, Function function)
      : OpRewritePattern<Op>(context), isa(isa), function(function) {}

  LogicalResult matchAndRewrite(Op op, PatternRewriter &rewriter) const override {
    Type type = op.getType();
    Type element = getElementTypeOrSelf(type);
    if (!llvm::isa_and_nonnull<Float32Type, Float16Type, BFloat16Type>(element))
      return failure();
    ImplicitLocOpBuilder b(op.getLoc(), rewriter);
    FloatOps ops{b, type, isa};
    Value x = op.getOperand();
    bool narrow = !element.isF32();
    if (narrow)
      x = arith::ExtFOp::create(ops.b, ops.f32(), x);
    Value result = function(ops, x);
    if (narrow)
      result = arith::TruncFOp::create(ops.b, type, result);
    rewriter.replaceOp(op, result);
    return success();
  }

  const CpuIsa &isa;
  Function function;
};

struct ExpandPow : OpRewritePattern<math::PowFOp> {
  ExpandPow(MLIRContext *context, const CpuIsa &isa) : OpRewritePattern(context), isa(isa) {}

  LogicalResult matchAndRewrite(math::PowFOp op, PatternRewriter &rewriter) const override {
    Type type = op.getType(), element = getElementTypeOrSelf(type);
    if (!llvm::isa<Float32Type, Float16Type, BFloat16Type>(element))
      return failure();
    FloatOps ops{ImplicitLocOpBuilder(op.getLoc(), rewriter), type, isa};
    Value x = op.getLhs(), y = op.getRhs();
    bool narrow = !element.isF32();
    if (narrow) {
      x = arith::ExtFOp::create(ops.b, ops.f32(), x);
      y = arith::ExtFOp::create(ops.b, ops.f32(), y);
    }
    Value result = expandPow(ops, x, y);
    if (narrow)
      result = arith::TruncFOp::create(ops.b, type, result);
    rewriter.replaceOp(op, result);
    return success();
  }
  const CpuIsa &isa;
};

/// x^n by squaring, for integers of any width: exact, and wrapping like the oracle's.
struct ExpandIPowI : OpRewritePattern<math::IPowIOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(math::IPowIOp op, PatternRewriter &rewriter) const override {
    Type type = op.getType(), element = getElementTypeOrSelf(type);
    ImplicitLocOpBuilder b(op.getLoc(), rewriter);
    auto number = [&](int64_t value) -> Value {
      TypedAttr attr = rewriter.getIntegerAttr(element, value);
      if (auto vector = dyn_cast<VectorType>(type))
        attr = DenseElementsAttr::get(vector, Attribute(attr));
      return arith::ConstantOp::create(b, attr);
    };
    unsigned width = element.isIndex() ? 64 : element.getIntOrFloatBitWidth();
    Value x = op.getLhs(), n = op.getRhs(), zero = number(0), one = number(1);
    auto is = [&](Value v, arith::CmpIPredicate predicate, Value bound) {
      return arith::CmpIOp::create(b, predicate, v, bound);
    };
    Value power = one, square = x;
    for (unsigned bit = 0; bit + 1 < width; ++bit) {
      Value digit = arith::AndIOp::create(b, n, number(int64_t(1) << bit));
      Value product = arith::MulIOp::create(b, power, square);
      power = arith::SelectOp::create(b, is(digit, arith::CmpIPredicate::ne, zero), product, power);
      square = arith::MulIOp::create(b, square, square);
    }
    // 1 / x^-n, rounded towards 0: of 1 and -1 alone it is not 0.
    Value odd = arith::AndIOp::create(b, n, one), minusOne = number(-1);
    Value sign = arith::SelectOp::create(b, is(odd, arith::CmpIPredicate::ne, zero), minusOne, one);
    Value inverse =
        arith::SelectOp::create(b, is(x, arith::CmpIPredicate::eq, minusOne), sign, zero);
    inverse = arith::SelectOp::create(b, is(x, arith::CmpIPredicate::eq, one), one, inverse);
    rewriter.replaceOpWithNewOp<arith::SelectOp>(op, is(n, arith::CmpIPredicate::slt, zero),
                                                 inverse, power);
    return success();
  }
};

/// The way to LLVM knows isnan and isfinite only.
struct ExpandIsInf : OpRewritePattern<math::IsInfOp> {
  using OpRewritePattern::OpRewritePattern;

  LogicalResult matchAndRewrite(math::IsInfOp op, PatternRewriter &rewriter) const override {
    Type type = op.getOperand().getType(), element = getElementTypeOrSelf(type);
    ImplicitLocOpBuilder b(op.getLoc(), rewriter);
    TypedAttr infinity = rewriter.getFloatAttr(element, kInfinity);
    if (auto vector = dyn_cast<VectorType>(type))
      infinity = DenseElementsAttr::get(vector, Attribute(infinity));
    rewriter.replaceOpWithNewOp<arith::CmpFOp>(op, arith::CmpFPredicate::OEQ,
                                               math::AbsFOp::create(b, op.getOperand()),
                                               arith::ConstantOp::create(b, infinity));
    return success();
  }
};

/// Without FMA in the CPU, llvm.fma is a call.
struct SplitFma : OpRewritePattern<math::FmaOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::FmaOp op, PatternRewriter &rewriter) const override {
    Value product = arith::MulFOp::create(rewriter, op.getLoc(), op.getA(), op.getB());
    rewriter.replaceOpWithNewOp<arith::AddFOp>(op, product, op.getC());
    return success();
  }
};

struct TileCpuExpandMath : llmopt::cpu::impl::TileCpuExpandMathBase<TileCpuExpandMath> {
  using TileCpuExpandMathBase::TileCpuExpandMathBase;

  void runOnOperation() override {
    CpuIsa isa = CpuIsa::fromFeatures(features);
    if (failed(callHostFunctions(getOperation(), isa)))
      return signalPassFailure();
    RewritePatternSet expansions(&getContext()), conversions(&getContext());
    populateMathExpansion(expansions, isa);
    walkAndApplyPatterns(getOperation(), std::move(expansions));
    populateFloatExpansion(conversions, isa);
    walkAndApplyPatterns(getOperation(), std::move(conversions));
  }
};

} // namespace

void llmopt::cpu::populateMathExpansion(RewritePatternSet &patterns, const CpuIsa &isa) {
  MLIRContext *context = patterns.getContext();
  patterns.add<Expand<math::Exp2Op>>(context, isa, expandExp2);
  patterns.add<Expand<math::ExpOp>>(context, isa, expandExp);
  patterns.add<Expand<math::TanhOp>>(context, isa, expandTanh);
  patterns.add<Expand<math::LogOp>>(context, isa, expandLog);
  patterns.add<Expand<math::Log2Op>>(context, isa, expandLog2);
  patterns.add<Expand<math::SinhOp>>(context, isa, expandSinh);
  patterns.add<Expand<math::CoshOp>>(context, isa, expandCosh);
  patterns.add<ExpandPow>(context, isa);
  patterns.add<ExpandIPowI, ExpandIsInf>(context);
  if (!isa.fma)
    patterns.add<SplitFma>(context);
}

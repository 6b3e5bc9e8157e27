// f16, bf16 and their pairs: add, sub, mul, fma, min, max, neg, abs
// (PTX ISA 9.7.4). Sums and products are exact in f32 or rounded there with
// more than twice the bits, so that rounding twice does not show; fma is
// rounded once from the exact result.
#include "runtime/device/sim/exec/Lanes.h"
#include "runtime/device/sim/numeric/Half.h"
#include "runtime/device/sim/ops/FloatModes.h"
#include "runtime/device/sim/ops/Ops.h"

#include <cmath>

namespace llmopt::sim {

using ptx::Type;
using runtime::Status;

namespace {

enum class HalfOp : uint8_t { Add, Sub, Mul, Fma, Min, Max, Neg, Abs };

template <typename H> H flush(H x) {
  constexpr uint16_t kExponent = static_cast<uint16_t>(H::kFormat.infinity());
  if (!(x.bits & kExponent))
    x.bits &= 0x8000;
  return x;
}

template <typename H> H finish(float value, uint8_t mode) {
  H result(value);
  if (mode & kFtz)
    result = flush(result);
  if (mode & kSat) {
    float x = result.value();
    result = H(x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f);
  }
  // relu: negative results become +0, NaN stays.
  if (mode & kRelu && result.bits & 0x8000 && result.value() == result.value())
    result.bits = 0;
  return result;
}

template <typename H> H fma(H a, H b, H c, uint8_t mode) {
  Exact exact = exactFma(a.value(), b.value(), c.value());
  auto rounded = fromBits<H>(encode(exact, H::kFormat, Rounding::NearestEven));
  return finish<H>(rounded.value(), mode);
}

template <typename H> H extremum(H a, H b, bool max, uint8_t mode) {
  uint16_t sign = (a.bits ^ b.bits) & 0x8000;
  if (mode & kXorSign) {
    a.bits &= 0x7fff;
    b.bits &= 0x7fff;
  }
  float x = a.value(), y = b.value();
  bool xNan = x != x, yNan = y != y;
  H result = fromBits<H>(0x7fff);
  if (xNan || yNan) {
    if (!(mode & kNanWins) && !(xNan && yNan))
      result = xNan ? b : a;
  } else if (x == y) {
    result = ((a.bits & 0x8000) != 0) != max ? a : b;
  } else {
    result = (x > y) == max ? a : b;
  }
  if (mode & kXorSign && result.value() == result.value())
    result.bits |= sign;
  return result;
}

template <typename H> H compute(HalfOp op, H a, H b, H c, uint8_t mode) {
  if (mode & kFtz) {
    a = flush(a);
    b = flush(b);
    c = flush(c);
  }
  switch (op) {
  case HalfOp::Add:
    return finish<H>(a.value() + b.value(), mode);
  case HalfOp::Sub:
    return finish<H>(a.value() - b.value(), mode);
  case HalfOp::Mul:
    return finish<H>(a.value() * b.value(), mode);
  case HalfOp::Fma:
    return fma(a, b, c, mode);
  case HalfOp::Min:
    return extremum(a, b, false, mode);
  case HalfOp::Max:
    return extremum(a, b, true, mode);
  case HalfOp::Neg:
    a.bits ^= 0x8000;
    return a;
  case HalfOp::Abs:
    a.bits &= 0x7fff;
    return a;
  }
  return a;
}

template <typename H, HalfOp Op, bool Pair>
void halfLanes(Warp &warp, const Inst &inst, LaneMask mask) {
  constexpr bool kUnary = Op == HalfOp::Neg || Op == HalfOp::Abs;
  const uint32_t *a = warp.narrow(inst.a);
  const uint32_t *b = kUnary ? a : warp.narrow(inst.b);
  const uint32_t *c = Op == HalfOp::Fma ? warp.narrow(inst.c) : a;
  uint32_t *d = warp.narrow(inst.d);
  forEachLane(mask, [&](uint32_t lane) {
    auto half = [&](uint32_t shift) -> uint32_t {
      return compute(Op, fromBits<H>(a[lane] >> shift), fromBits<H>(b[lane] >> shift),
                     fromBits<H>(c[lane] >> shift), inst.mode)
          .bits;
    };
    uint32_t result = half(0);
    if constexpr (Pair)
      result |= half(16) << 16;
    d[lane] = result;
  });
}

template <typename H, bool Pair> Handler handlerFor(HalfOp op) {
  switch (op) {
  case HalfOp::Add:
    return &halfLanes<H, HalfOp::Add, Pair>;
  case HalfOp::Sub:
    return &halfLanes<H, HalfOp::Sub, Pair>;
  case HalfOp::Mul:
    return &halfLanes<H, HalfOp::Mul, Pair>;
  case HalfOp::Fma:
    return &halfLanes<H, HalfOp::Fma, Pair>;
  case HalfOp::Min:
    return &halfLanes<H, HalfOp::Min, Pair>;
  case HalfOp::Max:
    return &halfLanes<H, HalfOp::Max, Pair>;
  case HalfOp::Neg:
    return &halfLanes<H, HalfOp::Neg, Pair>;
  case HalfOp::Abs:
    return &halfLanes<H, HalfOp::Abs, Pair>;
  }
  return nullptr;
}

struct OpName {
  std::string_view name;
  HalfOp op;
};
constexpr OpName kOps[] = {{"add", HalfOp::Add}, {"sub", HalfOp::Sub}, {"mul", HalfOp::Mul},
                           {"fma", HalfOp::Fma}, {"min", HalfOp::Min}, {"max", HalfOp::Max},
                           {"neg", HalfOp::Neg}, {"abs", HalfOp::Abs}};

} // namespace

Status decodeHalfArithmetic(InstDecoder &d, Type type) {
  const OpName *found = nullptr;
  for (const OpName &row : kOps)
    if (row.name == d.opcode())
      found = &row;
  if (!found)
    return d.unsupported();
  HalfOp op = found->op;
  bool unary = op == HalfOp::Neg || op == HalfOp::Abs;
  bool extremes = op == HalfOp::Min || op == HalfOp::Max;
  size_t inputs = unary ? 1 : op == HalfOp::Fma ? 3 : 2;
  if (!unary && !extremes)
    d.take("rn");
  uint8_t mode = 0;
  if (d.take("ftz"))
    mode |= kFtz;
  if (!unary && !extremes && d.take("sat"))
    mode |= kSat;
  if (op == HalfOp::Fma && d.take("relu"))
    mode |= kRelu;
  if (extremes && d.take("NaN"))
    mode |= kNanWins;
  if (extremes && d.take("xorsign")) {
    if (!d.take("abs"))
      return d.unsupported();
    mode |= kXorSign;
  }
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(inputs + 1));
  constexpr Field kFields[] = {Field::A, Field::B, Field::C};
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, type));
  for (size_t i = 0; i < inputs; ++i)
    LLMOPT_RETURN_IF_ERROR(d.input(kFields[i], i + 1, type));
  d.inst.mode = mode;
  d.inst.cls = InstClass::Float;
  switch (type) {
  case Type::F16:
    d.inst.run = handlerFor<F16, false>(op);
    break;
  case Type::F16x2:
    d.inst.run = handlerFor<F16, true>(op);
    break;
  case Type::BF16:
    d.inst.run = handlerFor<BF16, false>(op);
    break;
  default:
    d.inst.run = handlerFor<BF16, true>(op);
    break;
  }
  return {};
}

} // namespace llmopt::sim

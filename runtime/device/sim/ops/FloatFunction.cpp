// rcp, sqrt, rsqrt, ex2, lg2, sin, cos, tanh, copysign, testp (PTX ISA 9.7.3).
// Where the ISA allows an error (.approx), results here are as exact as the
// format lets them be, except ex2: below 2^-22 relative.
#include "runtime/device/sim/exec/Lanes.h"
#include "runtime/device/sim/numeric/Float32.h"
#include "runtime/device/sim/numeric/Half.h"
#include "runtime/device/sim/ops/FloatModes.h"
#include "runtime/device/sim/ops/Ops.h"

#include <cmath>

namespace llmopt::sim {

using ptx::Type;
using runtime::Status;

namespace {

float roundDouble(double x) { return static_cast<float>(x); }

template <bool Ftz> float rcpF32(float a) { return finished<Ftz>(1.0f / flushed<Ftz>(a)); }
template <bool Ftz> float sqrtF32(float a) { return finished<Ftz>(std::sqrt(flushed<Ftz>(a))); }
template <bool Ftz> float rsqrtF32(float a) {
  return finished<Ftz>(roundDouble(1.0 / std::sqrt(double{flushed<Ftz>(a)})));
}
template <bool Ftz> float lg2F32(float a) {
  return finished<Ftz>(roundDouble(std::log2(double{flushed<Ftz>(a)})));
}
template <bool Ftz> float sinF32(float a) { return finished<Ftz>(std::sin(flushed<Ftz>(a))); }
template <bool Ftz> float cosF32(float a) { return finished<Ftz>(std::cos(flushed<Ftz>(a))); }
template <bool Ftz> float tanhF32(float a) { return finished<Ftz>(std::tanh(flushed<Ftz>(a))); }

/// 2^a = 2^n * 2^f with |f| <= 1/2; the second by the Taylor series of
/// exp(f ln 2) up to the 7th power, whose rest is below 2^-27. Softmax is full
/// of these, so there is no call and no branch in it.
template <bool Ftz> float ex2F32(float a) {
  float x = flushed<Ftz>(a);
  x = x < -252.0f ? -252.0f : x > 129.0f ? 129.0f : x; // 2^x is 0 or infinite there
  constexpr float kRoundToInteger = 0x1.8p23f;
  float n = (x + kRoundToInteger) - kRoundToInteger;
  float f = x - n;
  constexpr double kLn2 = 0.693147180559945309417;
  constexpr auto coefficient = [](int power) {
    double value = 1;
    for (int i = 1; i <= power; ++i)
      value *= kLn2 / i;
    return static_cast<float>(value);
  };
  float p = coefficient(7);
  p = p * f + coefficient(6);
  p = p * f + coefficient(5);
  p = p * f + coefficient(4);
  p = p * f + coefficient(3);
  p = p * f + coefficient(2);
  p = p * f + coefficient(1);
  p = p * f + 1.0f;
  // In two factors, so that neither leaves the range of normal numbers.
  auto exponent = static_cast<int32_t>(n);
  int32_t half = exponent >> 1;
  auto power = [](int32_t e) { return std::bit_cast<float>(static_cast<uint32_t>(e + 127) << 23); };
  float result = p * power(half) * power(exponent - half);
  return finished<Ftz>(a != a ? a : result);
}

double rcpF64(double a) { return 1.0 / a; }
double sqrtF64(double a) {
  double root = std::sqrt(a);
  return root != root ? std::bit_cast<double>(kF64.nan) : root;
}
double rsqrtF64(double a) { return 1.0 / std::sqrt(a); }

template <typename H> H ex2Half(H a) { return H(std::exp2(a.value())); }
template <typename H> H tanhHalf(H a) { return H(std::tanh(a.value())); }
template <auto F> struct PairOf;
template <typename H, H (*F)(H)> struct PairOf<F> {
  static uint32_t apply(uint32_t a) {
    return F(fromBits<H>(a)).bits | uint32_t{F(fromBits<H>(a >> 16)).bits} << 16;
  }
};

float copysignF32(float a, float b) { return std::copysign(b, a); }
double copysignF64(double a, double b) { return std::copysign(b, a); }

Status bind(InstDecoder &d, Type type, InstClass cls) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(2));
  d.inst.cls = cls;
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, type));
  return d.input(Field::A, 1, type);
}

struct FunctionRow {
  std::string_view name;
  Handler plain, ftz;
  Handler f64;
  bool exactForm; ///< has .rn .rz .rm .rp beside .approx
};

#define LLMOPT_SIM_BOTH(f) lanewise<&f<false>>, lanewise<&f<true>>
constexpr FunctionRow kFunctions[] = {
    {"rcp", LLMOPT_SIM_BOTH(rcpF32), lanewise<&rcpF64>, true},
    {"sqrt", LLMOPT_SIM_BOTH(sqrtF32), lanewise<&sqrtF64>, true},
    {"rsqrt", LLMOPT_SIM_BOTH(rsqrtF32), lanewise<&rsqrtF64>, false},
    {"ex2", LLMOPT_SIM_BOTH(ex2F32), nullptr, false},
    {"lg2", LLMOPT_SIM_BOTH(lg2F32), nullptr, false},
    {"sin", LLMOPT_SIM_BOTH(sinF32), nullptr, false},
    {"cos", LLMOPT_SIM_BOTH(cosF32), nullptr, false},
    {"tanh", LLMOPT_SIM_BOTH(tanhF32), nullptr, false},
};

Handler halfFunction(std::string_view op, Type type) {
  bool ex2 = op == "ex2";
  if (!ex2 && op != "tanh")
    return nullptr;
  switch (type) {
  case Type::F16:
    return ex2 ? lanewise<&ex2Half<F16>> : lanewise<&tanhHalf<F16>>;
  case Type::BF16:
    return ex2 ? lanewise<&ex2Half<BF16>> : lanewise<&tanhHalf<BF16>>;
  case Type::F16x2:
    return ex2 ? lanewise<&PairOf<&ex2Half<F16>>::apply> : lanewise<&PairOf<&tanhHalf<F16>>::apply>;
  case Type::BF16x2:
    return ex2 ? lanewise<&PairOf<&ex2Half<BF16>>::apply>
               : lanewise<&PairOf<&tanhHalf<BF16>>::apply>;
  default:
    return nullptr;
  }
}

Status decodeFunction(InstDecoder &d) {
  const FunctionRow *found = nullptr;
  for (const FunctionRow &row : kFunctions)
    if (row.name == d.opcode())
      found = &row;
  bool approx = d.take("approx"), ftz = d.take("ftz");
  int rounding = found->exactForm && !approx ? takeRounding(d) : 0;
  if (!approx && rounding < 0)
    return d.unsupported();
  Type type = d.takeType();
  LLMOPT_RETURN_IF_ERROR(bind(d, type, InstClass::Special));
  if (type == Type::F32) {
    d.inst.run = ftz ? found->ftz : found->plain;
    if (rounding > 0) {
      d.inst.run = directedHandler(d.opcode());
      d.inst.imm = rounding;
      d.inst.mode = ftz ? kFtz : 0;
    }
  } else if (type == Type::F64) {
    if (rounding > 0)
      return d.unsupported();
    d.inst.run = found->f64;
  } else {
    d.inst.run = halfFunction(d.opcode(), type);
  }
  return d.inst.run ? Status() : d.unsupported();
}

Status decodeCopysign(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(3));
  Type type = d.takeType();
  if (type != Type::F32 && type != Type::F64)
    return d.unsupported();
  d.inst.cls = InstClass::Float;
  d.inst.run = type == Type::F32 ? lanewise<&copysignF32> : lanewise<&copysignF64>;
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, type));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::A, 1, type));
  return d.input(Field::B, 2, type);
}

enum class Property : uint8_t { Finite, Infinite, Number, NotANumber, Normal, Subnormal };

template <typename T> bool hasProperty(T x, Property property) {
  switch (property) {
  case Property::Finite:
    return std::isfinite(x);
  case Property::Infinite:
    return std::isinf(x);
  case Property::Number:
    return !std::isnan(x);
  case Property::NotANumber:
    return std::isnan(x);
  case Property::Normal:
    return std::isnormal(x);
  case Property::Subnormal:
    return std::fpclassify(x) == FP_SUBNORMAL;
  }
  return false;
}

template <typename T> void testProperty(Warp &warp, const Inst &inst, LaneMask mask) {
  const Cell<T> *a = row<T>(warp, inst.a);
  LaneMask result = 0;
  forEachLane(mask, [&](uint32_t lane) {
    if (hasProperty(fromCell<T>(a[lane]), static_cast<Property>(inst.mode)))
      result |= 1u << lane;
  });
  warp.setPredicate(inst.d, result, mask);
}

Status decodeTest(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(2));
  int property = d.takeOneOf({"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
  Type type = d.takeType();
  if (property < 0 || (type != Type::F32 && type != Type::F64))
    return d.unsupported();
  d.inst.mode = static_cast<uint8_t>(property);
  d.inst.cls = InstClass::Predicate;
  d.inst.run = type == Type::F32 ? &testProperty<float> : &testProperty<double>;
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, Type::Pred));
  return d.input(Field::A, 1, type);
}

} // namespace

void addFloatFunctionOps(OpTable &table) {
  for (const FunctionRow &row : kFunctions)
    table[row.name] = &decodeFunction;
  table["copysign"] = &decodeCopysign;
  table["testp"] = &decodeTest;
}

} // namespace llmopt::sim

// f32 and f64 arithmetic: add, sub, mul, fma, div, min, max, neg, abs
// (PTX ISA 9.7.3). f16 and bf16 are in HalfFloat.cpp.
#include "runtime/device/sim/exec/Lanes.h"
#include "runtime/device/sim/numeric/Float32.h"
#include "runtime/device/sim/numeric/Formats.h"
#include "runtime/device/sim/ops/FloatModes.h"
#include "runtime/device/sim/ops/Ops.h"

#include <cmath>

namespace llmopt::sim {

using ptx::Type;
using runtime::Status;

int takeRounding(InstDecoder &d) { return d.takeOneOf({"rn", "rz", "rm", "rp"}); }

namespace {

template <bool Ftz, bool Sat> float addF32(float a, float b) {
  return finished<Ftz, Sat>(flushed<Ftz>(a) + flushed<Ftz>(b));
}
template <bool Ftz, bool Sat> float subF32(float a, float b) {
  return finished<Ftz, Sat>(flushed<Ftz>(a) - flushed<Ftz>(b));
}
template <bool Ftz, bool Sat> float mulF32(float a, float b) {
  return finished<Ftz, Sat>(flushed<Ftz>(a) * flushed<Ftz>(b));
}
template <bool Ftz, bool Sat> float divF32(float a, float b) {
  return finished<Ftz, Sat>(flushed<Ftz>(a) / flushed<Ftz>(b));
}

template <bool Ftz, bool Sat> inline void fmaRows(Warp &warp, const Inst &inst, LaneMask mask) {
  const uint32_t *a = warp.narrow(inst.a), *b = warp.narrow(inst.b), *c = warp.narrow(inst.c);
  alignas(64) uint32_t result[kLanes];
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    float product = __builtin_fmaf(flushed<Ftz>(std::bit_cast<float>(a[lane])),
                                   flushed<Ftz>(std::bit_cast<float>(b[lane])),
                                   flushed<Ftz>(std::bit_cast<float>(c[lane])));
    result[lane] = std::bit_cast<uint32_t>(finished<Ftz, Sat>(product));
  }
  storeRow(warp.narrow(inst.d), result, mask);
}

template <bool Ftz, bool Sat> void fmaF32(Warp &warp, const Inst &inst, LaneMask mask) {
  fmaRows<Ftz, Sat>(warp, inst, mask);
}

#if defined(__x86_64__)
// The same with the instruction, where the processor has it: a call of the C
// library for each lane otherwise.
template <bool Ftz, bool Sat>
__attribute__((target("avx2,fma"))) void fmaF32Vector(Warp &warp, const Inst &inst, LaneMask mask) {
  const uint32_t *a = warp.narrow(inst.a), *b = warp.narrow(inst.b), *c = warp.narrow(inst.c);
  alignas(64) uint32_t result[kLanes];
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    auto flush = [](uint32_t bits) __attribute__((target("avx2,fma"), always_inline)) {
      if constexpr (Ftz)
        bits = bits & 0x7f800000 ? bits : bits & 0x80000000;
      return std::bit_cast<float>(bits);
    };
    float value = __builtin_fmaf(flush(a[lane]), flush(b[lane]), flush(c[lane]));
    uint32_t bits = value != value ? kNanF32 : std::bit_cast<uint32_t>(value);
    if constexpr (Ftz)
      bits = bits & 0x7f800000 ? bits : bits & 0x80000000;
    if constexpr (Sat) {
      float x = std::bit_cast<float>(bits);
      bits = std::bit_cast<uint32_t>(x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f);
    }
    result[lane] = bits;
  }
  storeRow(warp.narrow(inst.d), result, mask);
}

template <bool Ftz, bool Sat> Handler fmaHandler() {
  static const bool hasFma = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return hasFma ? &fmaF32Vector<Ftz, Sat> : &fmaF32<Ftz, Sat>;
}
#else
template <bool Ftz, bool Sat> Handler fmaHandler() { return &fmaF32<Ftz, Sat>; }
#endif

// Rounding other than to nearest: from the exact result, lane by lane.
enum class ExactOp : uint8_t { Add, Sub, Mul, Div, Fma, Rcp, Sqrt };

Exact exactResult(ExactOp op, float a, float b, float c) {
  switch (op) {
  case ExactOp::Add:
    return exactSum(a, b);
  case ExactOp::Sub:
    return exactSum(a, -b);
  case ExactOp::Mul:
    return exactly(double{a} * b);
  case ExactOp::Div:
    return exactQuotient(a, b);
  case ExactOp::Fma:
    return exactFma(a, b, c);
  case ExactOp::Rcp:
    return exactQuotient(1.0, a);
  case ExactOp::Sqrt:
    return exactSqrt(a);
  }
  return {};
}

template <ExactOp Op> void roundedF32(Warp &warp, const Inst &inst, LaneMask mask) {
  constexpr bool kBinary = Op != ExactOp::Rcp && Op != ExactOp::Sqrt;
  const uint32_t *a = warp.narrow(inst.a);
  const uint32_t *b = kBinary ? warp.narrow(inst.b) : a;
  const uint32_t *c = Op == ExactOp::Fma ? warp.narrow(inst.c) : a;
  bool ftz = inst.mode & kFtz;
  auto read = [&](uint32_t bits) {
    return ftz ? flushed<true>(std::bit_cast<float>(bits)) : std::bit_cast<float>(bits);
  };
  auto rounding = static_cast<Rounding>(inst.imm);
  uint32_t *d = warp.narrow(inst.d);
  forEachLane(mask, [&](uint32_t lane) {
    Exact exact = exactResult(Op, read(a[lane]), read(b[lane]), read(c[lane]));
    // An exact zero from operands that cancel is -0 only when rounding down.
    bool sum = Op == ExactOp::Add || Op == ExactOp::Sub || Op == ExactOp::Fma;
    if (sum && exact.significand == 0 && !exact.nan && !exact.infinite && !exact.negative &&
        rounding == Rounding::Down) {
      double product = Op == ExactOp::Fma ? double{read(a[lane])} * read(b[lane]) : read(a[lane]);
      double other = Op == ExactOp::Fma   ? read(c[lane])
                     : Op == ExactOp::Sub ? -read(b[lane])
                                          : read(b[lane]);
      exact.negative = std::signbit(product) || std::signbit(other);
    }
    auto bits = static_cast<uint32_t>(encode(exact, kF32, rounding));
    float value = read(bits);
    d[lane] = std::bit_cast<uint32_t>(inst.mode & kSat ? saturated<true>(value) : value);
  });
}

double canonicalF64(double x) { return x != x ? std::bit_cast<double>(kF64.nan) : x; }
double addF64(double a, double b) { return canonicalF64(a + b); }
double subF64(double a, double b) { return canonicalF64(a - b); }
double mulF64(double a, double b) { return canonicalF64(a * b); }
double divF64(double a, double b) { return canonicalF64(a / b); }
double fmaF64(double a, double b, double c) { return canonicalF64(std::fma(a, b, c)); }

/// The number wins over a NaN; -0 < +0. With PropagateNan, NaN wins.
template <typename T, bool Max, bool PropagateNan> T extremum(T a, T b) {
  using Bits = Cell<T>;
  bool aWins = Max ? a > b : a < b;
  bool bWins = Max ? b > a : b < a;
  bool aNegative = std::bit_cast<Bits>(a) >> (8 * sizeof(T) - 1);
  T equal = aNegative != Max ? a : b; // only zeros differ in their bits
  T result = aWins ? a : bWins ? b : equal;
  constexpr Bits kNan = sizeof(T) == 4 ? Bits{kNanF32} : static_cast<Bits>(kF64.nan);
  T nan = std::bit_cast<T>(kNan);
  bool aNan = a != a, bNan = b != b;
  if constexpr (PropagateNan)
    return aNan || bNan ? nan : result;
  return aNan ? (bNan ? nan : b) : bNan ? a : result;
}

template <bool Ftz, bool Max, bool Nan> float extremumF32(float a, float b) {
  return extremum<float, Max, Nan>(flushed<Ftz>(a), flushed<Ftz>(b));
}
template <bool Ftz, bool Max, bool Nan> float extremum3F32(float a, float b, float c) {
  return extremumF32<Ftz, Max, Nan>(extremumF32<Ftz, Max, Nan>(a, b), c);
}
/// The larger or smaller magnitude, with the product's sign.
template <bool Ftz, bool Max, bool Nan> float xorsignF32(float a, float b) {
  uint32_t sign = (std::bit_cast<uint32_t>(a) ^ std::bit_cast<uint32_t>(b)) & 0x80000000;
  float magnitude = extremumF32<Ftz, Max, Nan>(std::fabs(a), std::fabs(b));
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
}

template <bool Ftz> float negF32(float a) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(flushed<Ftz>(a)) ^ 0x80000000);
}
template <bool Ftz> float absF32(float a) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(flushed<Ftz>(a)) & 0x7fffffff);
}
double negF64(double a) { return -a; }
double absF64(double a) { return std::fabs(a); }

#define LLMOPT_SIM_FTZ_SAT(f, ftz, sat)                                                            \
  (ftz ? (sat ? lanewise<&f<true, true>> : lanewise<&f<true, false>>)                              \
       : (sat ? lanewise<&f<false, true>> : lanewise<&f<false, false>>))

Handler nearestF32(std::string_view op, bool ftz, bool sat) {
  if (op == "add")
    return LLMOPT_SIM_FTZ_SAT(addF32, ftz, sat);
  if (op == "sub")
    return LLMOPT_SIM_FTZ_SAT(subF32, ftz, sat);
  if (op == "mul")
    return LLMOPT_SIM_FTZ_SAT(mulF32, ftz, sat);
  if (op == "div")
    return LLMOPT_SIM_FTZ_SAT(divF32, ftz, sat);
  return ftz ? (sat ? fmaHandler<true, true>() : fmaHandler<true, false>())
             : (sat ? fmaHandler<false, true>() : fmaHandler<false, false>());
}

Handler directedF32(std::string_view op) {
  if (op == "add")
    return &roundedF32<ExactOp::Add>;
  if (op == "sub")
    return &roundedF32<ExactOp::Sub>;
  if (op == "mul")
    return &roundedF32<ExactOp::Mul>;
  if (op == "div")
    return &roundedF32<ExactOp::Div>;
  if (op == "rcp")
    return &roundedF32<ExactOp::Rcp>;
  if (op == "sqrt")
    return &roundedF32<ExactOp::Sqrt>;
  return &roundedF32<ExactOp::Fma>;
}

Status bindFloat(InstDecoder &d, Type type, size_t inputs) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(inputs + 1));
  constexpr Field kFields[] = {Field::A, Field::B, Field::C};
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, type));
  for (size_t i = 0; i < inputs; ++i)
    LLMOPT_RETURN_IF_ERROR(d.input(kFields[i], i + 1, type));
  d.inst.cls = InstClass::Float;
  return {};
}

bool isFma(std::string_view op) { return op == "fma" || op == "mad"; }

Status decodeArithmeticF32(InstDecoder &d) {
  std::string_view op = d.opcode();
  LLMOPT_RETURN_IF_ERROR(bindFloat(d, Type::F32, isFma(op) ? 3 : 2));
  bool ftz = d.take("ftz"), sat = d.take("sat");
  int rounding = takeRounding(d);
  // div.approx and div.full (error of 2 ulp) are allowed to be this exact.
  if (op == "div" && rounding < 0 && d.takeOneOf({"approx", "full"}) < 0)
    return d.unsupported();
  if (rounding <= 0) {
    d.inst.run = nearestF32(op, ftz, sat);
    return {};
  }
  d.inst.mode = static_cast<uint8_t>((ftz ? kFtz : 0) | (sat ? kSat : 0));
  d.inst.imm = rounding;
  d.inst.run = directedF32(op);
  return {};
}

Status decodeArithmeticF64(InstDecoder &d) {
  std::string_view op = d.opcode();
  LLMOPT_RETURN_IF_ERROR(bindFloat(d, Type::F64, isFma(op) ? 3 : 2));
  d.take("rn");
  if (op == "add")
    d.inst.run = lanewise<&addF64>;
  else if (op == "sub")
    d.inst.run = lanewise<&subF64>;
  else if (op == "mul")
    d.inst.run = lanewise<&mulF64>;
  else if (op == "div")
    d.inst.run = lanewise<&divF64>;
  else
    d.inst.run = lanewise<&fmaF64>;
  return {};
}

template <bool Max> Status decodeExtremumF32(InstDecoder &d) {
  bool ftz = d.take("ftz"), nan = d.take("NaN"), xorsign = d.take("xorsign");
  if (xorsign && !d.take("abs"))
    return d.unsupported();
  bool three = d.count() == 4;
  if (three && xorsign)
    return d.unsupported();
  LLMOPT_RETURN_IF_ERROR(bindFloat(d, Type::F32, three ? 3 : 2));
#define LLMOPT_SIM_EXTREMUM(f)                                                                     \
  (ftz ? (nan ? lanewise<&f<true, Max, true>> : lanewise<&f<true, Max, false>>)                    \
       : (nan ? lanewise<&f<false, Max, true>> : lanewise<&f<false, Max, false>>))
  d.inst.run = three     ? LLMOPT_SIM_EXTREMUM(extremum3F32)
               : xorsign ? LLMOPT_SIM_EXTREMUM(xorsignF32)
                         : LLMOPT_SIM_EXTREMUM(extremumF32);
  return {};
}

Status decodeExtremum(InstDecoder &d, Type type) {
  bool max = d.opcode() == "max";
  if (type == Type::F32)
    return max ? decodeExtremumF32<true>(d) : decodeExtremumF32<false>(d);
  LLMOPT_RETURN_IF_ERROR(bindFloat(d, Type::F64, 2));
  d.inst.run =
      max ? lanewise<&extremum<double, true, false>> : lanewise<&extremum<double, false, false>>;
  return {};
}

Status decodeSign(InstDecoder &d, Type type) {
  bool neg = d.opcode() == "neg";
  LLMOPT_RETURN_IF_ERROR(bindFloat(d, type, 1));
  if (type == Type::F64)
    d.inst.run = neg ? lanewise<&negF64> : lanewise<&absF64>;
  else if (d.take("ftz"))
    d.inst.run = neg ? lanewise<&negF32<true>> : lanewise<&absF32<true>>;
  else
    d.inst.run = neg ? lanewise<&negF32<false>> : lanewise<&absF32<false>>;
  return {};
}

Status decodeFma(InstDecoder &d) { return decodeFloatArithmetic(d, d.takeType()); }

} // namespace

Handler directedHandler(std::string_view op) { return directedF32(op); }

Status decodeFloatArithmetic(InstDecoder &d, Type type) {
  std::string_view op = d.opcode();
  if (type == Type::F16 || type == Type::F16x2 || type == Type::BF16 || type == Type::BF16x2)
    return decodeHalfArithmetic(d, type);
  if (type != Type::F32 && type != Type::F64)
    return d.unsupported();
  if (op == "min" || op == "max")
    return decodeExtremum(d, type);
  if (op == "neg" || op == "abs")
    return decodeSign(d, type);
  return type == Type::F32 ? decodeArithmeticF32(d) : decodeArithmeticF64(d);
}

void addFloatOps(OpTable &table) { table["fma"] = &decodeFma; }

} // namespace llmopt::sim

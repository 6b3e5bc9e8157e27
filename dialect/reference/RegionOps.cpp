// Meaning of the arith and math ops that a region may hold, by op name.
#include "dialect/reference/Region.h"

#include "llvm/ADT/StringMap.h"

#include <bit>
#include <cmath>
#include <limits>

namespace llmopt::reference {

namespace {

using Real1 = double (*)(double);
using Real2 = double (*)(double, double);
/// Integer functions see operands as signed values of their width, or as unsigned ones.
using Int2 = int64_t (*)(int64_t, int64_t);
using Unsigned2 = uint64_t (*)(uint64_t, uint64_t);

unsigned widthOf(mlir::Type type) { return type.isIndex() ? 64 : type.getIntOrFloatBitWidth(); }

/// The low `width` bits, as the interpreter keeps them: i1 as 0 or 1, else sign-extended.
int64_t wrap(int64_t value, unsigned width) {
  if (width >= 64)
    return value;
  return width == 1 ? value & 1 : int64_t(uint64_t(value) << (64 - width)) >> (64 - width);
}
int64_t asSigned(int64_t value, unsigned width) { return width == 1 ? -(value & 1) : value; }
uint64_t asUnsigned(int64_t value, unsigned width) {
  return width >= 64 ? uint64_t(value) : uint64_t(value) & ((uint64_t(1) << width) - 1);
}

double sign(double x) { return std::signbit(x) ? -1.0 : 1.0; }
/// IEEE 754-2019 minimum and maximum: a NaN wins, -0 < +0.
double minimum(double a, double b) {
  if (std::isnan(a) || std::isnan(b))
    return std::numeric_limits<double>::quiet_NaN();
  return a == b ? (sign(a) < sign(b) ? a : b) : std::min(a, b);
}
double maximum(double a, double b) { return -minimum(-a, -b); }

const llvm::StringMap<Real1> &unaryReals() {
  static const llvm::StringMap<Real1> table = {
      {"arith.negf", [](double x) { return -x; }},
      {"arith.extf", [](double x) { return x; }},
      {"math.absf", [](double x) { return std::fabs(x); }},
      {"math.exp", [](double x) { return std::exp(x); }},
      {"math.exp2", [](double x) { return std::exp2(x); }},
      {"math.expm1", [](double x) { return std::expm1(x); }},
      {"math.log", [](double x) { return std::log(x); }},
      {"math.log2", [](double x) { return std::log2(x); }},
      {"math.log10", [](double x) { return std::log10(x); }},
      {"math.log1p", [](double x) { return std::log1p(x); }},
      {"math.sqrt", [](double x) { return std::sqrt(x); }},
      {"math.rsqrt", [](double x) { return 1 / std::sqrt(x); }},
      {"math.cbrt", [](double x) { return std::cbrt(x); }},
      {"math.sin", [](double x) { return std::sin(x); }},
      {"math.cos", [](double x) { return std::cos(x); }},
      {"math.tan", [](double x) { return std::tan(x); }},
      {"math.asinh", [](double x) { return std::asinh(x); }},
      {"math.acosh", [](double x) { return std::acosh(x); }},
      {"math.atanh", [](double x) { return std::atanh(x); }},
      {"math.asin", [](double x) { return std::asin(x); }},
      {"math.acos", [](double x) { return std::acos(x); }},
      {"math.atan", [](double x) { return std::atan(x); }},
      {"math.sinh", [](double x) { return std::sinh(x); }},
      {"math.cosh", [](double x) { return std::cosh(x); }},
      {"math.tanh", [](double x) { return std::tanh(x); }},
      {"math.erf", [](double x) { return std::erf(x); }},
      {"math.erfc", [](double x) { return std::erfc(x); }},
      {"math.floor", [](double x) { return std::floor(x); }},
      {"math.ceil", [](double x) { return std::ceil(x); }},
      {"math.trunc", [](double x) { return std::trunc(x); }},
      {"math.round", [](double x) { return std::round(x); }},
      {"math.roundeven", [](double x) { return std::nearbyint(x); }},
  };
  return table;
}

const llvm::StringMap<Real2> &binaryReals() {
  static const llvm::StringMap<Real2> table = {
      {"arith.addf", [](double a, double b) { return a + b; }},
      {"arith.subf", [](double a, double b) { return a - b; }},
      {"arith.mulf", [](double a, double b) { return a * b; }},
      {"arith.divf", [](double a, double b) { return a / b; }},
      {"arith.remf", [](double a, double b) { return std::fmod(a, b); }},
      {"arith.minimumf", minimum},
      {"arith.maximumf", maximum},
      {"arith.minnumf", [](double a, double b) { return std::fmin(a, b); }},
      {"arith.maxnumf", [](double a, double b) { return std::fmax(a, b); }},
      {"math.powf", [](double a, double b) { return std::pow(a, b); }},
      {"math.atan2", [](double a, double b) { return std::atan2(a, b); }},
      {"math.copysign", [](double a, double b) { return std::copysign(a, b); }},
  };
  return table;
}

int64_t floorDivide(int64_t a, int64_t b) {
  return b == 0 ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0));
}
/// a^b by squaring; a negative power is 1 / a^-b, rounded towards 0.
int64_t power(int64_t a, int64_t b) {
  if (b < 0)
    return a == 1 ? 1 : a != -1 ? 0 : b % 2 ? -1 : 1;
  uint64_t product = 1, square = uint64_t(a);
  for (; b > 0; b /= 2, square *= square)
    product *= b % 2 ? square : 1;
  return int64_t(product);
}

/// A division by zero yields 0; the smallest integer by -1 wraps.
const llvm::StringMap<Int2> &signedInts() {
  static const llvm::StringMap<Int2> table = {
      {"arith.addi", [](int64_t a, int64_t b) { return int64_t(uint64_t(a) + uint64_t(b)); }},
      {"arith.subi", [](int64_t a, int64_t b) { return int64_t(uint64_t(a) - uint64_t(b)); }},
      {"arith.muli", [](int64_t a, int64_t b) { return int64_t(uint64_t(a) * uint64_t(b)); }},
      {"arith.divsi",
       [](int64_t a, int64_t b) { return b == 0    ? 0
                                         : b == -1 ? int64_t(-uint64_t(a))
                                                   : a / b; }},
      {"arith.remsi", [](int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }},
      {"arith.floordivsi", floorDivide},
      {"arith.ceildivsi", [](int64_t a, int64_t b) { return -floorDivide(-a, b); }},
      {"arith.minsi", [](int64_t a, int64_t b) { return std::min(a, b); }},
      {"arith.maxsi", [](int64_t a, int64_t b) { return std::max(a, b); }},
      {"arith.andi", [](int64_t a, int64_t b) { return a & b; }},
      {"arith.ori", [](int64_t a, int64_t b) { return a | b; }},
      {"arith.xori", [](int64_t a, int64_t b) { return a ^ b; }},
      {"arith.shrsi", [](int64_t a, int64_t b) { return b < 0 || b > 63 ? 0 : a >> b; }},
      {"math.ipowi", power},
  };
  return table;
}

const llvm::StringMap<Unsigned2> &unsignedInts() {
  static const llvm::StringMap<Unsigned2> table = {
      {"arith.divui", [](uint64_t a, uint64_t b) { return b == 0 ? 0 : a / b; }},
      {"arith.remui", [](uint64_t a, uint64_t b) { return b == 0 ? 0 : a % b; }},
      {"arith.ceildivui", [](uint64_t a, uint64_t b) { return b == 0 ? 0 : a / b + (a % b != 0); }},
      {"arith.minui", [](uint64_t a, uint64_t b) { return std::min(a, b); }},
      {"arith.maxui", [](uint64_t a, uint64_t b) { return std::max(a, b); }},
      {"arith.shli", [](uint64_t a, uint64_t b) { return b > 63 ? 0 : a << b; }},
      {"arith.shrui", [](uint64_t a, uint64_t b) { return b > 63 ? 0 : a >> b; }},
  };
  return table;
}

/// arith.cmpi's predicates: eq ne slt sle sgt sge ult ule ugt uge.
ScalarFunction compareIntegers(int64_t predicate, unsigned width) {
  return [=](const Scalar *v) {
    int64_t a = asSigned(v[0].i, width), b = asSigned(v[1].i, width);
    uint64_t ua = asUnsigned(v[0].i, width), ub = asUnsigned(v[1].i, width);
    const bool results[] = {a == b,  a != b, a<b, a <= b, a> b, a >= b, ua<ub, ua <= ub, ua> ub,
                            ua >= ub};
    return Scalar{0, results[predicate]};
  };
}

/// arith.cmpf's predicates: false, oeq ogt oge olt ole one ord, ueq ugt uge ult ule une
/// uno, true.
ScalarFunction compareReals(int64_t predicate) {
  return [=](const Scalar *v) {
    double a = v[0].f, b = v[1].f;
    bool nan = std::isnan(a) || std::isnan(b);
    const bool ordered[] = {false, a == b, a > b, a >= b, a < b, a <= b, a != b, true};
    bool result = predicate < 8 ? !nan && ordered[predicate]
                                : predicate == 15 || nan || ordered[predicate - 7];
    if (predicate == 14)
      result = nan;
    return Scalar{0, result};
  };
}

ScalarFunction toInteger(unsigned width, bool isSigned) {
  return [=](const Scalar *v) {
    double x = std::trunc(v[0].f);
    if (!(std::fabs(x) < 9.2e18)) // undefined in MLIR; anything but a trap will do
      return Scalar{};
    return Scalar{0, wrap(isSigned || x < 0 ? int64_t(x) : int64_t(uint64_t(x)), width)};
  };
}

/// Ops whose meaning depends on types or attributes; null for any other.
ScalarFunction specialFunction(mlir::Operation &op) {
  llvm::StringRef name = op.getName().getStringRef();
  mlir::Type result = op.getResult(0).getType();
  mlir::Type source = op.getNumOperands() ? op.getOperand(0).getType() : result;
  unsigned from = source.isIntOrIndexOrFloat() ? widthOf(source) : 0;
  unsigned to = result.isIntOrIndexOrFloat() ? widthOf(result) : 0;
  if (name == "arith.cmpi" || name == "arith.cmpf") {
    int64_t predicate = llvm::cast<mlir::IntegerAttr>(op.getAttr("predicate")).getInt();
    return name == "arith.cmpi" ? compareIntegers(predicate, from) : compareReals(predicate);
  }
  if (name == "arith.select")
    return [](const Scalar *v) { return v[0].i ? v[1] : v[2]; };
  if (name == "arith.extsi" || name == "arith.index_cast" || name == "arith.trunci")
    return [=](const Scalar *v) { return Scalar{0, wrap(asSigned(v[0].i, from), to)}; };
  if (name == "arith.extui" || name == "arith.index_castui")
    return [=](const Scalar *v) { return Scalar{0, wrap(int64_t(asUnsigned(v[0].i, from)), to)}; };
  if (name == "arith.sitofp")
    return [=](const Scalar *v) { return Scalar{double(asSigned(v[0].i, from)), 0}; };
  if (name == "arith.uitofp")
    return [=](const Scalar *v) { return Scalar{double(asUnsigned(v[0].i, from)), 0}; };
  if (name == "arith.fptosi" || name == "arith.fptoui")
    return toInteger(to, name == "arith.fptosi");
  if (name == "arith.truncf") { // a rounding that the spec asks for, in every mode
    std::optional<ElementType> type = elementTypeOf(result);
    return [=](const Scalar *v) {
      return Scalar{type && *type != ElementType::F32 ? roundTo(*type, v[0].f) : v[0].f, 0};
    };
  }
  if (name == "math.fma")
    return [](const Scalar *v) { return Scalar{std::fma(v[0].f, v[1].f, v[2].f), 0}; };
  if (name == "math.fpowi")
    return [](const Scalar *v) { return Scalar{std::pow(v[0].f, double(v[1].i)), 0}; };
  if (name == "math.isnan")
    return [](const Scalar *v) { return Scalar{0, std::isnan(v[0].f)}; };
  if (name == "math.isinf")
    return [](const Scalar *v) { return Scalar{0, std::isinf(v[0].f)}; };
  if (name == "math.isfinite")
    return [](const Scalar *v) { return Scalar{0, std::isfinite(v[0].f)}; };
  if (name == "math.ctpop")
    return [=](const Scalar *v) {
      return Scalar{0, wrap(std::popcount(asUnsigned(v[0].i, from)), to)};
    };
  if (name == "math.ctlz")
    return [=](const Scalar *v) {
      return Scalar{0, wrap(std::countl_zero(asUnsigned(v[0].i, from)) - 64 + int(from), to)};
    };
  if (name == "math.cttz")
    return [=](const Scalar *v) {
      return Scalar{0, wrap(std::min(std::countr_zero(asUnsigned(v[0].i, from)), int(from)), to)};
    };
  if (name == "math.absi")
    return [=](const Scalar *v) { return Scalar{0, wrap(std::abs(asSigned(v[0].i, from)), to)}; };
  return nullptr;
}

} // namespace

llvm::Expected<ScalarFunction> scalarFunction(mlir::Operation &op) {
  llvm::StringRef name = op.getName().getStringRef();
  if (Real1 f = unaryReals().lookup(name))
    return [f](const Scalar *v) { return Scalar{f(v[0].f), 0}; };
  if (Real2 f = binaryReals().lookup(name))
    return [f](const Scalar *v) { return Scalar{f(v[0].f, v[1].f), 0}; };
  mlir::Type type = op.getResult(0).getType();
  if (Int2 f = signedInts().lookup(name)) {
    unsigned width = widthOf(type);
    return [f, width](const Scalar *v) {
      return Scalar{0, wrap(f(asSigned(v[0].i, width), asSigned(v[1].i, width)), width)};
    };
  }
  if (Unsigned2 f = unsignedInts().lookup(name)) {
    unsigned width = widthOf(type);
    return [f, width](const Scalar *v) {
      return Scalar{0,
                    wrap(int64_t(f(asUnsigned(v[0].i, width), asUnsigned(v[1].i, width))), width)};
    };
  }
  if (ScalarFunction f = specialFunction(op))
    return f;
  return error("the oracle does not know op '" + name + "' in a region");
}

} // namespace llmopt::reference

#include "runtime/device/sim/numeric/Formats.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace llmopt::sim {

Exact exactly(uint64_t value) {
  Exact result;
  result.significand = value;
  return result;
}

Exact exactly(int64_t value) {
  Exact result;
  result.negative = value < 0;
  result.significand = value < 0 ? ~static_cast<uint64_t>(value) + 1 : static_cast<uint64_t>(value);
  return result;
}

Exact exactly(double value) { return decode(std::bit_cast<uint64_t>(value), kF64); }

Exact decode(uint64_t bits, const FloatFormat &format) {
  Exact result;
  result.negative = bits & format.sign();
  uint64_t magnitude = bits & (format.sign() - 1);
  if (format.hasInfinity && magnitude >= format.infinity()) {
    result.nan = magnitude > format.infinity();
    result.infinite = !result.nan;
    return result;
  }
  if (!format.hasInfinity && magnitude == format.sign() - 1) {
    result.nan = true;
    return result;
  }
  auto exponent = static_cast<int32_t>(magnitude >> format.mantissaBits);
  result.significand = magnitude & ((uint64_t{1} << format.mantissaBits) - 1);
  if (exponent != 0)
    result.significand |= uint64_t{1} << format.mantissaBits;
  else
    exponent = 1;
  result.exponent = exponent - format.bias() - static_cast<int32_t>(format.mantissaBits);
  return result;
}

namespace {

bool roundsUp(Rounding rounding, bool negative, bool odd, int rest, bool inexact) {
  // `rest` is the part that is cut off against one half: -1 below, 0 equal, 1 above.
  switch (rounding) {
  case Rounding::NearestEven:
    return rest > 0 || (rest == 0 && odd);
  case Rounding::NearestAway:
    return rest >= 0;
  case Rounding::Zero:
    return false;
  case Rounding::Down:
    return negative && inexact;
  case Rounding::Up:
    return !negative && inexact;
  }
  return false;
}

uint64_t overflow(const FloatFormat &format, Rounding rounding, bool negative, bool saturate) {
  bool toLargest = saturate || rounding == Rounding::Zero ||
                   (rounding == Rounding::Down && !negative) ||
                   (rounding == Rounding::Up && negative);
  if (toLargest)
    return format.largest();
  return format.hasInfinity ? format.infinity() : format.nan;
}

} // namespace

uint64_t encode(const Exact &value, const FloatFormat &format, Rounding rounding, bool saturate) {
  if (value.nan)
    return format.nan;
  uint64_t sign = value.negative ? format.sign() : 0;
  if (value.infinite)
    return sign | (saturate || !format.hasInfinity ? (saturate ? format.largest() : format.nan)
                                                   : format.infinity());
  if (value.significand == 0)
    return sign;

  int32_t top = 63 - std::countl_zero(value.significand) + value.exponent; // of the leading bit
  int32_t least = 1 - format.bias();
  int32_t unit = std::max(top, least) - static_cast<int32_t>(format.mantissaBits);
  int32_t shift = unit - value.exponent;
  uint64_t mantissa = 0;
  int rest = -1;
  bool inexact = value.inexact;
  if (shift <= 0) {
    mantissa = value.significand << -shift;
  } else if (shift <= 64) {
    mantissa = shift == 64 ? 0 : value.significand >> shift;
    uint64_t cut =
        shift == 64 ? value.significand : value.significand & ((uint64_t{1} << shift) - 1);
    uint64_t half = uint64_t{1} << (shift - 1);
    rest = cut > half || (cut == half && value.inexact) ? 1 : cut == half ? 0 : -1;
    inexact |= cut != 0;
  } else {
    inexact = true;
  }
  mantissa += roundsUp(rounding, value.negative, mantissa & 1, rest, inexact);
  // A carry out of the mantissa moves into the exponent by itself.
  uint64_t bits = mantissa;
  if (top >= least)
    bits += static_cast<uint64_t>(top + format.bias() - 1) << format.mantissaBits;
  if (top > format.bias() + 1 || bits > format.largest())
    return sign | overflow(format, rounding, value.negative, saturate);
  return sign | bits;
}

namespace {

/// `value` rounded by the hardware, and the sign of what it lacks.
Exact withRemainder(double value, double remainder) {
  Exact result = exactly(value);
  if (remainder == 0 || result.nan || result.infinite)
    return result;
  // Two more bits make room for a step of less than one unit.
  result.significand <<= 2;
  result.exponent -= 2;
  result.inexact = true;
  bool below = (remainder < 0) != result.negative; // the true magnitude is smaller
  if (result.significand == 0)
    result.negative = remainder < 0;
  else if (below)
    --result.significand;
  return result;
}

} // namespace

Exact exactSum(double a, double b) {
  double sum = a + b;
  if (!std::isfinite(sum))
    return exactly(sum);
  double bRounded = sum - a; // Knuth's two-sum
  double remainder = (a - (sum - bRounded)) + (b - bRounded);
  return withRemainder(sum, remainder);
}

Exact exactFma(double a, double b, double c) { return exactSum(a * b, c); }

Exact exactQuotient(double a, double b) {
  double quotient = a / b;
  if (!std::isfinite(quotient) || quotient == 0 || std::isinf(b))
    return exactly(quotient);
  double remainder = std::fma(-quotient, b, a);
  return withRemainder(quotient, b < 0 ? -remainder : remainder);
}

Exact exactSqrt(double a) {
  double root = std::sqrt(a);
  if (!std::isfinite(root) || root == 0)
    return exactly(root);
  return withRemainder(root, std::fma(-root, root, a));
}

float decodeFloat(uint64_t bits, const FloatFormat &format) {
  return std::bit_cast<float>(
      static_cast<uint32_t>(encode(decode(bits, format), kF32, Rounding::NearestEven)));
}

} // namespace llmopt::sim

// Floating-point formats as numbers, and rounding to them: the one place where
// a result that needs more bits than it has is rounded. Values are NaN, or
// (-1)^s * significand * 2^exponent, exactly.
#pragma once

#include <cstdint>

namespace llmopt::sim {

struct FloatFormat {
  uint32_t exponentBits;
  uint32_t mantissaBits;
  bool hasInfinity; ///< E4M3 has none: its one NaN is all ones
  uint64_t nan;     ///< the NaN that instructions produce

  constexpr int32_t bias() const { return (1 << (exponentBits - 1)) - 1; }
  constexpr uint64_t sign() const { return uint64_t{1} << (exponentBits + mantissaBits); }
  constexpr uint64_t infinity() const {
    return ((uint64_t{1} << exponentBits) - 1) << mantissaBits;
  }
  constexpr uint64_t largest() const { return hasInfinity ? infinity() - 1 : sign() - 2; }
};

inline constexpr FloatFormat kF64 = {11, 52, true, 0x7fff'ffff'ffff'ffff};
inline constexpr FloatFormat kF32 = {8, 23, true, 0x7fff'ffff};
inline constexpr FloatFormat kF16 = {5, 10, true, 0x7fff};
inline constexpr FloatFormat kBF16 = {8, 7, true, 0x7fff};
inline constexpr FloatFormat kTF32 = {8, 10, true, 0x3ffff};
inline constexpr FloatFormat kE4M3 = {4, 3, false, 0x7f};
inline constexpr FloatFormat kE5M2 = {5, 2, true, 0x7f};

enum class Rounding : uint8_t {
  NearestEven, ///< .rn
  Zero,        ///< .rz
  Down,        ///< .rm
  Up,          ///< .rp
  NearestAway, ///< .rna
};

/// An exact number. `inexact`: the true magnitude lies strictly between
/// significand and significand + 1 units, and significand has at least two bits
/// more than any format that it is rounded to.
struct Exact {
  bool nan = false;
  bool infinite = false;
  bool negative = false;
  bool inexact = false;
  int32_t exponent = 0;
  uint64_t significand = 0;
};

Exact exactly(double value);
Exact exactly(uint64_t value);
Exact exactly(int64_t value);
/// What the bits mean.
Exact decode(uint64_t bits, const FloatFormat &format);

/// The bits of the number in the format. `saturate`: what is too large, and
/// infinity, become the largest finite number.
uint64_t encode(const Exact &value, const FloatFormat &format, Rounding rounding,
                bool saturate = false);

/// Exact results of operations on floats (or narrower), fit for encode.
Exact exactSum(double a, double b);
Exact exactFma(double a, double b, double c); ///< a * b must be exact in double
Exact exactQuotient(double a, double b);
Exact exactSqrt(double a);

/// Any of the formats up to f32 as a float: exact.
float decodeFloat(uint64_t bits, const FloatFormat &format);

} // namespace llmopt::sim

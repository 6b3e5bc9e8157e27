// The 16-bit floating-point formats as bits: IEEE binary16 (f16) and bfloat16
// (bf16). Conversions to 16 bits round to nearest, ties to even; overflow gives
// infinity; NaN stays NaN (quiet, sign kept); denormals are kept.
#pragma once

#include <bit>
#include <cstdint>

namespace llmopt::runtime {

constexpr float f16ToF32(uint16_t bits) {
  uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  uint32_t exponent = (bits >> 10) & 0x1f;
  uint32_t mantissa = bits & 0x3ff;
  if (exponent == 0x1f) // infinity, NaN (made quiet)
    return std::bit_cast<float>(sign | 0x7f800000 | mantissa << 13 | (mantissa ? 0x400000u : 0u));
  if (exponent != 0)
    return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  // A denormal is mantissa * 2^-24, which f32 holds exactly.
  float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

constexpr uint16_t f32ToF16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) // NaN: the top bits of the payload, and quiet
    return static_cast<uint16_t>(sign | 0x7e00 | (magnitude >> 13 & 0x1ff));
  if (magnitude >= 0x477ff000) // 65520 and above round to infinity
    return sign | 0x7c00;
  if (magnitude >= 0x38800000) { // normal: from 2^-14
    uint32_t rebased = magnitude - (112u << 23);
    uint32_t odd = rebased >> 13 & 1;
    return static_cast<uint16_t>(sign | (rebased + 0xfff + odd) >> 13);
  }
  if (magnitude < 0x33000000) // below 2^-25: nearer to zero than to 2^-24
    return sign;
  // Denormal: shift the significand so that its unit is 2^-24.
  uint32_t significand = (magnitude & 0x7fffff) | 0x800000;
  uint32_t shift = 126 - (magnitude >> 23);
  uint32_t half = 1u << (shift - 1);
  uint32_t odd = significand >> shift & 1;
  return static_cast<uint16_t>(sign | (significand + half - 1 + odd) >> shift);
}

constexpr float bf16ToF32(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

constexpr uint16_t f32ToBf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000)
    return static_cast<uint16_t>(bits >> 16 | 0x40);
  uint32_t odd = bits >> 16 & 1;
  return static_cast<uint16_t>((bits + 0x7fff + odd) >> 16);
}

} // namespace llmopt::runtime

// f16 and bf16 as values with the conversions of PTX: round to nearest even,
// one NaN (0x7fff).
#pragma once

#include "runtime/base/Half.h"
#include "runtime/device/sim/numeric/Formats.h"

namespace llmopt::sim {

struct F16 {
  static constexpr FloatFormat kFormat = kF16;
  uint16_t bits = 0;
  F16() = default;
  explicit F16(float value) : bits(value != value ? 0x7fff : runtime::f32ToF16(value)) {}
  float value() const { return runtime::f16ToF32(bits); }
};

struct BF16 {
  static constexpr FloatFormat kFormat = kBF16;
  uint16_t bits = 0;
  BF16() = default;
  explicit BF16(float value) : bits(value != value ? 0x7fff : runtime::f32ToBf16(value)) {}
  float value() const { return runtime::bf16ToF32(bits); }
};

template <typename H> inline H fromBits(uint64_t bits) {
  H result;
  result.bits = static_cast<uint16_t>(bits);
  return result;
}

} // namespace llmopt::sim

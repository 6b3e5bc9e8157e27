// What PTX does around every f32 operation: subnormals flushed to zero (.ftz),
// one NaN for all (0x7fffffff), saturation to [0, 1]. Branch-free, so that rows
// of lanes are computed with vector instructions.
#pragma once

#include <bit>
#include <cstdint>

namespace llmopt::sim {

inline constexpr uint32_t kNanF32 = 0x7fffffff;

inline float canonical(float x) { return x != x ? std::bit_cast<float>(kNanF32) : x; }

template <bool Ftz> inline float flushed(float x) {
  if constexpr (Ftz) {
    auto bits = std::bit_cast<uint32_t>(x);
    return std::bit_cast<float>(bits & 0x7f800000 ? bits : bits & 0x80000000);
  }
  return x;
}

/// NaN becomes +0.
template <bool Sat> inline float saturated(float x) {
  if constexpr (Sat)
    return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
  return x;
}

template <bool Ftz, bool Sat = false> inline float finished(float x) {
  return saturated<Sat>(flushed<Ftz>(canonical(x)));
}

} // namespace llmopt::sim

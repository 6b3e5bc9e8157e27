// Inst::mode of float instructions, and what their files share.
#pragma once

#include "runtime/device/sim/decode/InstDecoder.h"

namespace llmopt::sim {

inline constexpr uint8_t kFtz = 1;
inline constexpr uint8_t kSat = 2;
inline constexpr uint8_t kRelu = 4;
inline constexpr uint8_t kNanWins = 8;
inline constexpr uint8_t kXorSign = 16;

/// Takes .rn .rz .rm .rp: the Rounding, or -1.
int takeRounding(InstDecoder &decoder);

/// f32 add, sub, mul, div, fma, rcp, sqrt with the rounding in inst.imm and kFtz
/// and kSat in inst.mode.
Handler directedHandler(std::string_view op);

runtime::Status decodeHalfArithmetic(InstDecoder &decoder, ptx::Type type);

} // namespace llmopt::sim

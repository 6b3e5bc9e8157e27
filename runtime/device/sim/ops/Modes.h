// Inst::mode of the instructions that control flow has to know.
#pragma once

#include "runtime/device/sim/decode/Program.h"

namespace llmopt::sim {

/// Of Flow::Barrier.
enum class BarrierMode : uint8_t { Sync, Arrive, Popc, And, Or };

inline bool arrivesOnly(const Inst &inst) {
  return static_cast<BarrierMode>(inst.mode) == BarrierMode::Arrive;
}

/// Of Flow::Converge: marks bar.warp.sync, whose lanes may come from different
/// instructions.
inline constexpr uint8_t kWarpSyncMode = 0xff;

inline bool isWarpSync(const Inst &inst) {
  return inst.flow == Flow::Converge && inst.mode == kWarpSyncMode;
}

} // namespace llmopt::sim

// Inst::mode of the instructions that control flow has to know.
#pragma once

#include "runtime/device/sim/exec/Warp.h"

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

/// Of Flow::Wait: marks barrier.cluster.wait.
inline constexpr uint8_t kClusterWaitMode = 0xff;

inline bool waitsForCluster(const Inst &inst) {
  return inst.flow == Flow::Wait && inst.mode == kClusterWaitMode;
}

/// Of and, or, xor, not on predicates.
inline constexpr uint8_t kNotA = 1, kNotB = 2;

inline LaneMask predicateA(const Warp &warp, const Inst &inst) {
  return warp.predicates[inst.a] ^ (inst.mode & kNotA ? kAllLanes : 0);
}
inline LaneMask predicateB(const Warp &warp, const Inst &inst) {
  return warp.predicates[inst.b] ^ (inst.mode & kNotB ? kAllLanes : 0);
}

} // namespace llmopt::sim

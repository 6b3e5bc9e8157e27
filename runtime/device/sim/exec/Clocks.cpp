#include "runtime/device/sim/exec/Clocks.h"

#include "runtime/device/sim/exec/Warp.h"

#include <algorithm>

namespace llmopt::sim {

void Clocks::start(uint32_t warps) {
  count = warps;
  time.assign(warps, 1); // 0 is what was never accessed
  known.assign(size_t{warps} * warps, 0);
  lanes.clear();
  lanes.resize(warps);
}

bool Clocks::orderedInWarp(LaneMask others, uint32_t when, uint32_t warp, LaneMask mine) const {
  bool ordered = true;
  forEachLane(mine, [&](uint32_t lane) {
    forEachLane(others, [&](uint32_t other) {
      ordered &= lane == other || (lanes[warp] && (*lanes[warp])[lane][other] >= when);
    });
  });
  return ordered;
}

void Clocks::syncLanes(uint32_t warp, LaneMask members, LaneMask alive) {
  uint32_t now = time[warp]++;
  if ((members & alive) == alive) {
    known[warp * count + warp] = now;
    return;
  }
  if (!lanes[warp])
    lanes[warp] = std::make_unique<LaneTimes>();
  LaneTimes &times = *lanes[warp];
  std::array<uint32_t, kLanes> together{};
  forEachLane(members, [&](uint32_t lane) {
    for (uint32_t other = 0; other < kLanes; ++other)
      together[other] = std::max(together[other], times[lane][other]);
  });
  forEachLane(members, [&](uint32_t lane) { together[lane] = now; });
  forEachLane(members, [&](uint32_t lane) { times[lane] = together; });
}

void Clocks::release(uint32_t warp, VectorClock &into) {
  into.resize(count, 0);
  for (uint32_t other = 0; other < count; ++other)
    into[other] = std::max(into[other], known[warp * count + other]);
  into[warp] = std::max(into[warp], time[warp]++);
}

void Clocks::acquire(uint32_t warp, const VectorClock &from) {
  for (uint32_t other = 0; other < from.size(); ++other) {
    uint32_t &mine = known[warp * count + other];
    mine = std::max(mine, from[other]);
  }
}

} // namespace llmopt::sim

#include "runtime/device/sim/exec/Clocks.h"

#include "runtime/device/sim/exec/Warp.h"

#include <algorithm>

namespace llmopt::sim {

namespace {

void join(uint32_t *into, const std::vector<uint32_t> &from) {
  for (size_t i = 0; i < from.size(); ++i)
    into[i] = std::max(into[i], from[i]);
}

/// Room for agents that come later.
constexpr uint32_t kSpare = 32;

} // namespace

void Clocks::start(uint32_t warps, bool hasAsync) {
  count = warps;
  async = hasAsync;
  agents = readers();
  stride = async ? agents + kSpare : agents;
  time.assign(warps, 1); // 0 is what was never accessed
  known.assign(size_t{warps} * stride, 0);
  fenced.assign(async ? size_t{warps} * warps : 0, 0);
  fences.assign(async ? warps : 0, {});
  lanes.clear();
  lanes.resize(warps);
}

uint32_t Clocks::addAgent() {
  if (agents == stride) {
    uint32_t wider = stride + kSpare;
    std::vector<uint32_t> moved(size_t{count} * wider, 0);
    for (uint32_t warp = 0; warp < count; ++warp)
      std::copy_n(&known[warp * stride], stride, &moved[warp * wider]);
    known = std::move(moved);
    stride = wider;
  }
  return agents++;
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
    known[warp * stride + warp] = now;
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
  into.known.resize(std::max<size_t>(into.known.size(), agents), 0);
  for (uint32_t agent = 0; agent < agents; ++agent)
    into.known[agent] = std::max(into.known[agent], known[warp * stride + agent]);
  into.known[warp] = std::max(into.known[warp], time[warp]++);
  if (!async)
    return;
  into.fenced.resize(count, 0);
  for (uint32_t other = 0; other < count; ++other)
    into.fenced[other] = std::max(into.fenced[other], fenced[warp * count + other]);
}

void Clocks::acquire(uint32_t warp, const VectorClock &from) {
  join(&known[warp * stride], from.known);
  if (async)
    join(&fenced[warp * count], from.fenced);
}

void Clocks::complete(uint32_t warp, uint32_t agent, uint32_t when) {
  uint32_t &mine = known[warp * stride + agent];
  mine = std::max(mine, when);
}

void Clocks::fenceProxy(uint32_t warp, LaneMask members) {
  uint32_t *mine = &fenced[warp * count];
  for (uint32_t other = 0; other < count; ++other)
    mine[other] = std::max(mine[other], known[warp * stride + other]);
  fences[warp].emplace_back(time[warp]++, members);
}

bool Clocks::fencedBefore(uint32_t other, LaneMask others, uint32_t when, uint32_t warp) const {
  if (when <= fenced[warp * count + other])
    return true;
  // Fences of the writer after that time, which this warp knows of.
  uint32_t last = other == warp ? time[warp] : known[warp * stride + other];
  auto fence =
      std::lower_bound(fences[other].begin(), fences[other].end(), std::pair(when, LaneMask{0}));
  for (; fence != fences[other].end() && fence->first <= last; ++fence)
    if ((fence->second & others) == others)
      return true;
  return false;
}

} // namespace llmopt::sim

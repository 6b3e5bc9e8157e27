#include "runtime/device/sim/exec/MBarriers.h"

#include "runtime/device/sim/exec/Cluster.h"
#include "runtime/device/sim/exec/SharedChecks.h"

namespace llmopt::sim {

std::string MBarrier::missing() const {
  std::string text = fmt::format("{} of {} arrivals", pending, expected);
  if (bytes > 0)
    text += fmt::format(" and {} bytes", bytes);
  text += " are missing";
  if (bytes < 0)
    text += fmt::format(", {} bytes more than expected have come", -bytes);
  return text;
}

void MBarriers::start() { barriers.clear(); }

void MBarriers::init(Warp &warp, uint32_t lane, uint32_t address, uint32_t count) {
  if (count < 1 || count > kMaxCount)
    return warp.fault(
        FaultKind::InvalidBarrier, lane, address,
        fmt::format("an mbarrier for {} arrivals; 1 to {} are allowed", count, kMaxCount));
  auto [it, added] = barriers.try_emplace(address);
  if (it->second.expected)
    return warp.fault(FaultKind::InvalidBarrier, lane, address,
                      fmt::format("there is an mbarrier already, made at {}; mbarrier.inval "
                                  "comes first",
                                  warp.lineOf(it->second.pc)));
  MBarrier &barrier = it->second;
  barrier = {};
  barrier.block = &block;
  barrier.address = address;
  barrier.expected = barrier.pending = count;
  barrier.warp = warp.agent;
  barrier.lane = lane;
  barrier.pc = warp.pc;
  if (Clocks *clocks = block.clocks()) {
    barrier.time = clocks->now(warp.agent);
    barrier.agent = clocks->addAgent();
  }
  block.cluster().noteEvent();
}

void MBarriers::invalidate(Warp &warp, uint32_t lane, uint32_t address) {
  MBarrier *barrier = find(warp, lane, address);
  if (!barrier)
    return;
  if (!barrier->underWay.empty())
    return warp.fault(FaultKind::InvalidBarrier, lane, address,
                      "copies that arrive at the mbarrier are under way");
  barrier->expected = 0;
}

MBarrier *MBarriers::find(Warp &warp, uint32_t lane, uint32_t address) {
  auto it = barriers.find(address);
  if (it == barriers.end() || !it->second.expected) {
    warp.fault(FaultKind::InvalidBarrier, lane, address, "no mbarrier was initialised here");
    return nullptr;
  }
  MBarrier &barrier = it->second;
  Clocks *clocks = block.clocks();
  if (clocks &&
      !clocks->before(barrier.warp, 1u << barrier.lane, barrier.time, warp.agent, 1u << lane)) {
    warp.fault(FaultKind::SharedRace, lane, address,
               fmt::format("nothing orders this use of the mbarrier after its initialisation at "
                           "{}",
                           warp.lineOf(barrier.pc)));
    return nullptr;
  }
  return &barrier;
}

MBarrier *MBarriers::findForCopy(Warp &warp, uint32_t lane, uint32_t address) {
  MBarrier *barrier = find(warp, lane, address);
  Clocks *clocks = block.clocks();
  if (!barrier || !clocks || barrier->announced || warp.warned(FaultKind::UnprovenInit) ||
      clocks->fencedBefore(barrier->warp, 1u << barrier->lane, barrier->time, warp.agent))
    return barrier;
  // NVIDIA's guide asks for one; Triton's kernels have none, and run.
  warp.warn(FaultKind::UnprovenInit, lane, address,
            fmt::format("the copy arrives at an mbarrier that was initialised at {}, without "
                        "a fence.mbarrier_init or fence.proxy.async in between",
                        warp.lineOf(barrier->pc)));
  return warp.faulted ? nullptr : barrier;
}

/// A phase that has all it waits for ends, and the next one begins.
void MBarriers::settle(MBarrier &barrier) {
  block.cluster().noteEvent();
  if (barrier.pending != 0 || barrier.bytes != 0)
    return;
  ++barrier.phase;
  barrier.pending = barrier.expected;
  if (!block.clocks())
    return;
  auto join = [](std::vector<uint32_t> &into, const std::vector<uint32_t> &from) {
    into.resize(std::max(into.size(), from.size()));
    for (size_t i = 0; i < from.size(); ++i)
      into[i] = std::max(into[i], from[i]);
  };
  join(barrier.completed.known, barrier.arriving.known);
  join(barrier.completed.fenced, barrier.arriving.fenced);
  // A copy that is still under way was not waited for by this phase.
  if (!barrier.underWay.empty())
    block.cluster().postpone(barrier.agent, static_cast<uint32_t>(barrier.phase) + 1);
}

std::optional<uint64_t> MBarriers::arrive(Warp &warp, uint32_t lane, MBarrier &barrier,
                                          uint32_t count) {
  uint64_t state = stateOf(barrier);
  if (count < 1 || count > barrier.pending) {
    warp.fault(FaultKind::InvalidBarrier, lane, barrier.address,
               fmt::format("{} arrivals at an mbarrier whose phase still waits for {} of {}", count,
                           barrier.pending, barrier.expected));
    return std::nullopt;
  }
  barrier.pending -= count;
  if (Clocks *clocks = block.clocks())
    clocks->release(warp.agent, barrier.arriving);
  settle(barrier);
  return state;
}

void MBarriers::expect(Warp &warp, uint32_t lane, MBarrier &barrier, uint32_t bytes) {
  barrier.bytes += bytes;
  if (bytes > kMaxCount || barrier.bytes > kMaxCount)
    warp.fault(
        FaultKind::InvalidBarrier, lane, barrier.address,
        fmt::format("an mbarrier that expects {} bytes; {} are allowed", barrier.bytes, kMaxCount));
  block.cluster().noteEvent();
}

void MBarriers::bring(Warp &, uint32_t, MBarrier &barrier, uint32_t bytes) {
  barrier.bytes -= bytes;
  settle(barrier);
}

void MBarriers::announce(const Warp &warp, LaneMask lanes) {
  for (auto &[address, barrier] : barriers)
    barrier.announced |= barrier.warp == warp.agent && has(lanes, barrier.lane);
}

void MBarriers::add(MBarrier &barrier, AsyncArrival arrival) {
  barrier.underWay.push_back(std::move(arrival));
  block.cluster().noteEvent();
}

void MBarriers::poll(MBarrier &barrier, uint64_t phase) {
  while (barrier.phase == phase && !barrier.underWay.empty()) {
    AsyncArrival arrival = std::move(barrier.underWay.front());
    barrier.underWay.pop_front();
    arrival.deliver();
    barrier.bytes -= arrival.bytes;
    if (arrival.arrives) {
      barrier.pending -= std::min(barrier.pending, 1u);
      if (block.clocks()) {
        barrier.arriving.known.resize(
            std::max(barrier.arriving.known.size(), arrival.clock.known.size()));
        for (size_t i = 0; i < arrival.clock.known.size(); ++i)
          barrier.arriving.known[i] = std::max(barrier.arriving.known[i], arrival.clock.known[i]);
      }
    }
    settle(barrier);
  }
}

const MBarrier *MBarriers::unfinished() const {
  const MBarrier *first = nullptr;
  for (const auto &[address, barrier] : barriers)
    if (!barrier.underWay.empty() && (!first || address < first->address))
      first = &barrier;
  return first;
}

} // namespace llmopt::sim

// The barriers of a block: who has arrived, and what happens when all have.
#include "runtime/device/sim/exec/Cluster.h"
#include "runtime/device/sim/exec/SharedChecks.h"
#include "runtime/device/sim/ops/Modes.h"

namespace llmopt::sim {

void Block::arrive(Warp &warp, uint32_t number, uint32_t expected, LaneMask lanes, bool wholeWarp) {
  if (number >= kBarriers || expected % kLanes != 0) {
    warp.fault(
        FaultKind::InvalidBarrier, std::nullopt, std::nullopt,
        fmt::format("barrier {} for {} threads; barriers 0 to 15 and multiples of 32 threads "
                    "are allowed",
                    number, expected));
    return;
  }
  Barrier &barrier = barriers[number];
  // Released here at the latest: a warp that only arrives may come again at once.
  if (barrier.active && complete(barrier))
    release(number);
  if (!barrier.active) {
    barrier.active = true;
    barrier.expected = expected;
    barrier.threads = barrier.count = 0;
    barrier.all = true;
    barrier.any = false;
    barrier.clock.clear();
  }
  if (barrier.expected != expected) {
    warp.fault(FaultKind::InvalidBarrier, std::nullopt, std::nullopt,
               fmt::format("barrier {} for {} threads, while others wait at it for {}", number,
                           expected, barrier.expected));
    return;
  }
  if (barrier.arrived[warp.index] & lanes) {
    warp.fault(FaultKind::InvalidBarrier, std::nullopt, std::nullopt,
               fmt::format("lanes {:#010x} arrive a second time at barrier {}, which is not "
                           "complete",
                           barrier.arrived[warp.index] & lanes, number));
    return;
  }
  ++tally.barriers;
  owner.noteEvent();
  barrier.lastArrival = warp.pc;
  if (sharedChecks)
    clocks()->release(warp.agent, barrier.clock);
  barrier.arrived[warp.index] |= lanes;
  barrier.threads += wholeWarp ? kLanes : static_cast<uint32_t>(std::popcount(lanes));
  warp.barrierNumber = number;
}

void Block::contribute(uint32_t number, LaneMask predicate, LaneMask lanes) {
  if (number >= kBarriers)
    return;
  Barrier &barrier = barriers[number];
  barrier.count += static_cast<uint32_t>(std::popcount(predicate & lanes));
  barrier.all &= (lanes & ~predicate) == 0;
  barrier.any |= (predicate & lanes) != 0;
}

bool Block::complete(const Barrier &barrier) const {
  if (barrier.expected != 0)
    return barrier.threads >= barrier.expected;
  for (const Warp &warp : warps)
    if (warp.alive & ~barrier.arrived[warp.index])
      return false;
  return true;
}

bool Block::releaseBarriers() {
  bool released = false;
  for (uint32_t number = 0; number < kBarriers; ++number) {
    if (!barriers[number].active || !complete(barriers[number]))
      continue;
    release(number);
    released = true;
  }
  return released;
}

void Block::release(uint32_t number) {
  Barrier &barrier = barriers[number];
  if (sharedChecks && barrier.expected == 0)
    for (Warp &warp : warps) // who has ended counts as arrived
      if (!warp.alive)
        clocks()->release(warp.agent, barrier.clock);
  for (Warp &warp : warps) {
    for (Path &path : warp.paths) {
      if (path.state != Path::State::AtBarrier || path.barrier != number)
        continue;
      const Inst &inst = grid.kernel->code[path.pc];
      auto mode = static_cast<BarrierMode>(inst.mode);
      if (mode == BarrierMode::Popc)
        forEachLane(path.lanes, [&](uint32_t lane) { warp.narrow(inst.d)[lane] = barrier.count; });
      else if (mode == BarrierMode::And || mode == BarrierMode::Or)
        warp.setPredicate(inst.d,
                          (mode == BarrierMode::And ? barrier.all : barrier.any) ? kAllLanes : 0,
                          path.lanes);
      if (sharedChecks)
        clocks()->acquire(warp.agent, barrier.clock);
      path.state = Path::State::Ready;
      ++path.pc;
    }
    barrier.arrived[warp.index] = 0;
  }
  barrier.active = false;
}

} // namespace llmopt::sim

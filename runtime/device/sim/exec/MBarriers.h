// The mbarriers of a block's shared memory (PTX ISA 9.7.13.15). Their state is kept
// here, by address; the 8 bytes in memory say nothing. What copies bring arrives
// when somebody asks for the barrier and not before, so that a kernel which does not
// wait reads garbage.
#pragma once

#include "runtime/device/sim/exec/Clocks.h"

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>

namespace llmopt::sim {

class Block;

/// A copy that tells an mbarrier when it is done, or the arrival that
/// cp.async.mbarrier.arrive makes when copies are.
struct AsyncArrival {
  std::function<void()> deliver; ///< moves the bytes
  uint32_t bytes = 0;            ///< taken off the transaction count
  bool arrives = false;          ///< counts as an arrival
  VectorClock clock;             ///< what whoever arrives has done, of a strict run
};

struct MBarrier {
  Block *block = nullptr;
  uint32_t address = 0;
  uint32_t expected = 0; ///< arrivals of a phase; 0: the mbarrier is not there any more
  uint32_t pending = 0;  ///< of the current phase
  int64_t bytes = 0;     ///< that are expected and have not come
  uint64_t phase = 0;    ///< phases that are complete
  uint32_t agent = 0;    ///< of Clocks: its copies; their time is 1 + their phase
  VectorClock arriving, completed;
  std::deque<AsyncArrival> underWay;
  // Its initialisation.
  uint32_t warp = 0, lane = 0, time = 0, pc = 0;
  bool announced = false; ///< a fence.mbarrier_init followed

  bool passed(bool parity) const { return (phase & 1) != parity; }
  /// "1 of 2 arrivals are missing"
  std::string missing() const;
};

class MBarriers {
public:
  static constexpr uint32_t kMaxCount = (1u << 20) - 1; ///< arrivals, and bytes

  explicit MBarriers(Block &block) : block(block) {}
  void start();

  // What threads do, which may be of another block of the cluster. Nothing and a fault
  // of the warp if it is not allowed.
  void init(Warp &warp, uint32_t lane, uint32_t address, uint32_t count);
  void invalidate(Warp &warp, uint32_t lane, uint32_t address);
  /// The barrier at an address.
  MBarrier *find(Warp &warp, uint32_t lane, uint32_t address);
  /// The same for a copy that will arrive there.
  MBarrier *findForCopy(Warp &warp, uint32_t lane, uint32_t address);
  /// The state before the arrival, as mbarrier.arrive returns it.
  std::optional<uint64_t> arrive(Warp &warp, uint32_t lane, MBarrier &barrier, uint32_t count);
  void expect(Warp &warp, uint32_t lane, MBarrier &barrier, uint32_t bytes);
  void bring(Warp &warp, uint32_t lane, MBarrier &barrier, uint32_t bytes);
  /// fence.mbarrier_init.
  void announce(const Warp &warp, LaneMask lanes);

  /// Something will arrive later.
  void add(MBarrier &barrier, AsyncArrival arrival);
  /// Lets what is under way arrive, while the phase is this one.
  void poll(MBarrier &barrier, uint64_t phase);

  /// The first that copies to shared memory are under way to, and for how many.
  const MBarrier *unfinished() const;

  /// States of mbarrier.arrive: the phase, and the pending count.
  static uint64_t stateOf(const MBarrier &barrier) { return barrier.phase << 20 | barrier.pending; }
  static uint64_t phaseOf(uint64_t state) { return state >> 20; }
  static uint32_t pendingOf(uint64_t state) { return static_cast<uint32_t>(state & kMaxCount); }

private:
  void settle(MBarrier &barrier);

  Block &block;
  std::unordered_map<uint32_t, MBarrier> barriers;
};

} // namespace llmopt::sim

// What happens before what in a cluster of blocks, by vector clocks. Each warp has
// a time that grows when it synchronises; `known` says up to which time of another
// warp everything has happened before all that the lanes of this warp do from now
// on. Between lanes of one warp it says the same once they have synchronised; lanes
// that synchronise without the rest of their warp have times of each other of
// their own.
//
// What works on its own (bulk copies, wgmma) has times as well, as *agents* that no
// warp knows of until it waits. They access memory through another proxy: a store of
// a thread is seen by them only if a proxy fence lies between, and `fenced` says up
// to which time of a warp one does (PTX ISA, memory consistency model, proxies).
#pragma once

#include "runtime/device/sim/decode/Program.h"

#include <array>
#include <memory>
#include <vector>

namespace llmopt::sim {

/// By agent: the time up to which its accesses are known, and up to which they are
/// behind a proxy fence (empty without agents that have another proxy).
struct VectorClock {
  std::vector<uint32_t> known, fenced;

  void clear() {
    known.clear();
    fenced.clear();
  }
};

class Clocks {
public:
  /// Begins anew for that many warps. `async`: there are agents that work on their own.
  void start(uint32_t warps, bool async);

  uint32_t warps() const { return count; }
  uint32_t now(uint32_t warp) const { return time[warp]; }

  /// The agent that reads shared memory for the wgmma groups, and for the bulk copies,
  /// of a warp.
  uint32_t productsOf(uint32_t warp) const { return count + warp; }
  uint32_t bulkReadsOf(uint32_t warp) const { return 2 * count + warp; }
  /// Warps and the agents above, which are those that read.
  uint32_t readers() const { return async ? 3 * count : count; }
  /// One more, for the copies that arrive at a barrier.
  uint32_t addAgent();

  /// True if what `others` of warp `other` did at time `when` happens before
  /// what `lanes` of `warp` do now. A lane is always after itself.
  bool before(uint32_t other, LaneMask others, uint32_t when, uint32_t warp, LaneMask lanes) const {
    return when <= known[warp * stride + other] ||
           (other == warp && orderedInWarp(others, when, warp, lanes));
  }
  /// The same, with a proxy fence between the two: of the one or of the other.
  bool fencedBefore(uint32_t other, LaneMask others, uint32_t when, uint32_t warp) const;

  /// The members, which are all of `alive` or some of it, wait for each other.
  void syncLanes(uint32_t warp, LaneMask members, LaneMask alive);
  /// What the warp has done and knows becomes part of `into`.
  void release(uint32_t warp, VectorClock &into);
  /// What `from` knows happens before all that the warp does from now on.
  void acquire(uint32_t warp, const VectorClock &from);
  /// The warp has waited for what the agent did up to that time.
  void complete(uint32_t warp, uint32_t agent, uint32_t when);
  /// fence.proxy.async by those lanes.
  void fenceProxy(uint32_t warp, LaneMask lanes);

private:
  using LaneTimes = std::array<std::array<uint32_t, kLanes>, kLanes>;

  bool orderedInWarp(LaneMask others, uint32_t when, uint32_t warp, LaneMask lanes) const;

  uint32_t count = 0;
  uint32_t agents = 0; ///< with the warps
  uint32_t stride = 0; ///< room for agents
  bool async = false;
  std::vector<uint32_t> time;
  std::vector<uint32_t> known;  ///< [warp][agent]
  std::vector<uint32_t> fenced; ///< [warp][other warp]
  /// By warp, in order of time: when which of its lanes passed a proxy fence.
  std::vector<std::vector<std::pair<uint32_t, LaneMask>>> fences;
  /// By warp, if some lanes synchronised alone: [lane][other lane].
  std::vector<std::unique_ptr<LaneTimes>> lanes;
};

} // namespace llmopt::sim

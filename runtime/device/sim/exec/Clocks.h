// What happens before what in a block, by vector clocks. Each warp has a time
// that grows when it synchronises; `known` says up to which time of another warp
// everything has happened before all that the lanes of this warp do from now on.
// Between lanes of one warp it says the same once they have synchronised; lanes
// that synchronise without the rest of their warp have times of each other of
// their own.
#pragma once

#include "runtime/device/sim/decode/Program.h"

#include <array>
#include <memory>
#include <vector>

namespace llmopt::sim {

/// By warp: the time up to which its accesses are known.
using VectorClock = std::vector<uint32_t>;

class Clocks {
public:
  /// Begins anew for a block of that many warps.
  void start(uint32_t warps);

  uint32_t warps() const { return count; }
  uint32_t now(uint32_t warp) const { return time[warp]; }

  /// True if what `others` of warp `other` did at time `when` happens before
  /// what `lanes` of `warp` do now. A lane is always after itself.
  bool before(uint32_t other, LaneMask others, uint32_t when, uint32_t warp, LaneMask lanes) const {
    return when <= known[warp * count + other] ||
           (other == warp && orderedInWarp(others, when, warp, lanes));
  }

  /// The members, which are all of `alive` or some of it, wait for each other.
  void syncLanes(uint32_t warp, LaneMask members, LaneMask alive);
  /// What the warp has done and knows becomes part of `into`.
  void release(uint32_t warp, VectorClock &into);
  /// What `from` knows happens before all that the warp does from now on.
  void acquire(uint32_t warp, const VectorClock &from);

private:
  using LaneTimes = std::array<std::array<uint32_t, kLanes>, kLanes>;

  bool orderedInWarp(LaneMask others, uint32_t when, uint32_t warp, LaneMask lanes) const;

  uint32_t count = 0;
  std::vector<uint32_t> time;
  std::vector<uint32_t> known; ///< [warp][other warp]
  /// By warp, if some lanes synchronised alone: [lane][other lane].
  std::vector<std::unique_ptr<LaneTimes>> lanes;
};

} // namespace llmopt::sim

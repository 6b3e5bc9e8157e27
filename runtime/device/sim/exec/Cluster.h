// A cluster while it runs: its blocks in turn, the barrier they have in common, and
// what happened before what among all their warps. A block by itself is a cluster of
// one.
#pragma once

#include "runtime/device/sim/exec/Block.h"

namespace llmopt::sim {

class Cluster {
public:
  /// `grid` and `tally` must outlive the cluster.
  Cluster(const Grid &grid, Tally &tally);
  ~Cluster();

  /// Begins the cluster of this linear index anew.
  void start(uint64_t index);

  enum class Progress : uint8_t { Running, Done, Faulted };
  /// Runs until the cluster is done, has a fault, or has issued about that many
  /// instructions.
  Progress advance(uint64_t steps);

  const Fault &fault() const;
  std::vector<std::pair<uint32_t, Fault>> takeWarnings();

  uint32_t size() const { return static_cast<uint32_t>(blocks.size()); }
  Block &block(uint32_t rank) { return *blocks[rank]; }
  /// Null if the run is not strict.
  Clocks *clocks() { return strictClocks.get(); }
  /// Copies that are still under way belong to a later time of their agent.
  void postpone(uint32_t agent, uint32_t time);

  // The barrier of the cluster.
  void arrive(Warp &warp, LaneMask lanes);
  /// Lanes of these that must still wait.
  LaneMask waiting(Warp &warp, LaneMask lanes);
  /// "of 1024 threads 32 are missing"
  std::string missing() const;

  /// Grows with all that may end somebody's wait.
  uint64_t events() const { return eventCount; }
  void noteEvent() { ++eventCount; }

private:
  void settleBarrier();
  bool letTimePass();
  void reportDeadlock();

  const Grid &grid;
  std::vector<std::unique_ptr<Block>> blocks;
  std::unique_ptr<Clocks> strictClocks;
  uint64_t eventCount = 1;
  uint64_t eventsAtTimeOut = 0;
  uint32_t idle = 0; ///< times that waits ended in vain, in a row
  uint64_t phase = 0;
  VectorClock arriving, completed;
};

} // namespace llmopt::sim

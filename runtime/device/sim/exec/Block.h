// A block while it runs: shared memory, barriers, and its warps in turn.
#pragma once

#include "runtime/device/sim/exec/Clocks.h"
#include "runtime/device/sim/exec/MBarriers.h"
#include "runtime/device/sim/exec/Warp.h"

#include <memory>
#include <string>

namespace llmopt::sim {

class Cluster;
class GlobalChecks;
class SharedChecks;

/// What all blocks of a launch have in common.
struct Grid {
  const detail::Program *program = nullptr;
  const Kernel *kernel = nullptr;
  const GlobalMemory *memory = nullptr;
  const std::vector<uint64_t> *variables = nullptr; ///< addresses
  std::span<const std::byte> params;
  std::array<uint32_t, 3> grid = {1, 1, 1};
  std::array<uint32_t, 3> block = {1, 1, 1};
  std::array<uint32_t, 3> cluster = {1, 1, 1}; ///< blocks
  uint32_t threads = 0;                        ///< of a block
  uint32_t sharedBytes = 0;                    ///< static and dynamic
  uint32_t dynamicShared = 0;
  uint64_t stepBudget = 0;
  uint64_t seed = 0;
  bool profiled = false;
  bool strict = false;
  bool unprovenFaults = false;
  GlobalChecks *checks = nullptr; ///< of a strict run
};

/// One of the 16 barriers of a block.
struct Barrier {
  bool active = false;
  uint32_t expected = 0;         ///< threads; 0: all that have not exited
  uint32_t threads = 0;          ///< arrived, whole warps count 32
  std::vector<LaneMask> arrived; ///< by warp
  uint32_t count = 0;            ///< predicates that were true, for bar.red
  bool all = true, any = false;
  uint32_t lastArrival = 0; ///< instruction
  VectorClock clock;        ///< what those who arrived have done; of a strict run
};
inline constexpr uint32_t kBarriers = 16;

class Block {
public:
  /// `grid`, `tally` and the cluster must outlive the block, which is that of this rank.
  Block(const Grid &grid, Tally &tally, Cluster &cluster, uint32_t rank);
  ~Block();

  /// Begins the block of this linear index anew.
  void start(uint64_t index);

  struct Round {
    bool running = false; ///< some warp has not ended
    bool progress = false;
    uint64_t issued = 0; ///< instructions
  };
  /// A turn for each warp.
  Round round();
  /// All threads have ended: looks for what they left undone.
  void finish();
  /// Ends waits that may end without success; false if there is none.
  bool timeOut();
  /// Adds who waits for what; `first` becomes the first that does, and has the kind of
  /// fault.
  void describeWaits(std::string &who, Warp *&first, FaultKind &kind);

  const Fault &fault() const { return *found; }
  std::array<uint32_t, 3> position() const { return coordinates; }
  const Grid &launch() const { return grid; }

  uint64_t index() const { return linear; }
  Cluster &cluster() { return owner; }
  uint32_t rank() const { return ownRank; }
  /// The block that an address of shared memory lies in, and its offset there; null and a
  /// fault of the warp if there is none.
  Block *resolve(Warp &warp, uint32_t lane, uint64_t &address);
  Warp &warp(uint32_t i) { return warps[i]; }
  std::span<Warp> allWarps() { return warps; }

  std::byte *shared() { return sharedMemory.data(); }
  /// Null if the run is not strict.
  SharedChecks *checks() { return sharedChecks.get(); }
  Clocks *clocks();

  MBarriers mbarriers;

  static constexpr size_t kNoBuffer = ~size_t{0};
  /// Number of the buffer in global memory that the address lies in.
  size_t bufferAt(uint64_t address);

  /// The first byte of [address, address + bytes) of a registered buffer, or
  /// null and a fault of the warp.
  std::byte *global(Warp &warp, uint32_t lane, uint64_t address, uint32_t bytes, bool write) {
    if (address >= lastBegin && address + bytes <= lastEnd && (!write || lastWritable) &&
        address + bytes > address)
      return reinterpret_cast<std::byte *>(address);
    return findGlobal(warp, lane, address, bytes, write);
  }

  /// Records what the lanes bring to a barrier: see ops/Barrier.cpp.
  void arrive(Warp &warp, uint32_t number, uint32_t expected, LaneMask lanes, bool wholeWarp);
  void contribute(uint32_t number, LaneMask predicate, LaneMask lanes);
  const Barrier &barrier(uint32_t number) const { return barriers[number]; }

  /// A number that grows with each call and with the work of the block.
  uint64_t tick() { return steps + ++ticks; }

  void setFault(Fault fault) { found = std::make_unique<Fault>(std::move(fault)); }
  /// Those of all blocks since the last call.
  std::vector<std::pair<uint32_t, Fault>> takeWarnings() { return std::exchange(warnings, {}); }
  void addWarning(uint32_t pc, Fault warning) { warnings.emplace_back(pc, std::move(warning)); }
  bool hasWarning(uint32_t pc, FaultKind kind) const;
  bool faulted() const { return found != nullptr; }

private:
  std::byte *findGlobal(Warp &warp, uint32_t lane, uint64_t address, uint32_t bytes, bool write);
  void startWarp(Warp &warp);
  void fillConstant(Warp &warp, const Constant &constant);
  uint64_t specialValue(const Warp &warp, uint32_t lane, Special special) const;
  void finishBarriers();
  bool complete(const Barrier &barrier) const;
  bool releaseBarriers();
  void release(uint32_t number);
  std::string describeWait(Warp &warp, const Path &path, FaultKind &kind);
  uint64_t nextRandom();

  const Grid &grid;
  Tally &tally;
  Cluster &owner;
  uint32_t ownRank = 0;
  uint64_t linear = 0;
  std::array<uint32_t, 3> coordinates = {0, 0, 0};
  std::vector<Warp> warps;
  std::vector<std::byte> sharedMemory;
  std::unique_ptr<SharedChecks> sharedChecks;
  std::array<Barrier, kBarriers> barriers;
  std::unique_ptr<Fault> found;
  std::vector<std::pair<uint32_t, Fault>> warnings; ///< by instruction
  uint64_t steps = 0;                               ///< instructions issued in finished turns
  uint64_t ticks = 0;
  uint64_t random = 0;
  // The buffer of the last access: most accesses hit it again.
  uint64_t lastBegin = 1, lastEnd = 0;
  bool lastWritable = false;
  size_t lastBuffer = 0;
};

Counters countersOf(const Kernel &kernel, const Tally &tally);
Profile profileOf(const Grid &grid, const Tally &tally);

/// Runs the warp until it waits for others, ends, has a fault, or has issued
/// about `limit` instructions; returns how many it issued.
uint64_t runWarp(Warp &warp, uint64_t limit);

} // namespace llmopt::sim

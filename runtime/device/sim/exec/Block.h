// A block while it runs: shared memory, barriers, and its warps in turn.
#pragma once

#include "runtime/device/sim/exec/Warp.h"

#include <memory>
#include <string>

namespace llmopt::sim {

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
  uint32_t threads = 0;     ///< of a block
  uint32_t sharedBytes = 0; ///< static and dynamic
  uint32_t dynamicShared = 0;
  uint64_t stepBudget = 0;
  uint64_t seed = 0;
  bool profiled = false;
  bool strict = false;
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
  uint32_t lastArrival = 0;    ///< instruction
  std::vector<uint32_t> clock; ///< what those who arrived have done; of a strict run
};
inline constexpr uint32_t kBarriers = 16;

class Block {
public:
  /// `grid` and `tally` must outlive the block.
  Block(const Grid &grid, Tally &tally);
  ~Block();

  /// Begins the block of this linear index anew.
  void start(uint64_t index);

  enum class Progress : uint8_t { Running, Done, Faulted };
  /// Runs until the block is done, has a fault, or has issued about that many
  /// instructions.
  Progress advance(uint64_t steps);

  const Fault &fault() const { return *found; }
  std::array<uint32_t, 3> position() const { return coordinates; }
  const Grid &launch() const { return grid; }

  uint64_t index() const { return linear; }

  std::byte *shared() { return sharedMemory.data(); }
  /// Null if the run is not strict.
  SharedChecks *checks() { return sharedChecks.get(); }

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
  bool faulted() const { return found != nullptr; }

private:
  std::byte *findGlobal(Warp &warp, uint32_t lane, uint64_t address, uint32_t bytes, bool write);
  void startWarp(Warp &warp);
  void fillConstant(Warp &warp, const Constant &constant);
  uint64_t specialValue(const Warp &warp, uint32_t lane, Special special) const;
  void finish();
  bool complete(const Barrier &barrier) const;
  bool releaseBarriers();
  void release(uint32_t number);
  void reportDeadlock();
  uint64_t nextRandom();

  const Grid &grid;
  Tally &tally;
  uint64_t linear = 0;
  std::array<uint32_t, 3> coordinates = {0, 0, 0};
  std::vector<Warp> warps;
  std::vector<std::byte> sharedMemory;
  std::unique_ptr<SharedChecks> sharedChecks;
  std::array<Barrier, kBarriers> barriers;
  std::unique_ptr<Fault> found;
  uint64_t steps = 0; ///< instructions issued in finished turns
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

// Races between blocks on global memory. Blocks of a grid run in no order, so
// two of them that touch the same byte, one writing, race: unless both accesses
// are atomic, or a chain of atomics (or volatile, acquire, release accesses)
// leads from one to the other. Such a chain is taken to order all that a block
// did before with all that the other does after: a missing fence does not show.
// Threads of one block are not told apart here.
#pragma once

#include "runtime/device/sim/exec/Access.h"

#include <atomic>
#include <memory>
#include <unordered_map>
#include <vector>

namespace llmopt::sim {

class GlobalChecks {
public:
  /// `ordered`: the blocks run on one thread and may hand over to each other.
  GlobalChecks(const GlobalMemory &memory, std::array<uint32_t, 3> grid, bool ordered);
  ~GlobalChecks();

  /// An access of a warp; a fault of it if it races with another block's.
  void access(Warp &warp, const LaneAddresses &addresses, uint32_t bytes, AccessKind kind);

private:
  struct Page;
  struct Mark;
  /// By block: the time up to which what it did is known.
  using BlockTimes = std::unordered_map<uint32_t, uint32_t>;

  Page &pageOf(size_t buffer, uint64_t page);
  bool read(Warp &warp, uint32_t lane, uint64_t address, uint32_t bytes, bool strong);
  bool write(Warp &warp, uint32_t lane, uint64_t address, uint32_t bytes, bool strong);
  bool before(uint32_t who, uint32_t time, uint32_t block) const;
  bool report(Warp &warp, uint32_t lane, uint64_t address, uint32_t bytes, bool write,
              std::string_view what, const Mark &other) const;
  void handOver(uint32_t block, uint64_t address, AccessKind kind);

  const GlobalMemory &memory;
  std::array<uint32_t, 3> grid;
  bool ordered;
  /// By buffer and page; buffers that cannot be written have none.
  std::vector<std::vector<std::atomic<Page *>>> pages;
  std::unordered_map<uint32_t, uint32_t> times; ///< by block, from 1
  std::unordered_map<uint32_t, BlockTimes> known;
  std::unordered_map<uint64_t, BlockTimes> handovers; ///< by address
};

} // namespace llmopt::sim

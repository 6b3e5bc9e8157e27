// Counts accesses to memory, and hands them to the checks of orderings.
#include "runtime/device/sim/exec/Access.h"
#include "runtime/device/sim/exec/Cluster.h"
#include "runtime/device/sim/exec/GlobalChecks.h"
#include "runtime/device/sim/exec/SharedChecks.h"

#include <algorithm>

namespace llmopt::sim {

using ptx::Space;

namespace {

constexpr uint64_t kSector = 32;

/// The 32-byte sectors that the lanes touch, each once.
struct Sectors {
  std::array<uint64_t, kLanes> at;
  size_t count = 0;

  explicit Sectors(const LaneAddresses &addresses) {
    // Most accesses ascend by lane: sectors are counted as they go by, and only
    // what goes back is sorted.
    bool ascending = true;
    forEachLane(addresses.lanes, [&](uint32_t lane) {
      uint64_t sector = addresses.at[lane] / kSector; // an aligned access lies in one
      if (count && at[count - 1] == sector)
        return;
      ascending &= count == 0 || at[count - 1] < sector;
      at[count++] = sector;
    });
    if (ascending)
      return;
    std::sort(at.begin(), at.begin() + count);
    count = static_cast<size_t>(std::unique(at.begin(), at.begin() + count) - at.begin());
  }
};

void countBuffers(Warp &warp, const LaneAddresses &addresses, const Sectors &sectors,
                  uint32_t bytes, bool write) {
  forEachLane(addresses.lanes, [&](uint32_t lane) {
    BufferTally &buffer = warp.tally->buffers[warp.block->bufferAt(addresses.at[lane])];
    (write ? buffer.storeBytes : buffer.loadBytes) += bytes;
  });
  for (size_t i = 0; i < sectors.count; ++i) {
    uint64_t at = sectors.at[i] * kSector;
    // The first sector of a buffer may begin before it.
    size_t number = warp.block->bufferAt(at);
    if (number == Block::kNoBuffer)
      number = warp.block->bufferAt(at + kSector - 1);
    if (number == Block::kNoBuffer)
      continue;
    BufferTally &buffer = warp.tally->buffers[number];
    ++buffer.sectors;
    uint64_t bit = sectors.at[i] - warp.block->launch().memory->buffers()[number].begin / kSector;
    std::vector<uint64_t> &seen = write ? buffer.stored : buffer.loaded;
    if (seen.size() <= bit / 64)
      seen.resize(bit / 64 + 1);
    seen[bit / 64] |= uint64_t{1} << bit % 64;
  }
}

/// Passes through the banks, and what they would be without conflicts.
std::pair<uint32_t, uint32_t> wavefronts(const LaneAddresses &addresses, uint32_t bytes) {
  // Units of the access size, at least a bank's word: those of one bank group
  // that differ need a wavefront each.
  auto shift = static_cast<uint32_t>(std::countr_zero(std::max(bytes, 4u)));
  uint32_t groups = 128 >> shift;
  uint32_t all = 0, ideal = 0;
  for (uint32_t first = 0; first < kLanes; first += groups) {
    LaneMask lanes = addresses.lanes >> first;
    if (groups < kLanes)
      lanes &= (1u << groups) - 1;
    if (!lanes)
      continue;
    // Most accesses touch each bank group once, many with several neighbouring lanes.
    uint32_t touched = 0, before = ~0u;
    int units = 0;
    forEachLane(lanes, [&](uint32_t lane) {
      uint32_t at = static_cast<uint32_t>(addresses.at[first + lane]) >> shift;
      touched |= 1u << at % groups;
      units += at != before;
      before = at;
    });
    ++ideal;
    if (std::popcount(touched) == units) {
      ++all;
      continue;
    }
    std::array<uint32_t, kLanes> seen;     // units, chained by bank group
    std::array<uint8_t, kLanes> next;      // 1 + index in `seen`
    std::array<uint8_t, kLanes> head = {}; // by bank group
    std::array<uint8_t, kLanes> different = {};
    uint8_t used = 0, most = 1;
    forEachLane(lanes, [&](uint32_t lane) {
      uint32_t at = static_cast<uint32_t>(addresses.at[first + lane]) >> shift;
      uint32_t group = at % groups;
      for (uint8_t i = head[group]; i; i = next[i - 1])
        if (seen[i - 1] == at)
          return;
      seen[used] = at;
      next[used] = head[group];
      head[group] = ++used;
      most = std::max(most, ++different[group]);
    });
    all += most;
  }
  return {all, ideal};
}

void countShared(Warp &warp, const LaneAddresses &addresses, uint32_t bytes) {
  auto [all, ideal] = wavefronts(addresses, bytes);
  InstTally &tally = warp.tally->at[warp.pc];
  tally.sharedWavefronts += all;
  tally.sharedIdeal += ideal;
}

} // namespace

void recordGlobal(Warp &warp, const LaneAddresses &addresses, uint32_t bytes, AccessKind kind) {
  InstTally &tally = warp.tally->at[warp.pc];
  uint64_t total = uint64_t{bytes} * static_cast<uint32_t>(std::popcount(addresses.lanes));
  bool write = writes(kind);
  (write ? tally.globalStoreBytes : tally.globalLoadBytes) += total;
  Sectors sectors(addresses);
  tally.globalSectors += sectors.count;
  if (!warp.tally->buffers.empty())
    countBuffers(warp, addresses, sectors, bytes, write);
  if (GlobalChecks *checks = warp.block->launch().checks)
    checks->access(warp, addresses, bytes, kind);
}

namespace {

/// Shared memory of several blocks: the checks of each.
void recordInCluster(Warp &warp, LaneAddresses addresses, uint32_t bytes, AccessKind kind) {
  Cluster &cluster = warp.block->cluster();
  for (uint32_t rank = 0; rank < cluster.size(); ++rank) {
    LaneAddresses there;
    forEachLane(addresses.lanes, [&](uint32_t lane) {
      uint64_t address = addresses.at[lane];
      uint64_t owner = address >> kRankShift ? (address >> kRankShift) - 1 : warp.block->rank();
      if (owner == rank)
        there.add(lane, address & kOffsetMask);
    });
    SharedChecks *checks = cluster.block(rank).checks();
    if (there.lanes && checks)
      checks->access(warp, there, bytes, kind);
  }
}

} // namespace

void recordShared(Warp &warp, const LaneAddresses &addresses, uint32_t bytes, AccessKind kind) {
  countShared(warp, addresses, bytes);
  if (warp.block->cluster().size() > 1)
    return recordInCluster(warp, addresses, bytes, kind);
  if (SharedChecks *checks = warp.block->checks())
    checks->access(warp, addresses, bytes, kind);
}

void recordRows(Warp &warp, const LaneAddresses &rows, uint32_t bytes, AccessKind kind) {
  countShared(warp, rows, bytes);
  if (SharedChecks *checks = warp.block->checks())
    checks->accessRows(warp, rows, kind);
}

void record(Warp &warp, Space space, const LaneAddresses &addresses, uint32_t bytes,
            AccessKind kind) {
  if (space == Space::Global)
    return recordGlobal(warp, addresses, bytes, kind);
  if (space == Space::Shared)
    return recordShared(warp, addresses, bytes, kind);
  if (space != Space::Generic)
    return;
  LaneAddresses global, shared;
  forEachLane(addresses.lanes, [&](uint32_t lane) {
    uint64_t address = addresses.at[lane];
    Space actual = spaceOf(address);
    if (actual == Space::Global)
      global.add(lane, address);
    else if (actual == Space::Shared)
      shared.add(lane, address);
  });
  if (global.lanes)
    recordGlobal(warp, global, bytes, kind);
  if (shared.lanes)
    recordShared(warp, shared, bytes, kind);
}

} // namespace llmopt::sim

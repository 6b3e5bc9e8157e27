#include "runtime/device/sim/exec/Access.h"

#include <algorithm>

namespace llmopt::sim {

using ptx::Space;

namespace {

std::string_view verb(AccessKind kind) {
  switch (kind) {
  case AccessKind::Load:
    return "load";
  case AccessKind::Store:
    return "store";
  case AccessKind::Atomic:
    return "atomic";
  case AccessKind::AsyncLoad:
    return "asynchronous load";
  case AccessKind::AsyncStore:
    return "asynchronous store";
  }
  return "access";
}

/// Memory that begins at address 0 of its space.
std::byte *locateWindow(Warp &warp, FaultKind fault, std::string_view name, std::byte *memory,
                        uint64_t size, uint32_t lane, uint64_t address, uint32_t bytes,
                        AccessKind kind) {
  if (address <= size && bytes <= size - address)
    return memory + address;
  warp.fault(fault, lane, address,
             fmt::format("{} of {} bytes at offset {} of {} memory; it has {} bytes", verb(kind),
                         bytes, static_cast<int64_t>(address), name, size));
  return nullptr;
}

std::byte *locateParam(Warp &warp, uint32_t lane, uint64_t address, uint32_t bytes,
                       AccessKind kind) {
  if (writes(kind)) {
    warp.fault(FaultKind::WriteToReadOnly, lane, address,
               fmt::format("{} to kernel parameters", verb(kind)));
    return nullptr;
  }
  std::span<const std::byte> params = warp.block->launch().params;
  return locateWindow(warp, FaultKind::ParamOutOfBounds, "parameter",
                      const_cast<std::byte *>(params.data()), params.size(), lane, address, bytes,
                      kind);
}

Space spaceOf(uint64_t &address) {
  struct Window {
    uint64_t begin;
    Space space;
  };
  constexpr Window kWindows[] = {
      {kSharedWindow, Space::Shared}, {kLocalWindow, Space::Local}, {kParamWindow, Space::Param}};
  for (const Window &window : kWindows) {
    if (address - window.begin < kWindowBytes) {
      address -= window.begin;
      return window.space;
    }
  }
  return Space::Global;
}

} // namespace

std::byte *locate(Warp &warp, Space space, uint32_t lane, uint64_t address, uint32_t bytes,
                  AccessKind kind) {
  if (space == Space::Generic)
    space = spaceOf(address);
  if (address & (bytes - 1)) {
    warp.fault(FaultKind::Misaligned, lane, address,
               fmt::format("{} of {} bytes in {} memory at an address that is no multiple of {}",
                           verb(kind), bytes, ptx::toString(space), bytes),
               space == Space::Global ? warp.block->launch().memory->describe(address) : "");
    return nullptr;
  }
  switch (space) {
  case Space::Shared:
    return locateWindow(warp, FaultKind::SharedOutOfBounds, "shared", warp.block->shared(),
                        warp.block->launch().sharedBytes, lane, address, bytes, kind);
  case Space::Local: {
    uint64_t frame = warp.kernel->info.localBytes;
    return locateWindow(warp, FaultKind::LocalOutOfBounds, "local",
                        warp.local.data() + lane * frame, frame, lane, address, bytes, kind);
  }
  case Space::Param:
    return locateParam(warp, lane, address, bytes, kind);
  default:
    return warp.block->global(warp, lane, address, bytes, writes(kind));
  }
}

std::byte *Block::findGlobal(Warp &warp, uint32_t lane, uint64_t address, uint32_t bytes,
                             bool write) {
  const GlobalMemory::Buffer *buffer = grid.memory->find(address, bytes);
  if (!buffer) {
    if (spaceOf(address) != Space::Global)
      warp.fault(FaultKind::InvalidAddress, lane, address,
                 "a generic address of shared, local or parameter memory in an instruction for "
                 "global memory");
    else
      warp.fault(FaultKind::GlobalOutOfBounds, lane, address,
                 fmt::format("{} of {} bytes of global memory outside every buffer",
                             write ? "store" : "load", bytes),
                 grid.memory->describe(address));
    return nullptr;
  }
  if (write && buffer->access == Access::ReadOnly) {
    warp.fault(FaultKind::WriteToReadOnly, lane, address,
               fmt::format("store of {} bytes to the read-only buffer '{}'", bytes, buffer->name),
               grid.memory->describe(address));
    return nullptr;
  }
  lastBegin = buffer->begin;
  lastEnd = buffer->end;
  lastWritable = buffer->access == Access::ReadWrite;
  return reinterpret_cast<std::byte *>(address);
}

void recordGlobal(Warp &warp, const LaneAddresses &addresses, uint32_t bytes, AccessKind kind) {
  constexpr uint64_t kSector = 32;
  Counters &counters = warp.tally->counters;
  uint64_t total = uint64_t{bytes} * static_cast<uint32_t>(std::popcount(addresses.lanes));
  if (writes(kind))
    counters.globalStoreBytes += total;
  else
    counters.globalLoadBytes += total;

  // Most accesses ascend by lane: sectors are counted as they go by, and only
  // what goes back is sorted.
  std::array<uint64_t, kLanes> sectors;
  size_t count = 0;
  bool ascending = true;
  forEachLane(addresses.lanes, [&](uint32_t lane) {
    uint64_t sector = addresses.at[lane] / kSector; // an aligned access lies in one
    if (count && sectors[count - 1] == sector)
      return;
    ascending &= count == 0 || sectors[count - 1] < sector;
    sectors[count++] = sector;
  });
  if (!ascending) {
    std::sort(sectors.begin(), sectors.begin() + count);
    count = static_cast<size_t>(std::unique(sectors.begin(), sectors.begin() + count) -
                                sectors.begin());
  }
  counters.globalSectors += count;
}

void recordShared(Warp &warp, const LaneAddresses &addresses, uint32_t bytes, AccessKind) {
  // Units of the access size, at least a bank's word: those of one bank group
  // that differ need a wavefront each.
  uint32_t unit = std::max(bytes, 4u);
  uint32_t groups = 128 / unit;
  Counters &counters = warp.tally->counters;
  for (uint32_t first = 0; first < kLanes; first += groups) {
    LaneMask lanes = addresses.lanes >> first;
    if (groups < kLanes)
      lanes &= (1u << groups) - 1;
    if (!lanes)
      continue;
    std::array<uint32_t, kLanes> seen;     // units, chained by bank group
    std::array<uint8_t, kLanes> next;      // 1 + index in `seen`
    std::array<uint8_t, kLanes> head = {}; // by bank group
    std::array<uint8_t, kLanes> different = {};
    uint8_t used = 0, most = 1;
    forEachLane(lanes, [&](uint32_t lane) {
      auto at = static_cast<uint32_t>(addresses.at[first + lane]) / unit;
      uint32_t group = at % groups;
      for (uint8_t i = head[group]; i; i = next[i - 1])
        if (seen[i - 1] == at)
          return;
      seen[used] = at;
      next[used] = head[group];
      head[group] = ++used;
      most = std::max(most, ++different[group]);
    });
    counters.sharedWavefronts += most;
    ++counters.sharedIdeal;
  }
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

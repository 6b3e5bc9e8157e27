#include "runtime/device/sim/exec/Transfers.h"

#include "runtime/device/sim/exec/Cluster.h"
#include "runtime/device/sim/exec/SharedChecks.h"

namespace llmopt::sim {

namespace {

constexpr int kPoison = 0xff;
constexpr uint32_t kWord = 16; ///< bulk copies move multiples of it

/// Counts bytes of global memory as accesses of 16 bytes or less.
class Recorder {
public:
  Recorder(Warp &warp, AccessKind kind) : warp(warp), kind(kind) {}
  ~Recorder() { flush(); }

  void add(uint64_t address, uint32_t bytes) {
    while (bytes) {
      uint64_t most = std::min<uint64_t>(std::bit_floor(bytes), kWord);
      auto size = static_cast<uint32_t>(std::min<uint64_t>(address & (~address + 1), most));
      if (size != width || count == kLanes)
        flush();
      width = size;
      pieces.add(count++, address);
      address += size;
      bytes -= size;
    }
  }

private:
  void flush() {
    if (count)
      recordGlobal(warp, pieces, width, kind);
    pieces = {};
    count = 0;
  }

  Warp &warp;
  AccessKind kind;
  LaneAddresses pieces;
  uint32_t count = 0, width = 0;
};

/// That shared memory has the bytes of the copy, and where it must begin.
bool checkShared(Warp &warp, uint32_t lane, const BulkCopy &copy) {
  uint32_t align = copy.tensor ? 128 : kWord;
  if (copy.shared % align) {
    warp.fault(FaultKind::Misaligned, lane, copy.shared,
               fmt::format("a bulk copy with shared memory at an address that is no multiple of {}",
                           align));
    return false;
  }
  uint32_t size = warp.block->launch().sharedBytes;
  if (copy.shared <= size && copy.bytes <= size - copy.shared)
    return true;
  warp.fault(FaultKind::SharedOutOfBounds, lane, copy.shared,
             fmt::format("a bulk copy of {} bytes at offset {} of shared memory; it has {} bytes",
                         copy.bytes, copy.shared, size));
  return false;
}

/// The bytes in global memory, of tensors those inside.
bool checkGlobal(Warp &warp, uint32_t lane, const BulkCopy &copy, AccessKind kind) {
  if (!copy.tensor && copy.global % kWord) {
    warp.fault(FaultKind::Misaligned, lane, copy.global,
               fmt::format("a bulk copy with global memory at an address that is no multiple of {}",
                           kWord),
               warp.block->launch().memory->describe(copy.global));
    return false;
  }
  Recorder recorder(warp, kind);
  return copy.forEachPiece([&](uint64_t global, uint32_t, uint32_t bytes) {
    if (!global)
      return true;
    if (!warp.block->global(warp, lane, global, bytes, writes(kind)))
      return false;
    recorder.add(global, bytes);
    return !warp.faulted;
  });
}

/// What elements outside a tensor read as.
void fill(std::byte *to, uint32_t bytes, const TensorMap &map) {
  if (map.fill == TensorFill::Zero) {
    std::memset(to, 0, bytes);
    return;
  }
  for (uint32_t i = 0; i < bytes; ++i) // the NaN with all bits of the mantissa set
    to[i] = std::byte{(i + 1) % sizeOf(map.type) ? uint8_t{0xff} : uint8_t{0x7f}};
}

/// Bytes of a copy, or of a reduction, to their place.
void put(std::byte *to, const std::byte *from, uint32_t bytes, Combine combine,
         uint32_t elementBytes) {
  if (!combine) {
    std::memcpy(to, from, bytes);
    return;
  }
  for (uint32_t at = 0; at < bytes; at += elementBytes) {
    uint64_t old = 0, operand = 0;
    std::memcpy(&old, to + at, elementBytes);
    std::memcpy(&operand, from + at, elementBytes);
    uint64_t value = combine(old, operand, 0);
    std::memcpy(to + at, &value, elementBytes);
  }
}

/// A range of shared memory that something will write for the lane, which an mbarrier tells
/// the end of.
struct Target {
  Block &block;
  uint32_t address, bytes;
  MBarrier &barrier;
  bool reduces;
};

/// True if the lane may begin to.
bool claim(Warp &warp, uint32_t lane, const Target &to, bool generic = false) {
  SharedChecks *checks = to.block.checks();
  return !checks ||
         checks->bulkWrite(
             warp, lane, to.address, to.bytes,
             {to.barrier.agent, static_cast<uint32_t>(to.barrier.phase) + 1, to.reduces, generic});
}

void queue(const Target &to, std::function<void()> move) {
  if (!to.reduces)
    std::memset(to.block.shared() + to.address, kPoison, to.bytes);
  AsyncArrival arrival;
  arrival.bytes = to.bytes;
  arrival.deliver = [&block = to.block, address = to.address, bytes = to.bytes,
                     move = std::move(move)] {
    move();
    if (SharedChecks *checks = block.checks())
      checks->delivered(address, bytes);
  };
  to.barrier.block->mbarriers.add(to.barrier, std::move(arrival));
}

void move(Warp &warp, const BulkStore &store) {
  const std::byte *shared = warp.block->shared();
  store.copy.forEachPiece([&](uint64_t global, uint32_t from, uint32_t bytes) {
    if (global)
      put(reinterpret_cast<std::byte *>(global), shared + from, bytes, store.copy.combine,
          store.copy.elementBytes);
    return true;
  });
}

} // namespace

bool startLoad(Warp &warp, uint32_t lane, const BulkCopy &copy, Block &target, MBarrier &barrier) {
  Target to{target, copy.shared, copy.bytes, barrier, false};
  if (!checkShared(warp, lane, copy) || !checkGlobal(warp, lane, copy, AccessKind::Load) ||
      !claim(warp, lane, to))
    return false;
  queue(to, [&target, copy] {
    std::byte *to = target.shared();
    copy.forEachPiece([&](uint64_t global, uint32_t at, uint32_t bytes) {
      if (global)
        std::memcpy(to + at, reinterpret_cast<const void *>(global), bytes);
      else
        fill(to + at, bytes, copy.map);
      return true;
    });
  });
  return true;
}

bool startRemoteStore(Warp &warp, uint32_t lane, const BulkCopy &copy, Block &target,
                      MBarrier &barrier) {
  BulkCopy source = copy;
  source.shared = static_cast<uint32_t>(std::min<uint64_t>(copy.global, ~uint32_t{0}));
  Target to{target, copy.shared, copy.bytes, barrier, copy.combine != nullptr};
  if (!checkShared(warp, lane, copy) || !checkShared(warp, lane, source) || !claim(warp, lane, to))
    return false;
  if (SharedChecks *checks = warp.block->checks())
    if (!checks->agentRead(warp, 1u << lane, source.shared, copy.bytes,
                           warp.block->clocks()->bulkReadsOf(warp.agent), 0))
      return false;
  Block *from = warp.block;
  queue(to, [&target, from, copy] {
    put(target.shared() + copy.shared, from->shared() + copy.global, copy.bytes, copy.combine,
        copy.elementBytes);
  });
  return true;
}

bool startAsyncStore(Warp &warp, uint32_t lane, const AsyncValue &value, Block &target,
                     MBarrier &barrier) {
  Target to{target, value.address, value.bytes, barrier, value.combine != nullptr};
  if (!claim(warp, lane, to, /*generic=*/true))
    return false;
  queue(to, [&target, value] {
    put(target.shared() + value.address, value.data.data(), value.bytes, value.combine,
        value.bytes);
  });
  return true;
}

bool startStore(Warp &warp, uint32_t lane, const BulkCopy &copy) {
  AccessKind kind = copy.combine ? AccessKind::Reduction : AccessKind::Store;
  if (!checkShared(warp, lane, copy) || !checkGlobal(warp, lane, copy, kind))
    return false;
  ++warp.bulkTime;
  if (SharedChecks *checks = warp.block->checks())
    if (!checks->agentRead(warp, 1u << lane, copy.shared, copy.bytes,
                           warp.block->clocks()->bulkReadsOf(warp.agent), warp.bulkTime))
      return false;
  warp.bulkStores.push_back({copy, lane, warp.bulkCommitted[lane], warp.bulkTime, warp.pc});
  return true;
}

void waitForStores(Warp &warp, LaneMask lanes, uint32_t pending) {
  uint32_t open = warp.bulkTime + 1; // the first store that is still under way
  std::erase_if(warp.bulkStores, [&](const BulkStore &store) {
    if (!has(lanes, store.lane) || store.group + pending >= warp.bulkCommitted[store.lane]) {
      open = std::min(open, store.time);
      return false;
    }
    move(warp, store);
    return true;
  });
  if (Clocks *clocks = warp.block->clocks())
    clocks->complete(warp.agent, clocks->bulkReadsOf(warp.agent), open - 1);
}

void finishBulkStores(Warp &warp) {
  for (const BulkStore &store : warp.bulkStores)
    move(warp, store);
  if (warp.bulkStores.empty() || !warp.block->launch().strict)
    return;
  warp.pc = warp.bulkStores.front().pc;
  warp.fault(FaultKind::UnfinishedCopy, warp.bulkStores.front().lane, std::nullopt,
             "the block has ended while this copy may still read its shared memory: nobody "
             "waited for it");
}

} // namespace llmopt::sim

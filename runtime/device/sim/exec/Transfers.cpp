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
bool checkGlobal(Warp &warp, uint32_t lane, const BulkCopy &copy, bool write) {
  if (!copy.tensor && copy.global % kWord) {
    warp.fault(FaultKind::Misaligned, lane, copy.global,
               fmt::format("a bulk copy with global memory at an address that is no multiple of {}",
                           kWord),
               warp.block->launch().memory->describe(copy.global));
    return false;
  }
  Recorder recorder(warp, write ? AccessKind::Store : AccessKind::Load);
  return copy.forEachPiece([&](uint64_t global, uint32_t, uint32_t bytes) {
    if (!global)
      return true;
    if (!warp.block->global(warp, lane, global, bytes, write))
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

void queue(const BulkCopy &copy, Block &target, MBarrier &barrier, std::function<void()> move) {
  std::memset(target.shared() + copy.shared, kPoison, copy.bytes);
  AsyncArrival arrival;
  arrival.bytes = copy.bytes;
  arrival.deliver = [&target, copy, move = std::move(move)] {
    move();
    if (SharedChecks *checks = target.checks())
      checks->delivered(copy.shared, copy.bytes);
  };
  barrier.block->mbarriers.add(barrier, std::move(arrival));
}

bool claim(Warp &warp, uint32_t lane, const BulkCopy &copy, Block &target,
           const MBarrier &barrier) {
  SharedChecks *checks = target.checks();
  return !checks || checks->bulkWrite(warp, lane, copy.shared, copy.bytes, barrier.agent,
                                      static_cast<uint32_t>(barrier.phase) + 1);
}

void move(Warp &warp, const BulkStore &store) {
  const std::byte *shared = warp.block->shared();
  store.copy.forEachPiece([&](uint64_t global, uint32_t from, uint32_t bytes) {
    if (global)
      std::memcpy(reinterpret_cast<void *>(global), shared + from, bytes);
    return true;
  });
}

} // namespace

bool startLoad(Warp &warp, uint32_t lane, const BulkCopy &copy, Block &target, MBarrier &barrier) {
  if (!checkShared(warp, lane, copy) || !checkGlobal(warp, lane, copy, false) ||
      !claim(warp, lane, copy, target, barrier))
    return false;
  queue(copy, target, barrier, [&target, copy] {
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
  if (!checkShared(warp, lane, copy) || !checkShared(warp, lane, source) ||
      !claim(warp, lane, copy, target, barrier))
    return false;
  if (SharedChecks *checks = warp.block->checks())
    if (!checks->agentRead(warp, 1u << lane, source.shared, copy.bytes,
                           warp.block->clocks()->bulkReadsOf(warp.agent), 0))
      return false;
  Block *from = warp.block;
  queue(copy, target, barrier, [&target, from, copy] {
    std::memcpy(target.shared() + copy.shared, from->shared() + copy.global, copy.bytes);
  });
  return true;
}

bool startStore(Warp &warp, uint32_t lane, const BulkCopy &copy) {
  if (!checkShared(warp, lane, copy) || !checkGlobal(warp, lane, copy, true))
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

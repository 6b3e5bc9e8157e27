#include "runtime/device/sim/exec/GlobalChecks.h"

#include <algorithm>

namespace llmopt::sim {

namespace {

constexpr uint64_t kPageBytes = 4096;

// Who touched a byte: 1 + the block, 0 for none.
constexpr uint32_t kStrong = 1u << 31;     ///< the access was atomic
constexpr uint32_t kSeveral = kStrong - 1; ///< more than one block has read

uint32_t blockOf(uint32_t who) { return (who & ~kStrong) - 1; }

} // namespace

struct alignas(8) GlobalChecks::Mark {
  uint32_t who; ///< of several who read, `pc` is of one of them
  uint32_t pc;
};

/// Who wrote and read each byte last, and at which time of that block's.
struct GlobalChecks::Page {
  std::array<std::atomic<Mark>, kPageBytes> writer, reader;
  std::unique_ptr<std::array<uint32_t, kPageBytes>> writeTime, readTime; ///< of ordered grids
};

GlobalChecks::GlobalChecks(const GlobalMemory &memory, std::array<uint32_t, 3> grid, bool ordered)
    : memory(memory), grid(grid), ordered(ordered), pages(memory.buffers().size()) {
  for (size_t i = 0; i < pages.size(); ++i) {
    const GlobalMemory::Buffer &buffer = memory.buffers()[i];
    if (buffer.access == Access::ReadWrite)
      pages[i] = std::vector<std::atomic<Page *>>((buffer.end - buffer.begin - 1) / kPageBytes + 1);
  }
}

GlobalChecks::~GlobalChecks() {
  for (auto &buffer : pages)
    for (std::atomic<Page *> &page : buffer)
      delete page.load();
}

GlobalChecks::Page &GlobalChecks::pageOf(size_t buffer, uint64_t number) {
  std::atomic<Page *> &slot = pages[buffer][number];
  if (Page *page = slot.load(std::memory_order_acquire))
    return *page;
  auto fresh = std::make_unique<Page>();
  if (ordered) {
    fresh->writeTime = std::make_unique<std::array<uint32_t, kPageBytes>>();
    fresh->readTime = std::make_unique<std::array<uint32_t, kPageBytes>>();
  }
  Page *expected = nullptr;
  if (slot.compare_exchange_strong(expected, fresh.get()))
    return *fresh.release();
  return *expected;
}

bool GlobalChecks::before(uint32_t who, uint32_t time, uint32_t block) const {
  if (!ordered)
    return false;
  auto mine = known.find(block);
  if (mine == known.end())
    return false;
  auto upTo = mine->second.find(blockOf(who));
  return upTo != mine->second.end() && time <= upTo->second;
}

bool GlobalChecks::report(Warp &warp, uint32_t lane, uint64_t address, uint32_t bytes, bool write,
                          std::string_view what, const Mark &other) const {
  std::string who = "several blocks, one of them";
  if (uint32_t block = blockOf(other.who); block != blockOf(kSeveral))
    who = fmt::format("block ({}, {}, {})", block % grid[0], block / grid[0] % grid[1],
                      block / grid[0] / grid[1]);
  warp.fault(FaultKind::GlobalRace, lane, address,
             fmt::format("{} of {} bytes of global memory races with a {} of {} at {}: nothing "
                         "orders the two",
                         write ? "store" : "load", bytes, what, who, warp.lineOf(other.pc)),
             memory.describe(address));
  return false;
}

bool GlobalChecks::read(Warp &warp, uint32_t lane, uint64_t address, uint32_t bytes, bool strong) {
  size_t number = warp.block->bufferAt(address);
  if (pages[number].empty())
    return true;
  uint32_t block = warp.block->index(), me = block + 1;
  for (uint32_t i = 0; i < bytes; ++i) {
    uint64_t offset = address + i - memory.buffers()[number].begin, at = offset % kPageBytes;
    Page &page = pageOf(number, offset / kPageBytes);
    Mark reader = page.reader[at].load();
    if (!strong) { // of strong loads only what they must not see counts
      bool replace = reader.who == 0 || (ordered && reader.who != kSeveral &&
                                         before(reader.who, (*page.readTime)[at], block));
      while (reader.who != me && reader.who != kSeveral &&
             !page.reader[at].compare_exchange_weak(
                 reader, {replace || !reader.who ? me : kSeveral, warp.pc}))
        replace = false;
      if (ordered)
        (*page.readTime)[at] = times[block] + 1;
    }
    Mark writer = page.writer[at].load();
    if (writer.who && blockOf(writer.who) != block && !(strong && writer.who & kStrong) &&
        !before(writer.who, ordered ? (*page.writeTime)[at] : 0, block))
      return report(warp, lane, address, bytes, false, "store", writer);
  }
  return true;
}

bool GlobalChecks::write(Warp &warp, uint32_t lane, uint64_t address, uint32_t bytes, bool strong) {
  size_t number = warp.block->bufferAt(address);
  uint32_t block = warp.block->index(), me = (block + 1) | (strong ? kStrong : 0);
  for (uint32_t i = 0; i < bytes; ++i) {
    uint64_t offset = address + i - memory.buffers()[number].begin, at = offset % kPageBytes;
    Page &page = pageOf(number, offset / kPageBytes);
    if (!ordered && page.writer[at].load(std::memory_order_relaxed).who == me)
      continue; // whoever read it since has seen that
    Mark writer = page.writer[at].exchange({me, warp.pc});
    if (writer.who && blockOf(writer.who) != block && !(strong && writer.who & kStrong) &&
        !before(writer.who, ordered ? (*page.writeTime)[at] : 0, block))
      return report(warp, lane, address, bytes, true, "store", writer);
    if (ordered)
      (*page.writeTime)[at] = times[block] + 1;
    Mark reader = page.reader[at].load();
    if (reader.who && blockOf(reader.who) != block &&
        !before(reader.who, ordered ? (*page.readTime)[at] : 0, block))
      // In an ordered grid readers that were one after another are not all kept.
      if (!ordered || reader.who != kSeveral)
        return report(warp, lane, address, bytes, true, "load", reader);
  }
  return true;
}

/// Who comes to the address later knows what those did who came before.
void GlobalChecks::handOver(uint32_t block, uint64_t address, AccessKind kind) {
  BlockTimes &there = handovers[address], &mine = known[block];
  auto join = [](BlockTimes &into, const BlockTimes &from) {
    for (auto [other, time] : from)
      into[other] = std::max(into[other], time);
  };
  if (kind != AccessKind::StrongStore)
    join(mine, there);
  if (kind == AccessKind::StrongLoad)
    return;
  join(there, mine);
  there[block] = ++times[block];
}

void GlobalChecks::access(Warp &warp, const LaneAddresses &addresses, uint32_t bytes,
                          AccessKind kind) {
  bool hands = kind == AccessKind::Atomic || kind == AccessKind::StrongLoad ||
               kind == AccessKind::StrongStore;
  bool strong = hands || kind == AccessKind::Reduction;
  for (LaneMask rest = addresses.lanes; rest; rest &= rest - 1) {
    auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    uint64_t address = addresses.at[lane];
    if (!writes(kind) ? !read(warp, lane, address, bytes, strong)
                      : !write(warp, lane, address, bytes, strong))
      return;
    if (hands && ordered)
      handOver(warp.block->index(), address, kind);
  }
}

} // namespace llmopt::sim

#include "runtime/device/sim/exec/SharedToucher.h"

#include <algorithm>

namespace llmopt::sim {

SharedChecks::SharedChecks(uint32_t bytes, Clocks *clocks, uint32_t blocks, uint32_t warps,
                           bool async)
    : clocks(clocks), warps(warps), all(blocks * warps), readers(async ? 3 * all : all),
      lines((bytes + kLine - 1) / kLine), stride((sizeof(Record) + readers * sizeof(Read)) / 4) {
  start();
}

void SharedChecks::start() {
  handovers.clear();
  used = lines;
  words.assign(size_t{used} * stride, 0);
  for (uint32_t line = 0; line < lines; ++line)
    record(line).shift = kLineShift;
}

void SharedChecks::split(uint32_t line, uint8_t shift) {
  // A line that became whole again keeps its pieces, whose size the first knows.
  uint8_t before = record(line).shift;
  bool whole = before == kLineShift;
  uint32_t source = whole ? line : record(line).first, first = record(line).first;
  if (whole && first && record(first).shift <= shift) {
    shift = record(first).shift;
  } else {
    first = used;
    used += kLine >> shift;
    if (words.size() < size_t{used} * stride)
      words.resize(std::max(words.size() * 3 / 2, size_t{used} * stride));
  }
  for (uint32_t i = 0; i < kLine >> shift; ++i) {
    std::copy_n(&words[size_t{source + (i << shift >> before)} * stride], stride,
                &words[size_t{first + i} * stride]);
    record(first + i).shift = shift;
  }
  record(line).shift = shift;
  record(line).first = first;
}

bool SharedChecks::reportUnwritten(const Toucher &by, uint32_t address, uint32_t bytes) {
  by.warp.fault(FaultKind::UninitialisedShared, by.laneForFault(), address,
                fmt::format("{} of {} bytes of shared memory that nothing has written yet",
                            wordFor(by.kind), bytes));
  return false;
}

bool SharedChecks::reportFlight(const Toucher &by, const Record &record, uint32_t address,
                                uint32_t bytes) {
  if (record.state & kBulk)
    return reportBulk(by, record, address, bytes);
  bool own = record.writer == by.warp.agent && by.lanes == lanesOf(record.lane);
  by.warp.fault(FaultKind::UnfinishedCopy, by.laneForFault(), address,
                fmt::format("{} of {} bytes of shared memory to which the copy that {} {} "
                            "began at {} is still under way: {} has not waited for it",
                            wordFor(by.kind), bytes, nameOf(record.writer),
                            describeLanes(lanesOf(record.lane)), by.warp.lineOf(record.pc),
                            own ? "the same thread" : "that thread"));
  return false;
}

bool SharedChecks::reportRace(const Toucher &by, uint32_t address, uint32_t bytes,
                              std::string_view what, uint32_t warp, LaneMask lanes, uint32_t pc,
                              std::string_view hint) {
  by.warp.fault(FaultKind::SharedRace, by.laneForFault(), address,
                fmt::format("{} of {} bytes of shared memory races with the {} of {} {} at {}{}",
                            wordFor(by.kind), bytes, what, nameOf(warp), describeLanes(lanes),
                            by.warp.lineOf(pc), hint));
  return false;
}

namespace {

constexpr std::string_view kNoOrder = ": nothing orders the two";
constexpr std::string_view kNoBarrier =
    ": its thread has waited for the copy, but there is no barrier after that wait";

} // namespace

inline void SharedChecks::wasRead(const Toucher &by, Record &record) {
  Read &read = reads(record)[by.warp.agent];
  read.lanes = read.time == by.time ? read.lanes | by.lanes : by.lanes;
  read.time = by.time;
  read.pc = by.warp.pc;
}

inline bool SharedChecks::mayRead(const Toucher &by, Record &record, uint32_t address,
                                  uint32_t bytes) {
  if (!(record.state & kWritten)) [[unlikely]]
    return reportUnwritten(by, address, bytes);
  if (record.state & kFlight) [[unlikely]]
    return reportFlight(by, record, address, bytes);
  if (!ordered(by, record) && !(by.strong && record.state & kStrong)) [[unlikely]]
    return reportWriter(by, record, address, bytes);
  if (!by.strong)
    wasRead(by, record);
  return true;
}

bool SharedChecks::reportWriter(const Toucher &by, const Record &record, uint32_t address,
                                uint32_t bytes) {
  if (record.state & kBulk)
    return reportBulk(by, record, address, bytes);
  return reportRace(by, address, bytes, record.state & kAsync ? "copy" : "store", record.writer,
                    lanesOf(record.lane), record.pc, record.state & kAsync ? kNoBarrier : kNoOrder);
}

bool SharedChecks::mayWrite(const Toucher &by, Record &record, uint32_t address, uint32_t bytes) {
  if (record.state & kFlight) [[unlikely]]
    return reportFlight(by, record, address, bytes);
  if (record.state & kWritten && !ordered(by, record) && !(by.strong && record.state & kStrong))
      [[unlikely]]
    return reportWriter(by, record, address, bytes);
  const Read *read = reads(record);
  for (uint32_t reader = 0; reader < readers; ++reader)
    if (!clocks->before(reader, read[reader].lanes, read[reader].time, by.warp.agent, by.lanes))
        [[unlikely]]
      if (!reportReader(by, reader, read[reader], address, bytes))
        return false;
  return true;
}

void SharedChecks::wasWritten(const Toucher &by, uint32_t address, uint32_t bytes) {
  uint8_t state = kWritten;
  if (by.strong)
    state |= kStrong;
  if (by.kind == AccessKind::AsyncStore)
    state |= kFlight | kAsync;
  // All pieces of the line get the same record: it is whole again.
  if (bytes == kLine && record(address / kLine).shift != kLineShift) {
    Record &line = record(address / kLine);
    Record &piece = record(line.first);
    std::copy_n(reads(piece), readers, reads(line));
    line.shift = kLineShift;
  }
  forEachRecord(address, bytes, [&](Record &record) {
    record.time = by.time;
    record.pc = by.warp.pc;
    record.writer = static_cast<uint16_t>(by.warp.agent);
    record.lane = by.lane;
    record.state = state;
    return true;
  });
}

bool SharedChecks::load(Toucher &by, LaneMask lanes, uint32_t address, uint32_t bytes) {
  constexpr uint8_t kMatters = kWritten | kFlight;
  by.lanes = lanes;
  bool sound = forEachRecord(address, bytes, [&](Record &record) {
    if ((record.state & kMatters) != kWritten || !ordered(by, record)) [[unlikely]]
      return false;
    wasRead(by, record);
    return true;
  });
  if (sound) [[likely]]
    return true;
  for (LaneMask rest = lanes; rest; rest &= rest - 1) { // which of them it is
    by.lane = static_cast<uint8_t>(std::countr_zero(rest));
    by.lanes = 1u << by.lane;
    if (!forEachRecord(address, bytes,
                       [&](Record &record) { return mayRead(by, record, address, bytes); }))
      return false;
  }
  return true;
}

void SharedChecks::loads(Warp &warp, const LaneAddresses &addresses, uint32_t bytes) {
  Toucher by{warp, clocks->now(warp.agent), 0, 0, AccessKind::Load};
  for (LaneMask rest = addresses.lanes; rest;) {
    uint64_t address = addresses.at[std::countr_zero(rest)];
    LaneMask same = 0;
    do {
      same |= rest & -rest;
      rest &= rest - 1;
    } while (rest && addresses.at[std::countr_zero(rest)] == address);
    if (!load(by, same, static_cast<uint32_t>(address), bytes))
      return;
  }
}

void SharedChecks::access(Warp &warp, const LaneAddresses &addresses, uint32_t bytes,
                          AccessKind kind) {
  if (kind == AccessKind::Load)
    return loads(warp, addresses, bytes);
  Toucher by{warp, clocks->now(warp.agent), 0, 0, kind};
  bool write = writes(kind);
  if (by.strong)
    synchronise(warp, addresses, kind);
  for (LaneMask rest = addresses.lanes; rest; rest &= rest - 1) {
    by.lane = static_cast<uint8_t>(std::countr_zero(rest));
    by.lanes = 1u << by.lane;
    auto address = static_cast<uint32_t>(addresses.at[by.lane]);
    if (!forEachRecord(address, bytes, [&](Record &record) {
          if (kind == AccessKind::Atomic && !(record.state & kWritten))
            return reportUnwritten(by, address, bytes);
          return write ? mayWrite(by, record, address, bytes) : mayRead(by, record, address, bytes);
        }))
      return;
  }
  if (!write)
    return;
  // Lanes of one store do not race with each other here: see `store`.
  for (LaneMask rest = addresses.lanes; rest; rest &= rest - 1) {
    by.lane = static_cast<uint8_t>(std::countr_zero(rest));
    auto address = static_cast<uint32_t>(addresses.at[by.lane]);
    if (kind == AccessKind::AsyncStore) { // but two copies to one place do
      by.lanes = 1u << by.lane;
      if (!forEachRecord(address, bytes, [&](Record &record) {
            return !(record.state & kFlight) || reportFlight(by, record, address, bytes);
          }))
        return;
    }
    wasWritten(by, address, bytes);
  }
}

void SharedChecks::accessRows(Warp &warp, const LaneAddresses &rows, AccessKind kind) {
  Toucher by{warp, clocks->now(warp.agent), kAllLanes, kAll, kind};
  bool write = writes(kind);
  for (LaneMask rest = rows.lanes; rest; rest &= rest - 1) {
    auto address = static_cast<uint32_t>(rows.at[std::countr_zero(rest)]);
    if (!forEachRecord(address, kLine, [&](Record &record) {
          return write ? mayWrite(by, record, address, kLine) : mayRead(by, record, address, kLine);
        }))
      return;
    if (write)
      wasWritten(by, address, kLine);
  }
}

void SharedChecks::arrive(Warp &warp, const AsyncCopy &copy) {
  arrive(copy, clocks->now(warp.agent));
}

void SharedChecks::arrive(const AsyncCopy &copy, uint32_t time) {
  forEachRecord(copy.target, copy.bytes, [&](Record &record) {
    record.state &= ~kFlight;
    record.time = time;
    return true;
  });
}

void SharedChecks::synchronise(Warp &warp, const LaneAddresses &addresses, AccessKind kind) {
  forEachLane(addresses.lanes, [&](uint32_t lane) {
    VectorClock &handover = handovers[static_cast<uint32_t>(addresses.at[lane])];
    if (kind != AccessKind::StrongStore)
      clocks->acquire(warp.agent, handover);
    if (kind != AccessKind::StrongLoad)
      clocks->release(warp.agent, handover);
  });
  clocks->syncLanes(warp.agent, warp.alive, warp.alive);
}

} // namespace llmopt::sim

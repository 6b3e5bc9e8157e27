#include "runtime/device/sim/exec/SharedChecks.h"

#include <algorithm>

namespace llmopt::sim {

namespace {

// Record::state.
constexpr uint8_t kWritten = 1;
constexpr uint8_t kStrong = 2; ///< by an atomic or a volatile store
constexpr uint8_t kFlight = 4; ///< an asynchronous copy is under way
constexpr uint8_t kAsync = 8;  ///< written by an asynchronous copy

constexpr uint8_t kAll = 32; ///< Record::lane
constexpr uint32_t kLine = 16, kLineShift = 4;

LaneMask lanesOf(uint8_t lane) { return lane == kAll ? kAllLanes : 1u << lane; }

std::string_view wordFor(AccessKind kind) {
  switch (kind) {
  case AccessKind::Load:
  case AccessKind::StrongLoad:
  case AccessKind::AsyncLoad:
    return "load";
  case AccessKind::Atomic:
    return "atomic";
  case AccessKind::AsyncStore:
    return "asynchronous copy";
  default:
    return "store";
  }
}

bool isStrong(AccessKind kind) {
  return kind == AccessKind::Atomic || kind == AccessKind::StrongLoad ||
         kind == AccessKind::StrongStore;
}

std::string describeLanes(LaneMask lanes) {
  if (std::has_single_bit(lanes))
    return fmt::format("lane {}", std::countr_zero(lanes));
  return lanes == kAllLanes ? "all lanes" : fmt::format("lanes {:#010x}", lanes);
}

} // namespace

/// Who accesses, and how.
struct SharedChecks::Toucher {
  Warp &warp;
  uint32_t time;
  LaneMask lanes;
  uint8_t lane; ///< kAll: the warp together
  AccessKind kind;
  bool strong = isStrong(kind);

  std::optional<uint32_t> laneForFault() const {
    return lane == kAll ? std::nullopt : std::optional<uint32_t>(lane);
  }
};

SharedChecks::SharedChecks(uint32_t bytes, uint32_t warps)
    : warps(warps), lines((bytes + kLine - 1) / kLine),
      stride((sizeof(Record) + warps * sizeof(Read)) / 4) {
  start();
}

void SharedChecks::start() {
  clocks.start(warps);
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

template <typename F> bool SharedChecks::forEachRecord(uint32_t address, uint32_t bytes, F &&body) {
  uint32_t line = address / kLine, end = address + bytes;
  do {
    uint32_t from = address % kLine, size = std::min(end - address, kLine - from);
    Record *whole = &record(line);
    if (whole->shift == kLineShift && size == kLine) {
      if (!body(*whole))
        return false;
    } else {
      auto need = static_cast<uint8_t>(std::countr_zero(size | from));
      if (need < whole->shift)
        split(line, need);
      uint32_t shift = record(line).shift, first = record(line).first;
      for (uint32_t i = from >> shift; i < (from + size) >> shift; ++i)
        if (!body(record(first + i)))
          return false;
    }
    address += size;
    ++line;
  } while (address < end);
  return true;
}

bool SharedChecks::reportUnwritten(const Toucher &by, uint32_t address, uint32_t bytes) {
  by.warp.fault(FaultKind::UninitialisedShared, by.laneForFault(), address,
                fmt::format("{} of {} bytes of shared memory that nothing has written yet",
                            wordFor(by.kind), bytes));
  return false;
}

bool SharedChecks::reportFlight(const Toucher &by, const Record &record, uint32_t address,
                                uint32_t bytes) {
  bool own = record.warp == by.warp.index && by.lanes == lanesOf(record.lane);
  by.warp.fault(
      FaultKind::UnfinishedCopy, by.laneForFault(), address,
      fmt::format("{} of {} bytes of shared memory to which the copy that warp {} {} "
                  "began at line {} is still under way: {} has not waited for it",
                  wordFor(by.kind), bytes, record.warp, describeLanes(lanesOf(record.lane)),
                  by.warp.kernel->places[record.pc].line, own ? "the same thread" : "that thread"));
  return false;
}

bool SharedChecks::reportRace(const Toucher &by, uint32_t address, uint32_t bytes,
                              std::string_view what, uint32_t warp, LaneMask lanes, uint32_t pc,
                              std::string_view hint) {
  by.warp.fault(FaultKind::SharedRace, by.laneForFault(), address,
                fmt::format("{} of {} bytes of shared memory races with the {} of warp {} {} at "
                            "line {}{}",
                            wordFor(by.kind), bytes, what, warp, describeLanes(lanes),
                            by.warp.kernel->places[pc].line, hint));
  return false;
}

namespace {

constexpr std::string_view kNoOrder = ": nothing orders the two";
constexpr std::string_view kNoBarrier =
    ": its thread has waited for the copy, but there is no barrier after that wait";

} // namespace

inline bool SharedChecks::mayRead(const Toucher &by, Record &record, uint32_t address,
                                  uint32_t bytes) {
  if (!(record.state & kWritten)) [[unlikely]]
    return reportUnwritten(by, address, bytes);
  if (record.state & kFlight) [[unlikely]]
    return reportFlight(by, record, address, bytes);
  LaneMask writers = lanesOf(record.lane);
  if (!clocks.before(record.warp, writers, record.time, by.warp.index, by.lanes) &&
      !(by.strong && record.state & kStrong)) [[unlikely]]
    return reportRace(by, address, bytes, record.state & kAsync ? "copy" : "store", record.warp,
                      writers, record.pc, record.state & kAsync ? kNoBarrier : kNoOrder);
  if (by.strong)
    return true;
  Read &read = reads(record)[by.warp.index];
  read.lanes = read.time == by.time ? read.lanes | by.lanes : by.lanes;
  read.time = by.time;
  read.pc = by.warp.pc;
  return true;
}

inline bool SharedChecks::mayWrite(const Toucher &by, Record &record, uint32_t address,
                                   uint32_t bytes) {
  if (record.state & kFlight) [[unlikely]]
    return reportFlight(by, record, address, bytes);
  LaneMask writers = lanesOf(record.lane);
  if (record.state & kWritten &&
      !clocks.before(record.warp, writers, record.time, by.warp.index, by.lanes) &&
      !(by.strong && record.state & kStrong)) [[unlikely]]
    return reportRace(by, address, bytes, record.state & kAsync ? "copy" : "store", record.warp,
                      writers, record.pc, record.state & kAsync ? kNoBarrier : kNoOrder);
  const Read *read = reads(record);
  for (uint32_t warp = 0; warp < warps; ++warp)
    if (!clocks.before(warp, read[warp].lanes, read[warp].time, by.warp.index, by.lanes))
        [[unlikely]]
      return reportRace(by, address, bytes, "load", warp, read[warp].lanes, read[warp].pc,
                        kNoOrder);
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
    std::copy_n(reads(piece), warps, reads(line));
    line.shift = kLineShift;
  }
  forEachRecord(address, bytes, [&](Record &record) {
    record.time = by.time;
    record.pc = by.warp.pc;
    record.warp = static_cast<uint8_t>(by.warp.index);
    record.lane = by.lane;
    record.state = state;
    return true;
  });
}

void SharedChecks::access(Warp &warp, const LaneAddresses &addresses, uint32_t bytes,
                          AccessKind kind) {
  Toucher by{warp, clocks.now(warp.index), 0, 0, kind};
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
  Toucher by{warp, clocks.now(warp.index), kAllLanes, kAll, kind};
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
  uint32_t now = clocks.now(warp.index);
  forEachRecord(copy.target, copy.bytes, [&](Record &record) {
    record.state &= ~kFlight;
    record.time = now;
    return true;
  });
}

void SharedChecks::synchronise(Warp &warp, const LaneAddresses &addresses, AccessKind kind) {
  forEachLane(addresses.lanes, [&](uint32_t lane) {
    VectorClock &handover = handovers[static_cast<uint32_t>(addresses.at[lane])];
    if (kind != AccessKind::StrongStore)
      clocks.acquire(warp.index, handover);
    if (kind != AccessKind::StrongLoad)
      clocks.release(warp.index, handover);
  });
  clocks.syncLanes(warp.index, warp.alive, warp.alive);
}

} // namespace llmopt::sim

// What bulk copies and wgmma do to shared memory, and what others do to theirs.
#include "runtime/device/sim/exec/SharedToucher.h"

namespace llmopt::sim {

std::string SharedChecks::nameOf(uint32_t warp) const {
  if (all == warps)
    return fmt::format("warp {}", warp);
  return fmt::format("warp {} of block {} of the cluster", warp % warps, warp / warps);
}

std::string_view SharedChecks::nameOfCopy(const Warp &warp, uint32_t pc) {
  std::string_view text = warp.kernel->places[pc].text;
  for (std::string_view name : {"st.async", "red.async"})
    if (text.find(name) != std::string_view::npos)
      return name;
  return "bulk copy";
}

bool SharedChecks::reportBulk(const Toucher &by, const Record &record, uint32_t address,
                              uint32_t bytes) {
  by.warp.fault(FaultKind::UnfinishedCopy, by.laneForFault(), address,
                fmt::format("{} of {} bytes of shared memory that the {} begun at {} "
                            "writes: nothing here has waited for the copy's mbarrier",
                            wordFor(by.kind), bytes, nameOfCopy(by.warp, record.pc),
                            by.warp.lineOf(record.pc)));
  return false;
}

/// Returns true if it may be right after all.
bool SharedChecks::reportReader(const Toucher &by, uint32_t reader, const Read &read,
                                uint32_t address, uint32_t bytes) {
  auto line = [&] { return by.warp.lineOf(read.pc); };
  if (reader < all)
    return reportRace(by, address, bytes, "load", reader, read.lanes, read.pc,
                      ": nothing orders the two");
  uint32_t warp = reader % all;
  bool product = reader == clocks->productsOf(warp);
  if (product) {
    // All warps of a warpgroup take part in a wgmma, so that its end for one of them may
    // be its end for all: the ISA does not say.
    uint32_t first = warp - warp % warps % 4;
    for (uint32_t mate = first; mate < first + 4; ++mate)
      if (clocks->before(clocks->productsOf(mate), 0, read.time, by.warp.agent, 0)) {
        if (by.warp.warned(FaultKind::UnprovenRelease))
          return true;
        by.warp.warn(FaultKind::UnprovenRelease, by.laneForFault(), address,
                     fmt::format("{} of {} bytes of shared memory that the wgmma of {} at {} "
                                 "reads: what frees them follows the wait of {} only, and the "
                                 "warpgroup was not synchronised before; the ISA does not say "
                                 "that one warp's wait is enough",
                                 wordFor(by.kind), bytes, nameOf(warp), line(), nameOf(mate)));
        return !by.warp.faulted;
      }
  }
  if (clocks->before(reader, 0, read.time, warp, 0)) // its warp has waited, but we do not know
    return reportRace(by, address, bytes, product ? "wgmma" : "bulk copy", warp, kAllLanes, read.pc,
                      ": nothing orders this after the wait for it");
  by.warp.fault(product ? FaultKind::UnfinishedProduct : FaultKind::UnfinishedCopy,
                by.laneForFault(), address,
                fmt::format("{} of {} bytes of shared memory that the {} of {} at {} reads "
                            "and that it has not waited for",
                            wordFor(by.kind), bytes, product ? "wgmma" : "bulk copy", nameOf(warp),
                            line()));
  return false;
}

bool SharedChecks::bulkWrite(Warp &warp, uint32_t lane, uint32_t address, uint32_t bytes,
                             const BulkWrite &write) {
  Toucher by{warp, clocks->now(warp.agent), 1u << lane, static_cast<uint8_t>(lane),
             write.reduces ? AccessKind::Reduction : AccessKind::AsyncStore};
  for (uint32_t at = address, size = 0; at < address + bytes; at += size) {
    size = std::min(kLine - at % kLine, address + bytes - at);
    bool free = forEachRecord(at, size, [&](Record &record) {
      if (write.reduces && !(record.state & kWritten))
        return reportUnwritten(by, at, size);
      // Reductions are atomic, each by itself.
      constexpr uint8_t kReduced = kBulk | kStrong;
      if (write.reduces && (record.state & kReduced) == kReduced)
        return true;
      if (!mayWrite(by, record, at, size))
        return false;
      bool generic = record.state & kWritten && !(record.state & kBulk);
      if (!generic || write.generic ||
          clocks->fencedBefore(record.writer, lanesOf(record.lane), record.time, warp.agent))
        return true;
      warp.fault(FaultKind::MissingProxyFence, lane, at,
                 fmt::format("the bulk copy overwrites what {} stored at {}, without a "
                             "fence.proxy.async in between",
                             nameOf(record.writer), warp.lineOf(record.pc)));
      return false;
    });
    if (!free)
      return false;
    wasWritten(by, at, size);
    forEachRecord(at, size, [&](Record &record) {
      record.writer = static_cast<uint16_t>(write.agent);
      record.lane = kAll;
      record.time = write.time;
      record.state = kWritten | kFlight | kBulk | (write.reduces ? kStrong : 0);
      return true;
    });
  }
  return true;
}

void SharedChecks::delivered(uint32_t address, uint32_t bytes) {
  forEachRecord(address, bytes, [&](Record &record) {
    record.state &= ~kFlight;
    return true;
  });
}

void SharedChecks::postpone(uint32_t agent, uint32_t time) {
  for (uint32_t i = 0; i < used; ++i) {
    Record &r = record(i);
    if (r.state & kBulk && r.state & kFlight && r.writer == agent)
      r.time = time;
  }
}

bool SharedChecks::agentRead(Warp &warp, LaneMask lanes, uint32_t address, uint32_t bytes,
                             uint32_t agent, uint32_t time) {
  bool whole = lanes == kAllLanes;
  auto lane = static_cast<uint8_t>(whole ? kAll : std::countr_zero(lanes));
  Toucher by{warp, clocks->now(warp.agent), lanes, lane, AccessKind::AsyncLoad};
  for (uint32_t at = address; at < address + bytes; at += kLine) {
    bool readable = forEachRecord(at, kLine, [&](Record &record) {
      if (!(record.state & kWritten))
        return reportUnwritten(by, at, kLine);
      if (record.state & kFlight)
        return reportFlight(by, record, at, kLine);
      if (!ordered(by, record))
        return reportWriter(by, record, at, kLine);
      if (!(record.state & kBulk) &&
          !clocks->fencedBefore(record.writer, lanesOf(record.lane), record.time, warp.agent)) {
        warp.fault(FaultKind::MissingProxyFence, by.laneForFault(), at,
                   fmt::format("{} reads what {} stored at {}, without a fence.proxy.async "
                               "in between",
                               agent == clocks->productsOf(warp.agent) ? "wgmma" : "the bulk copy",
                               nameOf(record.writer), warp.lineOf(record.pc)));
        return false;
      }
      reads(record)[agent] = {time, kAllLanes, warp.pc};
      return true;
    });
    if (!readable)
      return false;
  }
  return true;
}

} // namespace llmopt::sim

// Who touches shared memory, and how: for the checks, and for what they say.
#pragma once

#include "runtime/device/sim/exec/SharedChecks.h"

#include <algorithm>

namespace llmopt::sim {

inline std::string_view wordFor(AccessKind kind) {
  switch (kind) {
  case AccessKind::Load:
  case AccessKind::StrongLoad:
  case AccessKind::AsyncLoad:
    return "load";
  case AccessKind::Atomic:
    return "atomic";
  case AccessKind::AsyncStore:
    return "asynchronous copy";
  case AccessKind::Reduction:
    return "asynchronous reduction";
  default:
    return "store";
  }
}

inline bool isStrong(AccessKind kind) {
  return kind == AccessKind::Atomic || kind == AccessKind::StrongLoad ||
         kind == AccessKind::StrongStore;
}

inline std::string describeLanes(LaneMask lanes) {
  if (std::has_single_bit(lanes))
    return fmt::format("lane {}", std::countr_zero(lanes));
  return lanes == kAllLanes ? "all lanes" : fmt::format("lanes {:#010x}", lanes);
}

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

inline bool SharedChecks::ordered(const Toucher &by, const Record &record) const {
  return clocks->before(record.writer, lanesOf(record.lane), record.time, by.warp.agent, by.lanes);
}

} // namespace llmopt::sim

// What a step has to do to the device's block tables and pages: the part of a
// StepInput that the block manager writes. Plain data, valid until the next
// `closeStep`.
//
// Order on the device: wait for `waits`, apply `deltas`, do `copies`, then the
// step's appends and reads.
#pragma once

#include <cstdint>
#include <span>

namespace llmopt::runtime::kv {

using StepId = uint32_t;
using PageId = int32_t;
using EventId = uint64_t;

/// Entry of a block table without a page: released, or never there.
inline constexpr PageId kNoPage = -1;

/// Entries [index, index + count) of a table become pages[first ...].
struct TableDelta {
  uint32_t tableSlot = 0, index = 0;
  uint32_t first = 0, count = 0;
  uint16_t group = 0;
  /// All entries of this table become kNoPage before: another sequence has the slot.
  bool clear = false;
};

/// A whole page, scales included, before anything of the step writes.
struct PageCopy {
  uint16_t group = 0;
  PageId from = kNoPage, to = kNoPage;
};

/// A page that nobody names any more; its content may be lost from now on.
struct FreedPage {
  uint16_t group = 0;
  PageId page = kNoPage;
};

struct StepTables {
  StepId step = 0;
  /// The receiver applies the deltas to tables of version `baseVersion` and then
  /// has `version`. With any other version it asks for a snapshot
  /// (`BlockManager::snapshot`).
  uint64_t baseVersion = 0, version = 0;
  std::span<const TableDelta> deltas;
  std::span<const PageId> pages;
  std::span<const PageCopy> copies;
  std::span<const EventId> waits;
  /// Pages that became free since the step before and still are (only with
  /// `ManagerOptions::reportFrees`). No unfinished step reads them.
  std::span<const FreedPage> freed;
};

} // namespace llmopt::runtime::kv

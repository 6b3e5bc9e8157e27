// What the planner takes and gives: plain data.
//
// Vocabulary. A *row tile* is up to tileRows packed rows of one sequence and KV
// head (see bundle/WorkItem.h); it becomes one work item, or several *splits*
// that each take a part of the keys and are merged afterwards. *Workers* are
// the lists that the items are dealt to; *threads* is how many of them run at a
// time.
#pragma once

#include "runtime/bundle/WorkItem.h"

#include <cstdint>
#include <limits>
#include <vector>

namespace llmopt::runtime {

/// One sequence of a batch. Bases as in bundle::SequenceRecord.
struct SequenceShape {
  int64_t queryLen = 0, keyLen = 0;
  int64_t queryBase = 0, keyBase = 0, tableBase = 0, batch = 0;
  bool operator==(const SequenceShape &) const = default;
};

struct BatchShape {
  std::vector<SequenceShape> sequences;
  bool operator==(const BatchShape &) const = default;
};

/// Run-time values that the mask's bounds read, indexed as Program::scalars.
struct ScalarValues {
  std::vector<int64_t> values, perHeadMin, perHeadMax;
};

enum class SplitPolicy : uint8_t {
  /// The program's own wish (batch invariant, split keys, fixed splits);
  /// without one,
  /// split where that shortens the longest worker.
  Auto,
  None,
  Fixed,    ///< `splits` parts of equal work for each row tile
  ByLength, ///< parts of `splitKeys` keys, cut at absolute multiples of it
};

struct PlanOptions {
  uint32_t workers = 1; ///< 0 counts as 1
  uint32_t threads = 0; ///< 0: as many as workers
  SplitPolicy splitPolicy = SplitPolicy::Auto;
  uint32_t splits = 1;
  uint32_t splitKeys = 0; ///< 0: the program's, else kDefaultSplitKeys
  /// Partial rows that the caller's workspace holds. Splits are made coarser to
  /// fit; only a batch-invariant plan, whose splits must not depend on it,
  /// fails instead.
  uint64_t maxPartialRows = std::numeric_limits<int32_t>::max();
  /// A row's bits depend on that row alone (design, 3.8). Also on when the
  /// program says so.
  bool batchInvariant = false;
};

/// Split length where neither program nor options give one.
inline constexpr uint32_t kDefaultSplitKeys = 1024;

/// The items of one Attend kernel.
struct AttendPlan {
  uint32_t kernel = 0;               ///< index in Program::kernels
  std::vector<uint32_t> itemOffsets; ///< workers + 1
  std::vector<bundle::WorkItem> items;
};

/// Everything that the kernels of one batch read, and what they need for it.
struct Plan {
  uint32_t workers = 1;
  std::vector<AttendPlan> attends; ///< one for each Attend kernel, in program order
  std::vector<bundle::RowEntry> rows;
  std::vector<bundle::SequenceRecord> sequences;
  std::vector<uint32_t> mergeOffsets; ///< workers + 1
  std::vector<bundle::MergeItem> merges;
  uint64_t partialRows = 0; ///< rows of the partials that items write
};

/// The largest batch that a workspace is to serve.
struct PlanCapacities {
  uint64_t queryTokens = 0; ///< of all sequences together
  uint64_t keyLen = 0;      ///< of the longest sequence
};

} // namespace llmopt::runtime

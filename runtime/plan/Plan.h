// What the planner takes and gives: plain data.
//
// Vocabulary. A *row tile* is up to tileRows packed rows of one sequence and KV
// head (see bundle/WorkItem.h); it becomes one work item, or several *splits*
// that each take a part of the keys and are merged afterwards. Keys that several
// sequences share through the same pages may become items of their own, with rows
// of all of them: a *cascade*. *Workers* are the lists that the items are dealt
// to; *threads* is how many of them run at a time.
#pragma once

#include "runtime/bundle/WorkItem.h"
#include "runtime/plan/PlanArray.h"

#include <cstdint>
#include <limits>
#include <vector>

namespace llmopt::runtime {

/// A node that sequences may hang below; none.
inline constexpr uint32_t kNoPrefix = std::numeric_limits<uint32_t>::max();

/// One sequence of a batch. Bases as in bundle::SequenceRecord.
struct SequenceShape {
  int64_t queryLen = 0, keyLen = 0;
  int64_t queryBase = 0, keyBase = 0, tableBase = 0, batch = 0;
  /// The deepest node of BatchShape::prefixes whose keys the sequence's table begins with.
  uint32_t prefix = kNoPrefix;
  bool operator==(const SequenceShape &) const = default;
};

/// Keys [0, keyEnd) lie in the same pages for all sequences at or below the node. A node's
/// parent ends before it does.
struct PrefixNode {
  uint32_t parent = kNoPrefix;
  uint32_t keyEnd = 0;
  bool operator==(const PrefixNode &) const = default;
};

struct BatchShape {
  std::vector<SequenceShape> sequences;
  /// What may be shared, in any order; empty: nothing. Nodes without sequences do no harm.
  std::vector<PrefixNode> prefixes = {};
  bool operator==(const BatchShape &) const = default;
};

/// Run-time values that the mask's bounds read, indexed as Program::scalars.
struct ScalarValues {
  std::vector<int64_t> values, perHeadMin, perHeadMax;
};

enum class SplitPolicy : uint8_t {
  /// The program's own wish (batch invariant, split keys, fixed splits);
  /// without one,
  /// cut where that shortens the longest worker.
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
  /// Shared nodes on one sequence's way that may become items of their own; what lies
  /// deeper is part of its private keys. 0: no cascade.
  uint32_t cascadeLevels = 0;
};

/// More levels are not looked at.
inline constexpr uint32_t kMaxCascadeLevels = 8;

/// Split length where neither program nor options give one.
inline constexpr uint32_t kDefaultSplitKeys = 1024;

/// The items of one Attend kernel.
struct AttendPlan {
  uint32_t kernel = 0;             ///< index in Program::kernels
  PlanArray<uint32_t> itemOffsets; ///< workers + 1
  PlanArray<bundle::WorkItem> items;
};

/// Everything that the kernels of one batch read, and what they need for it.
struct Plan {
  uint32_t workers = 1;
  std::vector<AttendPlan> attends; ///< one for each Attend kernel, in program order
  /// Of the batch's query tokens; behind them, of cascades.
  PlanArray<bundle::RowEntry> rows;
  /// Of the batch's sequences; behind them, of shared keys.
  PlanArray<bundle::SequenceRecord> sequences;
  PlanArray<uint32_t> mergeOffsets; ///< workers + 1
  PlanArray<bundle::MergeItem> merges;
  uint64_t partialRows = 0; ///< rows of the partials that items write
};

} // namespace llmopt::runtime

// The plain types of the block manager's calls: options, handles and answers.
#pragma once

#include "runtime/kv/CostModel.h"
#include "runtime/kv/Groups.h"
#include "runtime/kv/Reply.h"
#include "runtime/kv/StepTables.h"

#include <array>
#include <cstdint>
#include <vector>

namespace llmopt::runtime::kv {

/// A sequence's row in the block tables, and which of the sequences that had it.
struct SequenceId {
  uint32_t slot = UINT32_MAX, generation = 0;
  bool operator==(const SequenceId &) const = default;
};

struct TransferId {
  uint32_t slot = UINT32_MAX, generation = 0;
  bool operator==(const TransferId &) const = default;
};

/// What a request hits.
struct Match {
  /// Tokens that need not be run; at most the prompt's length - 1.
  uint32_t tokens = 0;
  /// Of them, those of a page that is used up to its middle, by a copy of it.
  uint32_t partialTokens = 0;
  /// Pages that have to be loaded from host memory first.
  uint32_t hostPages = 0;
  /// Whole blocks found, before the rules on windows and on the last token shortened
  /// the hit.
  uint32_t blocksFound = 0;
};

struct Admission {
  Reply reply = Reply::Ok;
  SequenceId sequence;
  Match hit;
  uint32_t newTokens = 0; ///< reserved behind the hit
};

/// Pages for each group. `take` come from what is free or evictable.
struct Demand {
  std::array<uint32_t, kMaxGroups> take = {};
  bool empty() const {
    for (uint32_t pages : take)
      if (pages)
        return false;
    return true;
  }
  Demand &operator+=(const Demand &other) {
    for (uint32_t g = 0; g < kMaxGroups; ++g)
      take[g] += other.take[g];
    return *this;
  }
  bool operator==(const Demand &) const = default;
};

struct CacheOptions {
  /// Off: no hash is computed and no entry is kept.
  bool enabled = true;
  /// Of the block hashes; pass the same on all ranks, and another one each start.
  uint64_t seed = 0;
  /// Fewer bits only in tests: addresses then collide, results do not change.
  uint32_t hashBits = 64;
  /// Reuse of a page up to its middle, by a copy.
  bool partialHits = true;
  /// Size of the ring of events for routers; 0 for none.
  uint32_t events = 0;
};

struct ManagerOptions {
  std::vector<GroupSpec> groups;
  uint64_t budgetBytes = 0; ///< device memory for pages of all groups, one rank
  uint64_t hostBytes = 0;   ///< host memory for swapped and demoted pages
  uint32_t maxSequences = 256;
  uint32_t maxTokens = 32768; ///< longest sequence, drafts included
  uint32_t maxStepsInFlight = 1;
  uint32_t maxDraft = 0;
  CacheOptions cache;
  CostModel costs;
  /// Free pages (of the first group that keeps all) below which `demote` copies to the host; 0:
  /// there is no second level.
  uint32_t demoteBelow = 0;
  uint32_t maxTransfers = 64;
  /// Fill `StepTables::freed`.
  bool reportFrees = false;

  /// The budget that `--pages n` means: n pages of the first group that keeps all
  /// (else of the first group). The largest number where it does not fit.
  static uint64_t bytesForPages(const std::vector<GroupSpec> &groups, uint64_t pages);
  /// The first group that keeps all, else 0.
  uint32_t leadGroup() const;
  /// A `demoteBelow` that keeps the pages of two steps of `stepTokens` free, at most an eighth of
  /// the budget; 0 where there is no host memory or no cache.
  uint32_t demoteBelowFor(uint32_t stepTokens) const;
};

/// Pages that a pool may have: their ids are 31 bits.
inline constexpr uint64_t kMostPages = INT32_MAX - 1;

/// InvalidArgument for a number of pages that no pool can have. `what`: "", "host ".
Status checkPages(uint64_t pages, std::string_view what = "");

/// What BlockManager::create asks of its options. InvalidArgument, or Unsupported as for groups.
Status validate(const ManagerOptions &options);

struct Counters {
  uint64_t admitted = 0;
  uint64_t hitTokens = 0, queriedTokens = 0; ///< of admitted prompts
  uint64_t allocated = 0, evicted = 0, evictedAfterHit = 0;
  uint64_t copies = 0, forks = 0;
  uint64_t swappedOutPages = 0, swappedInPages = 0;
  uint64_t demotedPages = 0, hostHitPages = 0;
  uint64_t temporaryLacks = 0, permanentLacks = 0;
};

} // namespace llmopt::runtime::kv

// Decides into how many parts of its keys each row tile is cut, and where.
// Private to the planner.
#pragma once

#include "runtime/plan/RowTiles.h"

namespace llmopt::runtime {

/// The split rule of one plan, after program and options have been reconciled.
struct SplitRule {
  SplitPolicy policy = SplitPolicy::None;
  uint32_t splits = 1;    ///< Fixed
  uint32_t splitKeys = 0; ///< ByLength; rounded up to whole key tiles for each variant
};

/// Reconciles what the options ask with what the program was compiled for.
StatusOr<SplitRule> chooseSplitRule(const bundle::AttentionFacts &facts, const PlanOptions &options,
                                    bool batchInvariant);

/// Sets `splits` of every tile. `maxPartialRows` caps them (ResourceExhausted
/// when the plan is batch-invariant, since then the cap must not change any
/// row's arithmetic).
Status decideSplits(const PlanContext &context, const BatchShape &batch, const SplitRule &rule,
                    uint32_t threads, uint64_t maxPartialRows, std::span<const uint32_t> firstRows,
                    std::vector<RowTile> &tiles);

struct KeyRange {
  int64_t begin, end;
};

/// The key ranges of a tile's splits, ascending, `tile.splits` of them.
std::vector<KeyRange> splitRanges(const RowTile &tile, const bundle::KeySet &keys,
                                  const SplitRule &rule, int64_t tileKeys);

/// Split length of a variant: whole key tiles.
int64_t splitLength(const SplitRule &rule, int64_t tileKeys);

/// Auto: no piece is shorter than the mean load of a thread divided by this,
/// which bounds the partials (see workspaceBound).
inline constexpr uint32_t kFinestShare = 4;

} // namespace llmopt::runtime

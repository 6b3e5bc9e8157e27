// Which rule splits the row tiles of a plan: by load (SplitByLoad.h), or by a fixed number, by
// absolute key positions, not at all (SplitByRule.h).
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

/// Split length of a variant: whole key tiles.
int64_t splitLength(const SplitRule &rule, int64_t tileKeys);

} // namespace llmopt::runtime

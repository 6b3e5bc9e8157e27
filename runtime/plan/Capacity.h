// How much a plan can have of anything, known before there is a batch: what a captured graph
// and a workspace are made for.
#pragma once

#include "runtime/bundle/Program.h"
#include "runtime/plan/Plan.h"

#include <string>

namespace llmopt::runtime {

/// The largest batch of a planner.
struct PlanLimits {
  uint64_t rows = 0;        ///< sequences
  uint64_t queryTokens = 0; ///< of all of them together
  uint64_t splits = 1;      ///< parts of one row tile, at most (see mostSplits)
};

/// Entries of a plan's arrays: what a plan has, or what there is room for.
struct PlanCounts {
  uint32_t workers = 1;
  uint64_t items = 0; ///< of each Attend kernel
  uint64_t rows = 0, sequences = 0, merges = 0, partialRows = 0;

  static PlanCounts of(const Plan &plan);
  /// The most that any batch within the limits needs: a function of the limits, the number
  /// of workers and the levels of a cascade.
  static PlanCounts bound(const bundle::Program &program, const PlanOptions &options,
                          const PlanLimits &limits);
  /// Why `plan` does not fit, in words; empty when it does.
  std::string lacks(const PlanCounts &plan) const;
};

/// Parts into which a row tile of a sequence with up to `keyLen` keys may be cut.
uint64_t mostSplits(const bundle::Program &program, const PlanOptions &options, uint64_t keyLen);

/// A plan with room of its own. May throw bad_alloc.
Plan makeRoom(const bundle::Program &program, const PlanCounts &room);

} // namespace llmopt::runtime

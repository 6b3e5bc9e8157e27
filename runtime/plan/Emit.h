// Writes items and merges into a plan's arrays. Private to the planner.
#pragma once

#include "runtime/plan/RowTiles.h"
#include "runtime/plan/split/DealItems.h"
#include "runtime/plan/split/SplitByLoad.h"
#include "runtime/plan/split/SplitByRule.h"

#include <span>

namespace llmopt::runtime {

struct Batch {
  const BatchShape &shape;
  std::span<const uint32_t> firstRows; ///< packed row of each sequence's first query
  std::span<const RowBlock> blocks;
  std::span<const RowTile> tiles;
};

/// Items of a line that was cut, worker after worker.
void emitByLoad(PlanContext &context, const Batch &batch, std::span<const LoadCut> cuts,
                Plan &plan);

/// Items that were dealt as wholes; each worker's stay in natural order. `next` is scratch.
void emitDealt(PlanContext &context, const Batch &batch, const SplitByRule &pieces,
               const DealItems &deal, std::span<const uint16_t> workerOf,
               std::vector<uint32_t> &next, Plan &plan);

} // namespace llmopt::runtime

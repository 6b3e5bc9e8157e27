// Writes items and merges into a plan's arrays. Private to the planner.
#pragma once

#include "runtime/plan/RowTiles.h"
#include "runtime/plan/split/Deal.h"
#include "runtime/plan/split/Line.h"
#include "runtime/plan/split/Pieces.h"

#include <span>

namespace llmopt::runtime {

struct Batch {
  const BatchShape &shape;
  std::span<const uint32_t> firstRows; ///< packed row of each sequence's first query
  std::span<const RowBlock> blocks;
  std::span<const RowTile> tiles;
};

/// Items of a line that was cut, worker after worker.
void emitLine(PlanContext &context, const Batch &batch, std::span<const LineCut> cuts, Plan &plan);

/// Items that were dealt as wholes; each worker's stay in natural order. `next` is scratch.
void emitDealt(PlanContext &context, const Batch &batch, const Pieces &pieces, const Deal &deal,
               std::span<const uint16_t> workerOf, std::vector<uint32_t> &next, Plan &plan);

} // namespace llmopt::runtime

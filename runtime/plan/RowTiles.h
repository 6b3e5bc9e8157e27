// Cuts the packed rows of each sequence into row tiles, picks the kernel
// variant for each, and finds the keys it has to visit. Private to the planner.
#pragma once

#include "runtime/base/Status.h"
#include "runtime/bundle/BoundsEval.h"
#include "runtime/bundle/Program.h"
#include "runtime/plan/Plan.h"

#include <span>
#include <vector>

namespace llmopt::runtime {

/// One Attend kernel, as the planner sees it.
struct Variant {
  uint32_t kernel; ///< index in Program::kernels
  uint32_t tileRows, tileKeys;
  double costPerTile;
};

/// What the planner's steps share.
struct PlanContext {
  const bundle::AttentionFacts &facts;
  const ScalarValues &scalars;
  std::vector<Variant> variants;
  uint32_t group; ///< query heads of a KV head
  bool batchInvariant;
};

/// The same for every KV head of the sequence.
struct RowTile {
  uint32_t sequence;
  uint32_t variant;  ///< index in PlanContext::variants
  uint32_t firstRow; ///< packed row, in the numbering of the whole row list
  uint32_t rowCount;
  int64_t keyBegin = 0,
          keyEnd = 0;       ///< hull of the visible keys, in whole key tiles
  int64_t visibleTiles = 0; ///< key tiles that hold a visible key
  uint32_t splits = 1;
  bool splitByLength = false;

  double cost(const Variant &of) const;
};

/// Appends the variants that cover `rows` packed rows at least cost: (variant,
/// rows).
struct RowCut {
  uint32_t variant, rows;
};
void cutRows(std::span<const Variant> variants, uint64_t rows, std::vector<RowCut> &cuts);

/// Keys that some row of the tile may see. `firstRowOfSequence` is the packed
/// row of the sequence's first query.
bundle::KeySet visibleKeys(const PlanContext &context, const SequenceShape &sequence,
                           uint32_t firstRowOfSequence, const RowTile &tile);

/// All row tiles of a batch, in order of sequences and rows. The batch must
/// have been checked for 32-bit overflow.
std::vector<RowTile> makeRowTiles(const PlanContext &context, const BatchShape &batch);

} // namespace llmopt::runtime

// Cuts the packed rows of each sequence into row tiles, picks the kernel
// variant for each, and finds the keys it has to visit. Private to the planner.
#pragma once

#include "runtime/base/Status.h"
#include "runtime/bundle/BoundsEval.h"
#include "runtime/plan/ClosedBounds.h"
#include "runtime/plan/CostModel.h"

#include <span>
#include <vector>

namespace llmopt::runtime {

/// Rows against keys, the same for every KV head. Keys are counted in tiles of the variant:
/// what a tile has beyond a sequence's end the kernel leaves out by the length that it reads.
/// Plain bytes, so that a batch whose tiles are the last one's is found by comparing them.
struct RowTile {
  uint32_t record = 0;   ///< in Plan::sequences
  uint32_t firstRow = 0; ///< packed row, in the numbering of the whole row list
  uint32_t rowCount = 0;
  uint32_t variant = 0;
  uint32_t beginTile = 0, endTile = 0; ///< hull of the visible keys
  uint32_t visibleTiles = 0;           ///< key tiles that hold a visible key
  uint16_t flags = 0;                  ///< bundle::WorkItem::flags
  uint8_t level = 0;                   ///< shared tiles of the block above it
  bool shared = false;                 ///< rows of several sequences
  /// In a block with shared tiles: the first row in a column of the block's partials.
  uint32_t blockRow = 0;
  uint32_t sequence = 0; ///< of the batch; of a shared tile, one of its sequences
  uint64_t before = 0;   ///< cost of the block's tiles before it
  uint64_t cost = 0;

  /// Visible tiles are one run.
  bool contiguous() const { return visibleTiles == endTile - beginTile; }
};
static_assert(sizeof(RowTile) == 56);

/// Tiles that are laid out one after another for each tuple of KV heads: those of a sequence, or
/// of sequences that share keys. A tuple's heads stay together: each of its tiles is `heads` items
/// in a row, with the same keys, in one worker's list.
struct RowBlock {
  uint32_t firstTile = 0, endTile = 0;
  uint32_t columnRows = 0; ///< rows of a column of partials; 0: nothing is shared
  uint32_t heads = 1;      ///< of a tuple: a multiple of Variant::heads of its tiles
  uint64_t cost = 0;       ///< of one head
};

/// Sizes of a block's tuples. Most programs have none: theirs are constants, so that their plans
/// take no longer for it.
template <bool Tuples> struct TupleSizes {
  static uint32_t heads(const RowBlock &block) { return Tuples ? block.heads : 1; }
  static uint32_t units(const RowBlock &block, const bundle::AttentionFacts &facts) {
    return Tuples ? facts.kvHeads / block.heads : facts.kvHeads;
  }
};

/// What the planner's steps share.
struct PlanContext {
  const bundle::AttentionFacts &facts;
  const ScalarValues *scalars;
  std::vector<Variant> variants; ///< those that this plan uses
  uint32_t group;                ///< query heads of a KV head
  uint64_t partialRow;           ///< cost of a partial row
  bool batchInvariant;
  bool tuples; ///< some variant takes several heads together

  ClosedBounds may;
  bool closed = false;   ///< `may` has its closed form
  bundle::KeySet keySet; ///< of the long way, reused

  const Variant &variantOf(const RowTile &tile) const { return variants[tile.variant]; }
};

/// Appends the variants that cover `rows` packed rows at least cost: (variant,
/// rows). All of them take the same number of heads together, so that a prompt's chunk, whose
/// heads part workers better than its keys, is not tied together by the kernel of its last rows.
struct RowCut {
  uint32_t variant, rows;
};
void cutRows(std::span<const Variant> variants, uint64_t rows, std::vector<RowCut> &cuts);

/// Keys that some row of the tile may see, from its first key tile on. Overwritten by the next
/// call.
const bundle::KeySet &visibleKeys(PlanContext &context, const SequenceShape &sequence,
                                  uint32_t firstRowOfSequence, const RowTile &tile);

/// Sets key range, visible tiles and cost from what the tile's rows see of the keys from
/// `fromKey` on, a multiple of the key tile.
void setKeys(PlanContext &context, const SequenceShape &sequence, uint32_t firstRowOfSequence,
             int64_t fromKey, RowTile &tile);

/// The tile's cost when it is not cut.
inline uint64_t costOf(const Variant &variant, const RowTile &tile) {
  return variant.itemCost + tile.visibleTiles * variant.tileCost;
}

} // namespace llmopt::runtime

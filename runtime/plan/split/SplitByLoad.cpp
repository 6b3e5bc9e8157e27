#include "runtime/plan/split/SplitByLoad.h"

#include <algorithm>

namespace llmopt::runtime {

namespace {

/// A cut moves to a border that is no farther than this share of the mean load.
constexpr uint64_t kNear = 50;
/// Attempts: what splits cost is known better after the first, and the others move no cuts.
constexpr int kTries = 5;

uint32_t tilesOf(const RowBlock &block) { return block.endTile - block.firstTile; }

uint64_t mostVisible(std::span<const RowTile> tiles) {
  uint32_t most = 0;
  for (const RowTile &tile : tiles)
    most = std::max(most, tile.visibleTiles);
  return most;
}

/// One attempt, from left to right: each worker, and each thread, gets its share of what is left,
/// and of what the cuts that are left will cost.
template <bool Tuples> class Cutter {
public:
  /// `perCut`: what a cut is expected to cost.
  Cutter(const PlanContext &context, std::span<const RowBlock> blocks,
         std::span<const RowTile> tiles, const LoadRule &rule, uint64_t nearby, uint64_t perCut)
      : context(context), blocks(blocks), tiles(tiles), rule(rule), nearby(nearby), perCut(perCut),
        kvHeads(context.facts.kvHeads) {}

  SplitLoads run(uint64_t total, bool throughTiles, std::vector<LoadCut> &out) {
    out[0] = {};
    // A thread's lists are cut at borders before its end: where they find none, all is left to the
    // cut there, which is due at the thread's share.
    uint64_t thread = 0, threadEnd = shareFrom(total, rule.threads);
    for (uint32_t w = 1; w < rule.workers; ++w) {
      bool betweenThreads = uint64_t{w} * rule.threads / rule.workers != thread;
      seek(betweenThreads ? threadEnd
                          : std::min(shareFrom(total, rule.workers - w + 1), threadEnd));
      if (betweenThreads ? !(throughTiles && tile && cutThrough()) : base + cost <= threadEnd)
        moveToBorder();
      if (place > last)
        close();
      if (betweenThreads)
        threadEnd = shareFrom(total, rule.threads - ++thread);
      out[w] = last;
    }
    base = total;
    endsWith = 0;
    loads.longest = std::max(loads.longest, base - lastBase + beginsWith);
    out[rule.workers] = {UINT64_MAX, 0};
    loads.total = total + extra;
    return loads;
  }

private:
  uint64_t heads() const { return Tuples ? tupleHeads : 1; }

  /// Where a cut is due if all from the last cut on is for `left` that get the same.
  uint64_t shareFrom(uint64_t total, uint64_t left) const {
    uint64_t share = (total - lastBase + beginsWith + perCut * (left - 1)) / left + 1;
    return lastBase + (share > beginsWith ? share - beginsWith : 0);
  }

  /// Finds the tile at a position.
  void seek(uint64_t target) {
    for (uint64_t end;
         block < blocks.size() && target >= (end = blockStart + blocks[block].cost * kvHeads);) {
      blockStart = end;
      blockPlace += uint64_t{tilesOf(blocks[block])} *
                    TupleSizes<Tuples>::units(blocks[block], context.facts);
      ++block;
      unit = unitCosts = 0;
    }
    place = {blockPlace, 0};
    base = blockStart;
    endsWith = startsWith = 0;
    tile = nullptr;
    if (block == blocks.size())
      return;
    const RowBlock &in = blocks[block];
    tupleHeads = in.heads;
    const uint64_t tupleCost = in.cost * heads();
    // Few tuples, and targets that rise: cheaper than a division.
    for (before = std::max(target, blockStart + unitCosts) - blockStart - unitCosts;
         before >= tupleCost; before -= tupleCost, unitCosts += tupleCost)
      ++unit;
    const RowTile *first = tiles.data() + in.firstTile, *end = tiles.data() + in.endTile;
    tile = first;
    if (end - first > 1)
      tile =
          std::upper_bound(first + 1, end, before,
                           [&](uint64_t at, const RowTile &t) { return at < t.before * heads(); }) -
          1;
    before -= tile->before * heads();
    cost = tile->cost * heads();
    place.place += unit * tilesOf(in) + static_cast<uint64_t>(tile - first);
    base += unitCosts + tile->before * heads();
  }

  /// Cuts through the tile. False where a border is near, or where there is no room for partials.
  bool cutThrough() {
    const Variant &variant = context.variantOf(*tile);
    if (tile->visibleTiles < 2 || before <= nearby || cost - before <= nearby)
      return false;
    uint64_t piece = context.partialRow * tile->rowCount * heads(),
             column = blocks[block].columnRows;
    uint64_t tileCost = variant.tileCost * heads(), itemCost = variant.itemCost * heads();
    bool again = last.place == place.place && last.keyTiles > 0;
    // Of the piece before the cut; one that begins at a cut, or shares a column, has it counted.
    uint64_t fixed = itemCost + (again || column ? 0 : piece);
    uint64_t keyTiles = before > fixed ? (before - fixed + tileCost / 2) / tileCost : 0;
    if (keyTiles == 0 && 2 * before > fixed + tileCost)
      keyTiles = 1; // nearer than the border
    if (again && keyTiles <= last.keyTiles) {
      place = last; // the worker between the two cuts has nothing
      return true;
    }
    if (keyTiles == 0 || keyTiles >= tile->visibleTiles)
      return false;
    uint64_t rows = (column ? column : tile->rowCount * (again ? 1 : 2)) * heads();
    if (partialRows + rows > rule.partialRows || items + heads() > rule.moreItems) {
      ++loads.refused;
      return false;
    }
    partialRows += rows;
    items += heads();
    place.keyTiles = static_cast<uint32_t>(keyTiles);
    base += itemCost + keyTiles * tileCost;
    endsWith = again || column ? 0 : piece;
    startsWith = itemCost + piece;
    return true;
  }

  void moveToBorder() {
    if (!tile || before * 2 <= cost)
      return;
    ++place.place;
    base += cost;
  }

  /// The worker before the cut has all from the last cut on.
  void close() {
    loads.longest = std::max(loads.longest, base - lastBase + beginsWith + endsWith);
    extra += endsWith + startsWith;
    beginsWith = startsWith;
    lastBase = base;
    last = place;
  }

  const PlanContext &context;
  std::span<const RowBlock> blocks;
  std::span<const RowTile> tiles;
  const LoadRule &rule;
  uint64_t nearby, perCut, kvHeads;

  // Where the walk is. Positions leave out what splits cost.
  size_t block = 0;
  uint64_t blockStart = 0, blockPlace = 0;
  uint64_t tupleHeads = 1;          ///< of the block
  uint64_t unit = 0, unitCosts = 0; ///< tuples of the block: passed, and what they cost
  const RowTile *tile = nullptr;
  uint64_t cost = 0;   ///< of the tile, for all heads of a tuple
  uint64_t before = 0; ///< of that, left of the target
  LoadCut place, last;
  uint64_t base = 0, lastBase = 0;
  /// What the split at the cut costs: left of it, right of it, and right of the last one.
  uint64_t endsWith = 0, startsWith = 0, beginsWith = 0;
  uint64_t extra = 0, partialRows = 0, items = 0;
  SplitLoads loads;
};

} // namespace

SplitLoads SplitByLoad::cut(const PlanContext &context, std::span<const RowBlock> blocks,
                            std::span<const RowTile> tiles, const LoadRule &rule) {
  return context.tuples ? cutLine<true>(context, blocks, tiles, rule)
                        : cutLine<false>(context, blocks, tiles, rule);
}

template <bool Tuples>
SplitLoads SplitByLoad::cutLine(const PlanContext &context, std::span<const RowBlock> blocks,
                                std::span<const RowTile> tiles, const LoadRule &rule) {
  uint64_t total = 0, tileCost = 0, mostTiles = 0;
  for (const RowBlock &block : blocks)
    total += block.cost * context.facts.kvHeads;
  for (const Variant &variant : context.variants) {
    tileCost = std::max(tileCost, variant.heads * (variant.tileCost + variant.itemCost +
                                                   context.partialRow * variant.tileRows));
  }
  if (!Tuples)
    mostTiles = mostVisible(tiles);
  else
    for (const RowBlock &block : blocks)
      mostTiles = std::max(mostTiles, mostVisible(tiles.subspan(block.firstTile, tilesOf(block))) *
                                          block.heads);
  uint64_t mean = total / rule.workers + 1;
  bool throughTiles = rule.threads > 1 && mostTiles > kShortTiles;
  SplitLoads best{.longest = UINT64_MAX};
  uint64_t perCut = 0;
  // The one place that makes a Cutter, which is inlined here: it then lives in registers.
  for (int i = 0; i < (throughTiles ? kTries : 1); ++i) {
    uint64_t nearby = i == 0 ? mean / kNear : 0;
    SplitLoads loads = Cutter<Tuples>(context, blocks, tiles, rule, nearby, perCut)
                           .run(total, throughTiles, trial);
    if (loads.longest < best.longest) {
      best = loads;
      std::swap(cuts, trial);
    }
    uint64_t real = loads.total / rule.workers + 1;
    if (best.longest <= real + real / kNear + tileCost)
      break;
    perCut = (loads.total - total) / std::max<uint32_t>(rule.threads, 1);
  }
  return best;
}

} // namespace llmopt::runtime

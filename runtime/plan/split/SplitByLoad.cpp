#include "runtime/plan/split/SplitByLoad.h"

#include <algorithm>

namespace llmopt::runtime {

namespace {

/// A cut moves to a border that is no farther than this share of the mean load.
constexpr uint64_t kNear = 50;
/// Attempts: what splits cost is known better after the first, and the others move no cuts.
constexpr int kTries = 5;

uint32_t tilesOf(const RowBlock &block) { return block.endTile - block.firstTile; }

/// One attempt, from left to right: each worker gets its share of what is left, and of what the
/// cuts that are left will cost.
class Cutter {
public:
  /// `perCut`: what a cut is expected to cost.
  Cutter(const PlanContext &context, std::span<const RowBlock> blocks,
         std::span<const RowTile> tiles, const LoadRule &rule, uint64_t nearby, uint64_t perCut)
      : context(context), blocks(blocks), tiles(tiles), rule(rule), nearby(nearby), perCut(perCut),
        heads(context.facts.kvHeads) {}

  SplitLoads run(uint64_t total, bool throughTiles, std::vector<LoadCut> &out) {
    out[0] = {};
    bool each = rule.threads == rule.workers;
    for (uint32_t w = 1; w < rule.workers; ++w) {
      bool betweenThreads = each || uint64_t{w} * rule.threads / rule.workers !=
                                        uint64_t{w - 1} * rule.threads / rule.workers;
      uint64_t left = rule.workers - w + 1;
      uint64_t share = (total - lastBase + beginsWith + perCut * (left - 1)) / left + 1;
      seek(lastBase + (share > beginsWith ? share - beginsWith : 0));
      if (tile && !(throughTiles && betweenThreads && cutThrough()))
        moveToBorder();
      if (place > last)
        close();
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
  /// Finds the tile at a position.
  void seek(uint64_t target) {
    while (block < blocks.size() && target >= blockStart + blocks[block].cost * heads) {
      blockStart += blocks[block].cost * heads;
      blockPlace += tilesOf(blocks[block]) * heads;
      ++block;
      head = headCosts = 0;
    }
    place = {blockPlace, 0};
    base = blockStart;
    endsWith = startsWith = 0;
    tile = nullptr;
    if (block == blocks.size())
      return;
    const RowBlock &in = blocks[block];
    // Few heads, and targets that rise: cheaper than a division.
    for (before = std::max(target, blockStart + headCosts) - blockStart - headCosts;
         before >= in.cost; before -= in.cost, headCosts += in.cost)
      ++head;
    const RowTile *first = tiles.data() + in.firstTile, *end = tiles.data() + in.endTile;
    tile = first;
    if (end - first > 1)
      tile = std::upper_bound(first + 1, end, before,
                              [](uint64_t at, const RowTile &t) { return at < t.before; }) -
             1;
    before -= tile->before;
    place.place += head * tilesOf(in) + static_cast<uint64_t>(tile - first);
    base += headCosts + tile->before;
  }

  /// Cuts through the tile. False where a border is near, or where there is no room for partials.
  bool cutThrough() {
    const Variant &variant = context.variantOf(*tile);
    if (tile->visibleTiles < 2 || before <= nearby || tile->cost - before <= nearby)
      return false;
    uint64_t piece = context.partialRow * tile->rowCount, column = blocks[block].columnRows;
    bool again = last.place == place.place && last.keyTiles > 0;
    // Of the piece before the cut; one that begins at a cut, or shares a column, has it counted.
    uint64_t fixed = variant.itemCost + (again || column ? 0 : piece);
    uint64_t keyTiles =
        before > fixed ? (before - fixed + variant.tileCost / 2) / variant.tileCost : 0;
    if (keyTiles == 0 && 2 * before > fixed + variant.tileCost)
      keyTiles = 1; // nearer than the border
    if (again && keyTiles <= last.keyTiles) {
      place = last; // the worker between the two cuts has nothing
      return true;
    }
    if (keyTiles == 0 || keyTiles >= tile->visibleTiles)
      return false;
    uint64_t rows = column ? column : tile->rowCount * (again ? 1 : 2);
    if (partialRows + rows > rule.partialRows || items == rule.moreItems) {
      ++loads.refused;
      return false;
    }
    partialRows += rows;
    ++items;
    place.keyTiles = static_cast<uint32_t>(keyTiles);
    base += variant.itemCost + keyTiles * variant.tileCost;
    endsWith = again || column ? 0 : piece;
    startsWith = variant.itemCost + piece;
    return true;
  }

  void moveToBorder() {
    if (before * 2 <= tile->cost)
      return;
    ++place.place;
    base += tile->cost;
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
  uint64_t nearby, perCut, heads;

  // Where the walk is. Positions leave out what splits cost.
  size_t block = 0;
  uint64_t blockStart = 0, blockPlace = 0;
  uint64_t head = 0, headCosts = 0; ///< of the block: passed, and what they cost
  const RowTile *tile = nullptr;
  uint64_t before = 0; ///< of the tile, left of the target
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
  uint64_t total = 0, tileCost = 0;
  uint32_t mostTiles = 0;
  for (const RowBlock &block : blocks)
    total += block.cost * context.facts.kvHeads;
  for (const RowTile &tile : tiles)
    mostTiles = std::max(mostTiles, tile.visibleTiles);
  for (const Variant &variant : context.variants)
    tileCost = std::max(tileCost, variant.tileCost + variant.itemCost +
                                      context.partialRow * variant.tileRows);
  uint64_t mean = total / rule.workers + 1;
  bool throughTiles = rule.threads > 1 && mostTiles > kShortTiles;
  SplitLoads best{.longest = UINT64_MAX};
  uint64_t perCut = 0;
  // The one place that makes a Cutter, which is inlined here: it then lives in registers.
  for (int i = 0; i < (throughTiles ? kTries : 1); ++i) {
    uint64_t nearby = i == 0 ? mean / kNear : 0;
    SplitLoads loads =
        Cutter(context, blocks, tiles, rule, nearby, perCut).run(total, throughTiles, trial);
    if (loads.longest < best.longest) {
      best = loads;
      std::swap(cuts, trial);
    }
    uint64_t real = loads.total / rule.workers + 1;
    if (best.longest <= real + real / kNear + tileCost)
      break;
    perCut = (loads.total - total) / rule.workers;
  }
  return best;
}

} // namespace llmopt::runtime

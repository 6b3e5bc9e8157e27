#include "runtime/plan/split/SplitByRule.h"

#include <algorithm>

namespace llmopt::runtime {

using bundle::KeySet;

namespace {

/// Calls visit(first tile, end tile) for each block of `length` tiles that holds a visible key.
template <typename Visit>
void forVisibleBlocks(const RowTile &tile, const KeySet *keys, int64_t tileKeys, uint32_t length,
                      Visit visit) {
  uint32_t from = tile.beginTile;
  while (from < tile.endTile) {
    if (keys) {
      std::optional<int64_t> key =
          keys->firstVisible(from * tileKeys, int64_t{tile.endTile} * tileKeys);
      if (!key)
        return;
      from = std::max(tile.beginTile, uint32_t(*key / tileKeys) / length * length);
    }
    uint32_t end = std::min(tile.endTile, (from / length + 1) * length);
    visit(from, end);
    from = end;
  }
}

} // namespace

uint32_t SplitByRule::countOf(PlanContext &context, const BatchShape &batch,
                              std::span<const uint32_t> firstRows, const RowTile &tile,
                              const SplitRule &rule) {
  if (tile.visibleTiles < 2 || rule.policy == SplitPolicy::None)
    return 1;
  if (rule.policy == SplitPolicy::Fixed)
    return std::min(rule.splits, tile.visibleTiles);
  int64_t tileKeys = context.variantOf(tile).tileKeys;
  uint32_t length = uint32_t(splitLength(rule, tileKeys) / tileKeys);
  if (tile.contiguous())
    return (tile.endTile - 1) / length - tile.beginTile / length + 1;
  uint32_t count = 0;
  const KeySet &keys =
      visibleKeys(context, batch.sequences[tile.sequence], firstRows[tile.sequence], tile);
  forVisibleBlocks(tile, &keys, tileKeys, length, [&](uint32_t, uint32_t) { ++count; });
  return count;
}

void SplitByRule::add(PlanContext &context, const BatchShape &batch,
                      std::span<const uint32_t> firstRows, const RowTile &tile,
                      const SplitRule &rule, uint32_t count, bool byLength) {
  if (count == 1) {
    list.push_back({tile.beginTile, tile.endTile, tile.visibleTiles});
    return;
  }
  int64_t tileKeys = context.variantOf(tile).tileKeys;
  const KeySet *keys = nullptr;
  if (!tile.contiguous())
    keys = &visibleKeys(context, batch.sequences[tile.sequence], firstRows[tile.sequence], tile);
  auto visible = [&](uint32_t begin, uint32_t end) {
    return keys ? uint32_t(keys->visibleTiles(begin * tileKeys, end * tileKeys, tileKeys))
                : end - begin;
  };
  if (byLength) {
    uint32_t length = uint32_t(splitLength(rule, tileKeys) / tileKeys);
    forVisibleBlocks(tile, keys, tileKeys, length, [&](uint32_t begin, uint32_t end) {
      list.push_back({begin, end, visible(begin, end)});
    });
    return;
  }
  uint32_t begin = tile.beginTile, left = tile.visibleTiles;
  for (uint32_t parts = count; parts > 0; --parts) {
    uint32_t take = (left + parts - 1) / parts, end = begin + take;
    if (parts == 1)
      end = tile.endTile;
    else if (keys)
      end = uint32_t(keys->endOfVisibleTile(begin * tileKeys, int64_t{tile.endTile} * tileKeys,
                                            tileKeys, take) /
                     tileKeys);
    list.push_back({begin, end, take});
    begin = end;
    left -= take;
  }
}

/// Finds the most parts a tile with which everything has room.
Status SplitByRule::lower(const PlanContext &context, std::span<const RowBlock> blocks,
                          std::span<const RowTile> tiles, uint64_t partialRows,
                          uint32_t &cap) const {
  auto needs = [&](uint32_t most, uint64_t &rows, uint64_t &pieces) {
    rows = pieces = 0;
    for (const RowBlock &block : blocks) {
      uint64_t columns = 0, above[kMaxCascadeLevels + 2] = {};
      for (uint32_t t = block.firstTile; t < block.endTile; ++t) {
        const RowTile &tile = tiles[t];
        uint32_t count = std::min(counts[t], most);
        pieces += count;
        if (!block.columnRows)
          rows += count > 1 ? uint64_t{count} * tile.rowCount : 0;
        above[tile.level + 1] = above[tile.level] + (tile.visibleTiles ? count : 0);
        columns = std::max(columns, above[tile.level + 1]);
      }
      rows += columns * block.columnRows;
    }
    rows *= context.facts.kvHeads;
  };
  uint64_t rows = 0, pieces = 0;
  cap = 1;
  for (uint32_t count : counts)
    cap = std::max(cap, count);
  needs(cap, rows, pieces);
  if (rows <= partialRows && pieces <= room.pieces)
    return {};
  if (context.batchInvariant)
    return makeStatus(StatusCode::ResourceExhausted,
                      "a batch-invariant plan needs {} partial rows and {} items of each head; {} "
                      "and {} are allowed; enlarge the workspace or lengthen the splits",
                      rows, pieces, partialRows, room.pieces);
  uint32_t fits = 1, tooMany = cap; // without splits there are no partials
  while (tooMany - fits > 1) {
    uint32_t middle = fits + (tooMany - fits) / 2;
    needs(middle, rows, pieces);
    (rows <= partialRows && pieces <= room.pieces ? fits : tooMany) = middle;
  }
  cap = fits;
  return {};
}

Status SplitByRule::cut(PlanContext &context, const BatchShape &batch,
                        std::span<const uint32_t> firstRows, std::span<const RowBlock> blocks,
                        std::span<const RowTile> tiles, const SplitRule &rule, uint64_t partialRows,
                        bool &lowered) {
  counts.clear();
  for (const RowTile &tile : tiles)
    counts.push_back(countOf(context, batch, firstRows, tile, rule));
  uint32_t cap = 1;
  LLMOPT_RETURN_IF_ERROR(lower(context, blocks, tiles, partialRows, cap));
  list.clear();
  first.clear();
  lowered = false;
  for (size_t t = 0; t < tiles.size(); ++t) {
    first.push_back(uint32_t(list.size()));
    bool less = counts[t] > cap;
    lowered |= less;
    add(context, batch, firstRows, tiles[t], rule, std::min(counts[t], cap),
        rule.policy == SplitPolicy::ByLength && !less);
  }
  first.push_back(uint32_t(list.size()));
  return {};
}

} // namespace llmopt::runtime

#include "runtime/plan/Splits.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>

namespace llmopt::runtime {

using bundle::KeySet;

namespace {

/// What a split costs besides its keys: writing and reading back a partial, in
/// tiles.
constexpr double kSplitOverheadTiles = 1;
/// The merge is one more pass over all threads; it costs about this many tiles.
constexpr double kMergePassTiles = 2;
/// Pieces below this share of the mean load fill gaps; they are not placed one
/// by one.
constexpr double kFluidShare = 1.0 / 16;
/// A split has to shorten the longest thread by this much to be worth its
/// traffic.
constexpr double kWorthwhile = 0.97;

uint32_t piecesFor(const RowTile &tile, double cost, double pieceCost) {
  if (cost <= pieceCost || tile.visibleTiles < 2)
    return 1;
  double pieces = std::ceil(cost / pieceCost);
  return static_cast<uint32_t>(std::min(pieces, static_cast<double>(tile.visibleTiles)));
}

/// Time of the busiest thread if no piece costs more than pieceCost: large
/// pieces by the longest-processing-time rule, small ones as a fluid.
double estimateSpan(const PlanContext &context, std::span<const RowTile> tiles, uint32_t threads,
                    double mean, double pieceCost) {
  std::vector<double> large;
  double total = 0, mergePass = 0;
  for (const RowTile &tile : tiles) {
    const Variant &variant = context.variants[tile.variant];
    double cost = tile.cost(variant);
    uint32_t pieces = piecesFor(tile, cost, pieceCost);
    double each = cost / pieces;
    if (pieces > 1) {
      each += kSplitOverheadTiles * variant.costPerTile;
      mergePass = std::max(mergePass, kMergePassTiles * variant.costPerTile);
    }
    size_t copies = size_t{pieces} * context.facts.kvHeads;
    total += each * copies;
    if (each >= mean * kFluidShare)
      large.insert(large.end(), copies, each);
  }
  std::sort(large.begin(), large.end(), std::greater<>());
  std::priority_queue<double, std::vector<double>, std::greater<>> loads(
      std::greater<>(), std::vector<double>(threads, 0.0));
  double longest = 0;
  for (double cost : large) {
    double load = loads.top() + cost;
    loads.pop();
    loads.push(load);
    longest = std::max(longest, load);
  }
  return std::max(longest, total / threads) + mergePass;
}

/// Splits only where the estimate says that the batch ends sooner.
void decideAuto(const PlanContext &context, uint32_t threads, std::vector<RowTile> &tiles) {
  double total = 0, longest = 0;
  for (const RowTile &tile : tiles) {
    double cost = tile.cost(context.variants[tile.variant]);
    total += cost * context.facts.kvHeads;
    longest = std::max(longest, cost);
  }
  double mean = total / threads;
  // Items this short balance by themselves.
  if (threads == 1 || longest <= mean / (2 * kFinestShare))
    return;
  double best = std::numeric_limits<double>::infinity();
  double bestSpan = estimateSpan(context, tiles, threads, mean, best);
  for (uint32_t share = 1; share <= kFinestShare; share *= 2) {
    double span = estimateSpan(context, tiles, threads, mean, mean / share);
    if (span < bestSpan * kWorthwhile) {
      best = mean / share;
      bestSpan = span;
    }
  }
  for (RowTile &tile : tiles)
    tile.splits = piecesFor(tile, tile.cost(context.variants[tile.variant]), best);
}

/// The blocks of absolute length that hold a visible key.
std::vector<KeyRange> visibleBlocks(const RowTile &tile, const KeySet &keys, int64_t length) {
  std::vector<KeyRange> ranges;
  int64_t from = tile.keyBegin;
  while (std::optional<int64_t> first = keys.firstVisible(from, tile.keyEnd)) {
    int64_t block = *first / length;
    KeyRange range{std::max(tile.keyBegin, block * length),
                   std::min(tile.keyEnd, (block + 1) * length)};
    ranges.push_back(range);
    from = range.end;
  }
  return ranges;
}

uint64_t partialRowsWithCap(std::span<const RowTile> tiles, uint32_t kvHeads, uint32_t cap) {
  uint64_t rows = 0;
  for (const RowTile &tile : tiles)
    if (uint32_t splits = std::min(tile.splits, cap); splits > 1)
      rows += uint64_t{splits} * tile.rowCount * kvHeads;
  return rows;
}

/// Lowers the largest split counts until the partials fit.
Status capSplits(const PlanContext &context, uint64_t maxPartialRows, std::vector<RowTile> &tiles) {
  uint32_t kvHeads = context.facts.kvHeads;
  uint32_t most = 1;
  for (const RowTile &tile : tiles)
    most = std::max(most, tile.splits);
  uint64_t wanted = partialRowsWithCap(tiles, kvHeads, most);
  if (wanted <= maxPartialRows)
    return {};
  if (context.batchInvariant)
    return makeStatus(StatusCode::ResourceExhausted,
                      "a batch-invariant plan needs {} partial rows; {} are allowed; "
                      "enlarge the workspace or lengthen the splits",
                      wanted, maxPartialRows);
  uint32_t fits = 1; // without splits there are no partials
  uint32_t tooMany = most;
  while (tooMany - fits > 1) {
    uint32_t middle = fits + (tooMany - fits) / 2;
    bool ok = partialRowsWithCap(tiles, kvHeads, middle) <= maxPartialRows;
    (ok ? fits : tooMany) = middle;
  }
  for (RowTile &tile : tiles)
    if (tile.splits > fits) {
      tile.splits = fits;
      tile.splitByLength = false;
    }
  return {};
}

} // namespace

StatusOr<SplitRule> chooseSplitRule(const bundle::AttentionFacts &facts, const PlanOptions &options,
                                    bool batchInvariant) {
  SplitRule rule{.policy = options.splitPolicy, .splits = options.splits};
  rule.splitKeys = options.splitKeys ? options.splitKeys
                   : facts.splitKeys ? facts.splitKeys
                                     : kDefaultSplitKeys;
  if (rule.policy == SplitPolicy::Auto) {
    if (batchInvariant || facts.splitKeys > 0) {
      rule.policy = SplitPolicy::ByLength;
    } else if (facts.fixedSplits > 0) {
      rule.policy = SplitPolicy::Fixed;
      rule.splits = facts.fixedSplits;
    }
  }
  if (rule.policy == SplitPolicy::Fixed && batchInvariant)
    return invalidArgument("a fixed number of splits is asked of a batch-invariant plan; "
                           "allowed are splits by length or none");
  if (rule.policy == SplitPolicy::Fixed && rule.splits == 0)
    return invalidArgument("0 splits are asked for; at least 1 is allowed");
  return rule;
}

int64_t splitLength(const SplitRule &rule, int64_t tileKeys) {
  return (int64_t{rule.splitKeys} + tileKeys - 1) / tileKeys * tileKeys;
}

Status decideSplits(const PlanContext &context, const BatchShape &batch, const SplitRule &rule,
                    uint32_t threads, uint64_t maxPartialRows, std::span<const uint32_t> firstRows,
                    std::vector<RowTile> &tiles) {
  if (rule.policy == SplitPolicy::Auto)
    decideAuto(context, threads, tiles);
  for (RowTile &tile : tiles) {
    if (tile.visibleTiles < 2)
      continue;
    if (rule.policy == SplitPolicy::Fixed)
      tile.splits = static_cast<uint32_t>(std::min<int64_t>(rule.splits, tile.visibleTiles));
    if (rule.policy == SplitPolicy::ByLength) {
      KeySet keys =
          visibleKeys(context, batch.sequences[tile.sequence], firstRows[tile.sequence], tile);
      int64_t length = splitLength(rule, context.variants[tile.variant].tileKeys);
      tile.splits = static_cast<uint32_t>(visibleBlocks(tile, keys, length).size());
      tile.splitByLength = true;
    }
  }
  return capSplits(context, maxPartialRows, tiles);
}

std::vector<KeyRange> splitRanges(const RowTile &tile, const KeySet &keys, const SplitRule &rule,
                                  int64_t tileKeys) {
  if (tile.splits == 1)
    return {{tile.keyBegin, tile.keyEnd}};
  if (tile.splitByLength)
    return visibleBlocks(tile, keys, splitLength(rule, tileKeys));
  std::vector<KeyRange> ranges;
  int64_t begin = tile.keyBegin, tilesLeft = tile.visibleTiles;
  for (uint32_t left = tile.splits; left > 0; --left) {
    int64_t take = (tilesLeft + left - 1) / left;
    int64_t end =
        left == 1 ? tile.keyEnd : keys.endOfVisibleTile(begin, tile.keyEnd, tileKeys, take);
    ranges.push_back({begin, end});
    begin = end;
    tilesLeft -= take;
  }
  return ranges;
}

} // namespace llmopt::runtime

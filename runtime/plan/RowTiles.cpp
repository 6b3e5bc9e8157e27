#include "runtime/plan/RowTiles.h"

#include "runtime/plan/Planner.h"

#include <algorithm>

namespace llmopt::runtime {

using bundle::KeySet;

namespace {

double costPerKey(const Variant &variant) { return variant.costPerTile / variant.tileKeys; }

double ceilDiv(uint64_t a, uint64_t b) { return static_cast<double>(a / b + (a % b != 0)); }

struct Run {
  int64_t first, last; ///< tiles, inclusive
};

/// Query positions of a sequence's rows: `row` counts from the sequence's first.
ClosedBounds::Inputs inputsOf(const PlanContext &context, const SequenceShape &sequence,
                              uint32_t row, uint32_t rowCount) {
  // A decode step has one tile for all rows of a sequence: spare it the divisions.
  bool ends = row + rowCount == uint32_t(sequence.queryLen) * context.group;
  int64_t first = row == 0 ? 0 : row / context.group;
  int64_t last = ends ? sequence.queryLen - 1 : (row + rowCount - 1) / context.group;
  return {positionOf(context.facts, sequence, first), positionOf(context.facts, sequence, last),
          sequence.queryLen, sequence.keyLen};
}

/// Key tiles that the ranges touch.
int64_t countTiles(const ClosedBounds::Ranges &ranges, int64_t tileKeys) {
  std::array<Run, ClosedBounds::kMaxIntervals> runs;
  for (unsigned i = 0; i < ranges.count; ++i) {
    Run run{ranges.at[i].begin / tileKeys, (ranges.at[i].end - 1) / tileKeys};
    unsigned at = i; // kept ascending
    for (; at > 0 && runs[at - 1].first > run.first; --at)
      runs[at] = runs[at - 1];
    runs[at] = run;
  }
  int64_t count = 0, next = 0;
  for (unsigned i = 0; i < ranges.count; ++i) {
    count += std::max<int64_t>(0, runs[i].last + 1 - std::max(runs[i].first, next));
    next = std::max(next, runs[i].last + 1);
  }
  return count;
}

/// Cuts the rows into tiles of variants that take `heads` together; returns what they cost.
double cutInto(std::span<const Variant> variants, uint32_t heads, uint64_t rows,
               std::vector<RowCut> &cuts) {
  double total = 0;
  while (rows > 0) {
    uint32_t best = uint32_t(variants.size());
    double bestCost = 0;
    for (uint32_t i = 0; i < variants.size(); ++i) {
      if (variants[i].heads != heads)
        continue;
      double cost = ceilDiv(rows, variants[i].tileRows) * costPerKey(variants[i]);
      // At equal cost the larger tile: fewer items, and K and V are read less
      // often.
      bool better = best == variants.size() || cost < bestCost ||
                    (cost == bestCost && variants[i].tileRows > variants[best].tileRows);
      if (better) {
        best = i;
        bestCost = cost;
      }
    }
    // Full tiles first; what remains is looked at afresh, as a smaller variant
    // may waste less on it.
    uint32_t tileRows = variants[best].tileRows;
    uint64_t full = rows / tileRows;
    for (uint64_t i = 0; i < full; ++i)
      cuts.push_back({best, tileRows});
    if (full == 0)
      cuts.push_back({best, static_cast<uint32_t>(rows)});
    total += costPerKey(variants[best]) * static_cast<double>(std::max<uint64_t>(full, 1));
    rows = full == 0 ? 0 : rows % tileRows;
  }
  return total;
}

} // namespace

void cutRows(std::span<const Variant> variants, uint64_t rows, std::vector<RowCut> &cuts) {
  auto begin = static_cast<std::ptrdiff_t>(cuts.size());
  uint32_t bestHeads = variants[0].heads;
  double bestCost = cutInto(variants, bestHeads, rows, cuts);
  for (size_t i = 1; i < variants.size(); ++i) {
    uint32_t heads = variants[i].heads;
    if (std::any_of(variants.begin(), variants.begin() + std::ptrdiff_t(i),
                    [&](const Variant &known) { return known.heads == heads; }))
      continue;
    auto middle = static_cast<std::ptrdiff_t>(cuts.size());
    double cost = cutInto(variants, heads, rows, cuts);
    // At equal cost more heads: a token's keys lie next to each other.
    if (cost < bestCost || (cost == bestCost && heads > bestHeads)) {
      cuts.erase(cuts.begin() + begin, cuts.begin() + middle);
      bestCost = cost;
      bestHeads = heads;
    } else {
      cuts.resize(size_t(middle));
    }
  }
}

const KeySet &visibleKeys(PlanContext &context, const SequenceShape &sequence,
                          uint32_t firstRowOfSequence, const RowTile &tile) {
  ClosedBounds::Inputs inputs =
      inputsOf(context, sequence, tile.firstRow - firstRowOfSequence, tile.rowCount);
  bundle::evaluate(context.facts.may,
                   {.queryLo = inputs.queryLo,
                    .queryHi = inputs.queryHi,
                    .queryLen = inputs.queryLen,
                    .keyLen = inputs.keyLen,
                    .scalars = context.scalars->values,
                    .perHeadMin = context.scalars->perHeadMin,
                    .perHeadMax = context.scalars->perHeadMax},
                   context.keySet);
  return context.keySet;
}

void setKeys(PlanContext &context, const SequenceShape &sequence, uint32_t firstRowOfSequence,
             int64_t fromKey, RowTile &tile) {
  const Variant &variant = context.variantOf(tile);
  int64_t begin = 0, end = 0, visible = 0;
  if (context.closed) {
    ClosedBounds::Ranges ranges = context.may.evaluate(
        inputsOf(context, sequence, tile.firstRow - firstRowOfSequence, tile.rowCount));
    unsigned kept = 0;
    for (unsigned i = 0; i < ranges.count; ++i) {
      ClosedBounds::Range range{std::max(ranges.at[i].begin, fromKey), ranges.at[i].end};
      if (range.begin >= range.end)
        continue;
      begin = kept ? std::min(begin, range.begin) : range.begin;
      end = std::max(end, range.end);
      ranges.at[kept++] = range;
    }
    ranges.count = kept;
    if (kept) {
      begin = variant.keyTileOf(uint32_t(begin));
      end = variant.keyTileOf(uint32_t(end - 1)) + 1;
      visible = kept == 1 ? end - begin : countTiles(ranges, variant.tileKeys);
    }
  } else {
    const KeySet &keys = visibleKeys(context, sequence, firstRowOfSequence, tile);
    if (std::optional<int64_t> first = keys.firstVisible(fromKey, sequence.keyLen)) {
      int64_t tileKeys = variant.tileKeys;
      begin = *first / tileKeys;
      end = *keys.lastVisible(fromKey, sequence.keyLen) / tileKeys + 1;
      visible = keys.visibleTiles(begin * tileKeys, sequence.keyLen, tileKeys);
    }
  }
  tile.beginTile = static_cast<uint32_t>(begin);
  tile.endTile = static_cast<uint32_t>(end);
  tile.visibleTiles = static_cast<uint32_t>(visible);
  tile.cost = costOf(variant, tile);
}

} // namespace llmopt::runtime

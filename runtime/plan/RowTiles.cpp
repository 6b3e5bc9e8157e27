#include "runtime/plan/RowTiles.h"

#include "runtime/plan/Planner.h"

#include <algorithm>

namespace llmopt::runtime {

using bundle::KeySet;

namespace {

/// Time that an item costs besides its tiles (loading Q, writing O), in tiles.
constexpr double kItemOverheadTiles = 0.25;

double costPerKey(const Variant &variant) { return variant.costPerTile / variant.tileKeys; }

uint64_t ceilDiv(uint64_t a, uint64_t b) { return a / b + (a % b != 0); }

/// Sets the key range of a tile from what its rows may see.
void setKeyRange(RowTile &tile, const KeySet &keys, int64_t keyLen, int64_t tileKeys) {
  std::optional<int64_t> first = keys.firstVisible(0, keyLen);
  if (!first)
    return;
  int64_t last = *keys.lastVisible(0, keyLen);
  tile.keyBegin = *first / tileKeys * tileKeys;
  tile.keyEnd = std::min(keyLen, (last / tileKeys + 1) * tileKeys);
  tile.visibleTiles = keys.visibleTiles(tile.keyBegin, tile.keyEnd, tileKeys);
}

} // namespace

double RowTile::cost(const Variant &of) const {
  return (static_cast<double>(visibleTiles) + kItemOverheadTiles) * of.costPerTile;
}

void cutRows(std::span<const Variant> variants, uint64_t rows, std::vector<RowCut> &cuts) {
  while (rows > 0) {
    uint32_t best = 0;
    double bestCost = 0;
    for (uint32_t i = 0; i < variants.size(); ++i) {
      double cost = ceilDiv(rows, variants[i].tileRows) * costPerKey(variants[i]);
      // At equal cost the larger tile: fewer items, and K and V are read less
      // often.
      bool better = i == 0 || cost < bestCost ||
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
    rows = full == 0 ? 0 : rows % tileRows;
  }
}

KeySet visibleKeys(const PlanContext &context, const SequenceShape &sequence,
                   uint32_t firstRowOfSequence, const RowTile &tile) {
  int64_t row = tile.firstRow - firstRowOfSequence;
  int64_t firstQuery = row / context.group;
  int64_t lastQuery = (row + tile.rowCount - 1) / context.group;
  bundle::BoundInputs inputs{.queryLo = positionOf(context.facts, sequence, firstQuery),
                             .queryHi = positionOf(context.facts, sequence, lastQuery),
                             .queryLen = sequence.queryLen,
                             .keyLen = sequence.keyLen,
                             .scalars = context.scalars.values,
                             .perHeadMin = context.scalars.perHeadMin,
                             .perHeadMax = context.scalars.perHeadMax};
  return bundle::evaluate(context.facts.may, inputs);
}

std::vector<RowTile> makeRowTiles(const PlanContext &context, const BatchShape &batch) {
  std::vector<RowTile> tiles;
  std::vector<RowCut> cuts;
  uint32_t firstRow = 0;
  for (uint32_t s = 0; s < batch.sequences.size(); ++s) {
    const SequenceShape &sequence = batch.sequences[s];
    uint32_t rows = static_cast<uint32_t>(sequence.queryLen) * context.group;
    cuts.clear();
    cutRows(context.variants, rows, cuts);
    uint32_t row = firstRow;
    for (const RowCut &cut : cuts) {
      RowTile tile{.sequence = s, .variant = cut.variant, .firstRow = row, .rowCount = cut.rows};
      KeySet keys = visibleKeys(context, sequence, firstRow, tile);
      setKeyRange(tile, keys, sequence.keyLen, context.variants[cut.variant].tileKeys);
      tiles.push_back(tile);
      row += cut.rows;
    }
    firstRow += rows;
  }
  return tiles;
}

} // namespace llmopt::runtime

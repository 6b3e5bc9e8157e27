#include "runtime/plan/split/DealItems.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace llmopt::runtime {

namespace {

/// Costs within an eighth of each other, larger ones first.
uint32_t sizeOf(uint64_t cost) {
  uint32_t log = uint32_t(std::bit_width(cost | 8)) - 4;
  return 511 - (log * 8 + uint32_t(cost >> log & 7));
}

} // namespace

DealItems::DealItems(uint32_t workers, uint32_t attends, uint64_t pieces, uint64_t itemRoom) {
  lots.reserve(pieces);
  sorted.reserve(pieces);
  sizeEnds.resize(kSizes + 1);
  loads.resize(workers);
  counts.resize(size_t{workers} * attends);
  workerOf.reserve(itemRoom);
}

template <bool Tuples>
void DealItems::collect(const PlanContext &context, std::span<const RowBlock> blocks,
                        std::span<const RowTile> tiles, const SplitByRule &pieces) {
  lots.clear();
  tuples = 0;
  for (const RowBlock &block : blocks) {
    uint32_t local = 0, heads = TupleSizes<Tuples>::heads(block);
    size_t from = lots.size();
    for (uint32_t t = block.firstTile; t < block.endTile; ++t) {
      std::span<const Piece> parts = pieces.of(t);
      const RowTile &tile = tiles[t];
      const Variant &variant = context.variantOf(tile);
      if (block.columnRows && tile.visibleTiles == 0)
        continue; // all its keys are shared: no item
      uint64_t split =
          parts.size() > 1 || block.columnRows ? context.partialRow * tile.rowCount : 0;
      for (const Piece &part : parts)
        lots.push_back({(variant.itemCost + part.visibleTiles * variant.tileCost + split) * heads,
                        tuples + local++, 0, variant.attend, heads});
    }
    for (size_t i = from; i < lots.size(); ++i)
      lots[i].stride = local;
    tuples += local * TupleSizes<Tuples>::units(block, context.facts);
  }
}

/// Walks lots of about the same size and what the workers have left side by side.
template <bool Tuples>
void DealItems::fill(std::span<const Lot> some, uint32_t kvHeads, uint64_t mean) {
  auto roomOf = [&](size_t worker) { return mean > loads[worker] ? mean - loads[worker] : 0; };
  size_t worker = 0;
  uint64_t place = 0, room = roomOf(0);
  for (const Lot &lot : some) {
    uint32_t *own = counts.data() + lot.attend * loads.size();
    uint16_t *to = workerOf.data() + lot.first;
    uint64_t cost = lot.cost, half = cost / 2;
    uint32_t heads = Tuples ? lot.heads : 1, units = kvHeads / heads;
    for (uint32_t unit = 0; unit < units;) {
      while (place + half > room && worker + 1 < loads.size())
        room += roomOf(++worker); // of none of this size yet
      uint32_t first = unit;
      do {
        *to = uint16_t(worker);
        to += lot.stride;
        place += cost;
      } while (++unit < units && (place + half <= room || worker + 1 == loads.size()));
      loads[worker] += cost * (unit - first);
      own[worker] += heads * (unit - first);
    }
  }
}

std::span<const uint16_t> DealItems::deal(const PlanContext &context,
                                          std::span<const RowBlock> blocks,
                                          std::span<const RowTile> tiles, const SplitByRule &pieces,
                                          uint32_t workers) {
  return context.tuples ? dealLots<true>(context, blocks, tiles, pieces, workers)
                        : dealLots<false>(context, blocks, tiles, pieces, workers);
}

template <bool Tuples>
std::span<const uint16_t>
DealItems::dealLots(const PlanContext &context, std::span<const RowBlock> blocks,
                    std::span<const RowTile> tiles, const SplitByRule &pieces, uint32_t workers) {
  collect<Tuples>(context, blocks, tiles, pieces);
  workerOf.resize(tuples);
  std::fill(counts.begin(), counts.end(), 0);
  std::fill(sizeEnds.begin(), sizeEnds.end(), 0);
  uint64_t total = 0;
  for (const Lot &lot : lots) {
    ++sizeEnds[sizeOf(lot.cost) + 1];
    total += lot.cost * (context.facts.kvHeads / (Tuples ? lot.heads : 1));
  }
  std::partial_sum(sizeEnds.begin(), sizeEnds.end(), sizeEnds.begin());
  sorted.resize(lots.size());
  for (const Lot &lot : lots)
    sorted[sizeEnds[sizeOf(lot.cost)]++] = lot; // afterwards each entry is its size's end
  std::fill(loads.begin(), loads.end(), 0);
  uint64_t mean = total / workers + 1;
  for (uint32_t size = 0, begin = 0; size < kSizes; begin = sizeEnds[size++])
    if (sizeEnds[size] > begin)
      fill<Tuples>(std::span(sorted).subspan(begin, sizeEnds[size] - begin), context.facts.kvHeads,
                   mean);
  return workerOf;
}

} // namespace llmopt::runtime

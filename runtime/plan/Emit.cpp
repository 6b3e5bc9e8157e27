#include "runtime/plan/Emit.h"

#include "runtime/plan/Mutants.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

namespace llmopt::runtime {

using bundle::WorkItem;

namespace {

WorkItem itemOf(const RowTile &tile, uint32_t tileKeys) {
  return {.firstRow = tile.firstRow,
          .rowCount = tile.rowCount,
          .kvHead = 0,
          .sequence = tile.record,
          .keyBegin = tile.beginTile * tileKeys,
          .keyEnd = tile.endTile * tileKeys,
          .partialSlot = -1,
          .flags = tile.flags};
}

typedef uint32_t Half __attribute__((vector_size(16)));

/// An item as two vectors: what differs from one item of a tile to the next takes an addition,
/// and each item two stores.
class Halves {
public:
  explicit Halves(const WorkItem &item) {
    std::memcpy(&low, &item, sizeof(low));
    std::memcpy(&high, reinterpret_cast<const uint8_t *>(&item) + sizeof(low), sizeof(high));
  }
  void moveHead(uint32_t by) { low += Half{0, 0, mutant(PlanMutant::HeadRepeated) ? 0u : by, 0}; }
  void setKeys(uint32_t begin, uint32_t end) {
    high[0] = begin;
    high[1] = end;
  }
  void moveSlot(uint32_t by) { high += Half{0, 0, by, 0}; }
  void write(WorkItem *to) const {
    std::memcpy(to, &low, sizeof(low));
    std::memcpy(reinterpret_cast<uint8_t *>(to) + sizeof(low), &high, sizeof(high));
  }

private:
  static_assert(offsetof(WorkItem, kvHead) == 8 && offsetof(WorkItem, keyBegin) == 16 &&
                offsetof(WorkItem, keyEnd) == 20 && offsetof(WorkItem, partialSlot) == 24);
  Half low, high;
};

/// Places of partials, and merges: for one tuple of heads of a block after the other. A part's
/// partials of a tuple's heads lie one after another, so that what one head needs of them is known
/// before it is known how many parts there will be.
template <bool Tuples> class Partials {
public:
  explicit Partials(Plan &plan) : plan(plan) { plan.partialRows = 0; }

  void beginTuple(const RowBlock &block, uint32_t unit) {
    heads = TupleSizes<Tuples>::heads(block);
    head = unit * heads;
    columnRows = block.columnRows;
    columns = 0;
    base = plan.partialRows;
  }
  /// Rows of a tile: with `split` they have partials.
  void beginTile(const RowTile &of, bool split) {
    tile = &of;
    parts = 0;
    splits = split || columnRows;
    if (columnRows)
      parts = above[tile->level];
    else
      base = plan.partialRows;
  }
  /// The slot of the tuple's first head.
  int32_t nextSlot() {
    if (!splits)
      return -1;
    uint64_t first = columnRows ? tile->blockRow : 0;
    return int32_t(base + parts++ * uint64_t{headRows()} * count() + first);
  }
  /// From the slot of a head to that of the next.
  uint32_t slotStep() const {
    return splits && !mutant(PlanMutant::SlotsOfTupleStay) ? headRows() : 0;
  }
  /// Slots of several parts of a tile that shares nothing: the first one's, or -1.
  int32_t takeSlots(uint32_t count) {
    parts = count;
    return splits ? int32_t(base) : -1;
  }
  void endTile() {
    if (!splits)
      return;
    if (columnRows) {
      above[tile->level + 1] = parts;
      columns = std::max(columns, parts);
    } else {
      plan.partialRows +=
          uint64_t{parts - mutant(PlanMutant::PartialsShared)} * tile->rowCount * count();
    }
    if (!tile->shared)
      for (uint32_t i = 0; i < count(); ++i)
        merge(i);
  }
  void endTuple() { plan.partialRows += uint64_t{columns} * columnRows * count(); }

private:
  /// Heads of the tuple.
  uint32_t count() const { return Tuples ? heads : 1; }
  /// Rows of a part for one head.
  uint32_t headRows() const { return columnRows ? columnRows : tile->rowCount; }

  /// Of the tuple's head `i`.
  void merge(uint32_t i) {
    uint32_t stride = headRows() * count();
    uint32_t first = uint32_t(base) + i * headRows() + (columnRows ? tile->blockRow : 0);
    // Two vectors as well: rows and partials go up together.
    static_assert(offsetof(bundle::MergeItem, row) == 0 &&
                  offsetof(bundle::MergeItem, firstPartial) == 12);
    uint32_t splitCount = parts - mutant(PlanMutant::MergeTooShort);
    Half low = {tile->firstRow, head + i, tile->record, first}, high = {splitCount, stride, 0, 0};
    bundle::MergeItem *out = plan.merges.end();
    for (uint32_t r = 0; r < tile->rowCount; ++r, low += Half{1, 0, 0, 1}) {
      std::memcpy(out + r, &low, sizeof(low));
      std::memcpy(reinterpret_cast<uint8_t *>(out + r) + sizeof(low), &high, sizeof(high));
    }
    plan.merges.setSize(plan.merges.size() + tile->rowCount - mutant(PlanMutant::MergeDropped));
  }

  Plan &plan;
  const RowTile *tile = nullptr;
  bool splits = false;
  uint32_t head = 0, heads = 1, columnRows = 0, columns = 0, parts = 0;
  uint64_t base = 0;
  uint32_t above[kMaxCascadeLevels + 2] = {}; ///< parts of the shared tiles above, by level
};

template <bool Tuples> class LineEmitter {
public:
  LineEmitter(PlanContext &context, const Batch &batch, std::span<const LoadCut> cuts, Plan &plan)
      : context(context), batch(batch), cuts(cuts), plan(plan), partials(plan) {
    for (AttendPlan &attend : plan.attends) {
      attend.itemOffsets.setSize(plan.workers + 1);
      attend.itemOffsets[0] = 0;
      attend.items.setSize(0);
    }
  }

  void run() {
    for (const RowBlock &block : batch.blocks) {
      if (block.endTile - block.firstTile == 1)
        emitTile(block);
      else
        emitBlock(block);
    }
    while (worker < plan.workers)
      openWorker();
    for (AttendPlan &attend : plan.attends)
      attend.itemOffsets[plan.workers] =
          uint32_t(attend.items.size()) - mutant(PlanMutant::LastItemForgotten);
  }

private:
  static uint32_t headsOf(const RowBlock &block) { return TupleSizes<Tuples>::heads(block); }
  uint32_t unitsOf(const RowBlock &block) const {
    return TupleSizes<Tuples>::units(block, context.facts);
  }
  void openWorker() {
    for (AttendPlan &attend : plan.attends)
      attend.itemOffsets[worker] = uint32_t(attend.items.size());
    ++worker;
  }
  const LoadCut &nextCut() const { return cuts[worker]; }

  /// Nearly all tiles of a decode step are of the variant that the tile before was of.
  void know(uint32_t variant) {
    known = variant;
    knownTileKeys = context.variants[variant].tileKeys;
    knownItems = &plan.attends[context.variants[variant].attend].items;
  }

  /// One tile for each tuple: the common case of a decode step, in runs without a cut.
  void emitTile(const RowBlock &block) {
    const RowTile &tile = batch.tiles[block.firstTile];
    if (tile.variant != known)
      know(tile.variant);
    PlanArray<WorkItem> &items = *knownItems;
    const WorkItem item = itemOf(tile, knownTileKeys);
    Halves halves(item);
    uint32_t units = unitsOf(block), heads = headsOf(block);
    if (nextCut().place >= place + units) { // most of them
      WorkItem *out = items.end();
      uint32_t all = context.facts.kvHeads;
      for (uint32_t i = 0; i < all; ++i, halves.moveHead(1))
        halves.write(out + i);
      items.setSize(items.size() + all);
      place += units;
      return;
    }
    for (uint32_t unit = 0; unit < units;) {
      while (nextCut() == LoadCut{place, 0})
        openWorker();
      uint32_t run = uint32_t(std::min<uint64_t>(units - unit, nextCut().place - place));
      WorkItem *out = items.end();
      for (uint32_t i = 0; i < run * heads; ++i, halves.moveHead(1))
        halves.write(out + i);
      unit += run;
      items.setSize(items.size() + run * heads);
      place += run;
      if (unit < units && nextCut().place == place && nextCut().keyTiles) {
        partials.beginTuple(block, unit);
        emitCutTile(block, tile, unit++);
        partials.endTuple();
        halves.moveHead(heads);
        ++place;
      }
    }
  }

  void emitBlock(const RowBlock &block) {
    for (uint32_t unit = 0; unit < unitsOf(block); ++unit) {
      partials.beginTuple(block, unit);
      for (uint32_t t = block.firstTile; t < block.endTile; ++t, ++place) {
        while (nextCut() == LoadCut{place, 0})
          openWorker();
        const RowTile &tile = batch.tiles[t];
        const Variant &variant = context.variantOf(tile);
        WorkItem item = itemOf(tile, variant.tileKeys);
        if (nextCut().place == place) {
          emitCutTile(block, tile, unit);
          continue;
        }
        partials.beginTile(tile, false);
        if (tile.visibleTiles || !block.columnRows) {
          item.kvHead = unit * headsOf(block);
          item.partialSlot = partials.nextSlot();
          uint32_t step = partials.slotStep();
          for (uint32_t i = 0; i < headsOf(block); ++i, ++item.kvHead, item.partialSlot += step)
            plan.attends[variant.attend].items.push(item);
        }
        partials.endTile();
      }
      partials.endTuple();
    }
  }

  /// A tile with one cut or more inside.
  void emitCutTile(const RowBlock &block, const RowTile &tile, uint32_t unit) {
    const Variant &variant = context.variantOf(tile);
    PlanArray<WorkItem> &items = plan.attends[variant.attend].items;
    const bundle::KeySet *keys = nullptr;
    if (!tile.contiguous())
      keys = &visibleKeys(context, batch.shape.sequences[tile.sequence],
                          batch.firstRows[tile.sequence], tile);
    auto keyAt = [&](uint32_t visible) -> uint32_t {
      if (visible == 0 || visible == tile.visibleTiles)
        return (visible ? tile.endTile : tile.beginTile) * variant.tileKeys;
      if (!keys)
        return (tile.beginTile + visible) * variant.tileKeys;
      return uint32_t(keys->endOfVisibleTile(int64_t{tile.beginTile} * variant.tileKeys,
                                             int64_t{tile.endTile} * variant.tileKeys,
                                             variant.tileKeys, visible));
    };
    partials.beginTile(tile, true);
    uint32_t from = 0, step = partials.slotStep(), keyEnd = keyAt(0);
    auto emit = [&](uint32_t to) {
      bool early = from > 0 && mutant(PlanMutant::KeysOverlap);
      uint32_t keyBegin = keyEnd - (early ? variant.tileKeys : 0);
      bool less = to == tile.visibleTiles && mutant(PlanMutant::KeysMissing);
      keyEnd = keyAt(to - less);
      uint32_t head = unit * headsOf(block);
      int32_t slot = partials.nextSlot();
      for (uint32_t i = 0; i < headsOf(block); ++i, ++head, slot += step) {
        // Number by number to where it stays: a copy of what was just put together would wait for
        // its parts.
        WorkItem *out = items.end();
        out->firstRow = tile.firstRow;
        out->rowCount = tile.rowCount;
        out->kvHead = head;
        out->sequence = tile.record;
        out->keyBegin = keyBegin;
        out->keyEnd = keyEnd;
        out->partialSlot = slot;
        out->flags = tile.flags;
        items.setSize(items.size() + 1);
        // The later heads are cut a key tile behind the first one.
        if (mutant(PlanMutant::CutThroughOneHead) && i > 0 && tile.contiguous()) {
          items.back().keyBegin += from > 0 ? variant.tileKeys : 0;
          items.back().keyEnd += to < tile.visibleTiles ? variant.tileKeys : 0;
        }
      }
      from = to;
    };
    while (nextCut().place == place) {
      if (nextCut().keyTiles > from)
        emit(nextCut().keyTiles);
      openWorker();
    }
    emit(tile.visibleTiles);
    partials.endTile();
  }

  PlanContext &context;
  const Batch &batch;
  std::span<const LoadCut> cuts;
  Plan &plan;
  Partials<Tuples> partials;
  uint32_t known = UINT32_MAX, knownTileKeys = 0; ///< a variant
  PlanArray<WorkItem> *knownItems = nullptr;
  uint32_t worker = 1;
  uint64_t place = 0;
};

} // namespace

void emitByLoad(PlanContext &context, const Batch &batch, std::span<const LoadCut> cuts,
                Plan &plan) {
  if (context.tuples)
    LineEmitter<true>(context, batch, cuts, plan).run();
  else
    LineEmitter<false>(context, batch, cuts, plan).run();
}

namespace {

template <bool Tuples> class DealtEmitter {
public:
  DealtEmitter(PlanContext &context, const Batch &batch, const SplitByRule &pieces,
               std::span<const uint16_t> workerOf, std::span<uint32_t> next, Plan &plan)
      : context(context), batch(batch), pieces(pieces), workerOf(workerOf.data()), next(next),
        plan(plan), partials(plan) {}

  void run() {
    for (const RowBlock &block : batch.blocks)
      if (block.endTile - block.firstTile == 1 && !block.columnRows)
        emitTile(block);
      else
        emitBlock(block);
  }

private:
  static uint32_t headsOf(const RowBlock &block) { return TupleSizes<Tuples>::heads(block); }
  uint32_t unitsOf(const RowBlock &block) const {
    return TupleSizes<Tuples>::units(block, context.facts);
  }
  /// Where the next item of each worker goes.
  uint32_t *placesOf(const Variant &variant) {
    return next.data() + variant.attend * size_t{plan.workers + 1};
  }

  /// Where the items of the next tuple go.
  uint32_t takePlaces(const RowBlock &block, uint32_t *places) {
    uint32_t &next = places[*workerOf++];
    return std::exchange(next, next + headsOf(block));
  }

  /// One tile for each tuple: a part's items differ by head and slot.
  void emitTile(const RowBlock &block) {
    const RowTile &tile = batch.tiles[block.firstTile];
    const Variant &variant = context.variantOf(tile);
    uint32_t *places = placesOf(variant);
    WorkItem *items = plan.attends[variant.attend].items.data();
    std::span<const Piece> parts = pieces.of(block.firstTile);
    bool split = parts.size() > 1;
    for (uint32_t unit = 0; unit < unitsOf(block); ++unit) {
      partials.beginTuple(block, unit);
      partials.beginTile(tile, split);
      WorkItem item = itemOf(tile, variant.tileKeys);
      item.kvHead = unit * headsOf(block);
      item.partialSlot = partials.takeSlots(uint32_t(parts.size()));
      uint32_t step = partials.slotStep();
      Halves halves(item);
      for (const Piece &part : parts) {
        halves.setKeys(part.beginTile * variant.tileKeys, part.endTile * variant.tileKeys);
        WorkItem *out = items + takePlaces(block, places);
        Halves each = halves;
        each.write(out);
        for (uint32_t i = 1; i < headsOf(block); ++i) {
          each.moveHead(1);
          each.moveSlot(step);
          each.write(out + i);
        }
        halves.moveSlot(split ? tile.rowCount * headsOf(block) : 0);
      }
      partials.endTile();
    }
  }

  void emitBlock(const RowBlock &block) {
    for (uint32_t unit = 0; unit < unitsOf(block); ++unit) {
      partials.beginTuple(block, unit);
      for (uint32_t t = block.firstTile; t < block.endTile; ++t) {
        const RowTile &tile = batch.tiles[t];
        const Variant &variant = context.variantOf(tile);
        std::span<const Piece> parts = pieces.of(t);
        partials.beginTile(tile, parts.size() > 1);
        if (tile.visibleTiles || !block.columnRows) {
          WorkItem item = itemOf(tile, variant.tileKeys);
          uint32_t step = partials.slotStep();
          for (const Piece &part : parts) {
            item.keyBegin = part.beginTile * variant.tileKeys;
            item.keyEnd = part.endTile * variant.tileKeys;
            item.kvHead = unit * headsOf(block);
            item.partialSlot = partials.nextSlot();
            WorkItem *out =
                plan.attends[variant.attend].items.data() + takePlaces(block, placesOf(variant));
            for (uint32_t i = 0; i < headsOf(block); ++i, ++item.kvHead, item.partialSlot += step)
              out[i] = item;
          }
        }
        partials.endTile();
      }
      partials.endTuple();
    }
  }

  PlanContext &context;
  const Batch &batch;
  const SplitByRule &pieces;
  const uint16_t *workerOf;
  std::span<uint32_t> next;
  Plan &plan;
  Partials<Tuples> partials;
};

} // namespace

void emitDealt(PlanContext &context, const Batch &batch, const SplitByRule &pieces,
               const DealItems &deal, std::span<const uint16_t> workerOf,
               std::vector<uint32_t> &next, Plan &plan) {
  uint32_t workers = plan.workers;
  next.resize(plan.attends.size() * (workers + 1));
  for (size_t a = 0; a < plan.attends.size(); ++a) {
    AttendPlan &attend = plan.attends[a];
    std::span<const uint32_t> counts = deal.countsOf(uint32_t(a));
    uint32_t *begins = next.data() + a * (workers + 1);
    begins[0] = 0;
    for (uint32_t w = 0; w < workers; ++w)
      begins[w + 1] = begins[w] + counts[w];
    attend.itemOffsets.setSize(workers + 1);
    std::copy_n(begins, workers + 1, attend.itemOffsets.begin());
    attend.items.setSize(begins[workers]);
  }
  if (context.tuples)
    DealtEmitter<true>(context, batch, pieces, workerOf, next, plan).run();
  else
    DealtEmitter<false>(context, batch, pieces, workerOf, next, plan).run();
}

} // namespace llmopt::runtime

#include "runtime/plan/Emit.h"

#include "runtime/plan/Mutants.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

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
  void nextHead() { low += Half{0, 0, mutant(PlanMutant::HeadRepeated) ? 0u : 1u, 0}; }
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

/// Places of partials, and merges: for one head of a block after the other.
class Partials {
public:
  explicit Partials(Plan &plan) : plan(plan) { plan.partialRows = 0; }

  void beginHead(const RowBlock &block, uint32_t kvHead) {
    head = kvHead;
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
  int32_t nextSlot() {
    if (!splits)
      return -1;
    uint64_t stride = columnRows ? columnRows : tile->rowCount;
    uint64_t first = columnRows ? tile->blockRow : 0;
    return int32_t(base + parts++ * stride + first);
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
      plan.partialRows += uint64_t{parts - mutant(PlanMutant::PartialsShared)} * tile->rowCount;
    }
    if (!tile->shared)
      merge();
  }
  void endHead() { plan.partialRows += uint64_t{columns} * columnRows; }

private:
  void merge() {
    uint32_t stride = columnRows ? columnRows : tile->rowCount;
    uint32_t first = uint32_t(base) + (columnRows ? tile->blockRow : 0);
    // Two vectors as well: rows and partials go up together.
    static_assert(offsetof(bundle::MergeItem, row) == 0 &&
                  offsetof(bundle::MergeItem, firstPartial) == 12);
    uint32_t count = parts - mutant(PlanMutant::MergeTooShort);
    Half low = {tile->firstRow, head, tile->record, first}, high = {count, stride, 0, 0};
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
  uint32_t head = 0, columnRows = 0, columns = 0, parts = 0;
  uint64_t base = 0;
  uint32_t above[kMaxCascadeLevels + 2] = {}; ///< parts of the shared tiles above, by level
};

class LineEmitter {
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
        emitHeads(block);
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
  void openWorker() {
    for (AttendPlan &attend : plan.attends)
      attend.itemOffsets[worker] = uint32_t(attend.items.size());
    ++worker;
  }
  const LoadCut &nextCut() const { return cuts[worker]; }

  /// One tile for each head: the common case of a decode step, in runs without a cut.
  void emitHeads(const RowBlock &block) {
    const RowTile &tile = batch.tiles[block.firstTile];
    const Variant &variant = context.variantOf(tile);
    PlanArray<WorkItem> &items = plan.attends[variant.attend].items;
    const WorkItem item = itemOf(tile, variant.tileKeys);
    Halves halves(item);
    uint32_t heads = context.facts.kvHeads;
    if (nextCut().place >= place + heads) { // most of them
      WorkItem *out = items.end();
      for (uint32_t i = 0; i < heads; ++i, halves.nextHead())
        halves.write(out + i);
      items.setSize(items.size() + heads);
      place += heads;
      return;
    }
    for (uint32_t head = 0; head < heads;) {
      while (nextCut() == LoadCut{place, 0})
        openWorker();
      uint32_t run = uint32_t(std::min<uint64_t>(heads - head, nextCut().place - place));
      WorkItem *out = items.end();
      for (uint32_t i = 0; i < run; ++i, halves.nextHead())
        halves.write(out + i);
      head += run;
      items.setSize(items.size() + run);
      place += run;
      if (head < heads && nextCut().place == place && nextCut().keyTiles) {
        partials.beginHead(block, head);
        emitCutTile(tile, item, head++);
        partials.endHead();
        halves.nextHead();
        ++place;
      }
    }
  }

  void emitBlock(const RowBlock &block) {
    for (uint32_t head = 0; head < context.facts.kvHeads; ++head) {
      partials.beginHead(block, head);
      for (uint32_t t = block.firstTile; t < block.endTile; ++t, ++place) {
        while (nextCut() == LoadCut{place, 0})
          openWorker();
        const RowTile &tile = batch.tiles[t];
        const Variant &variant = context.variantOf(tile);
        WorkItem item = itemOf(tile, variant.tileKeys);
        if (nextCut().place == place) {
          emitCutTile(tile, item, head);
          continue;
        }
        partials.beginTile(tile, false);
        if (tile.visibleTiles || !block.columnRows) {
          item.kvHead = head;
          item.partialSlot = partials.nextSlot();
          plan.attends[variant.attend].items.push(item);
        }
        partials.endTile();
      }
      partials.endHead();
    }
  }

  /// A tile with one cut or more inside.
  void emitCutTile(const RowTile &tile, WorkItem item, uint32_t head) {
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
    item.kvHead = head;
    partials.beginTile(tile, true);
    uint32_t from = 0;
    item.keyEnd = keyAt(0);
    auto emit = [&](uint32_t to) {
      bool early = from > 0 && mutant(PlanMutant::KeysOverlap);
      item.keyBegin = item.keyEnd - (early ? variant.tileKeys : 0);
      bool less = to == tile.visibleTiles && mutant(PlanMutant::KeysMissing);
      item.keyEnd = keyAt(to - less);
      item.partialSlot = partials.nextSlot();
      items.push(item);
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
  Partials partials;
  uint32_t worker = 1;
  uint64_t place = 0;
};

} // namespace

void emitByLoad(PlanContext &context, const Batch &batch, std::span<const LoadCut> cuts,
                Plan &plan) {
  LineEmitter(context, batch, cuts, plan).run();
}

namespace {

class DealtEmitter {
public:
  DealtEmitter(PlanContext &context, const Batch &batch, const SplitByRule &pieces,
               std::span<const uint16_t> workerOf, std::span<uint32_t> next, Plan &plan)
      : context(context), batch(batch), pieces(pieces), workerOf(workerOf.data()), next(next),
        plan(plan), partials(plan) {}

  void run() {
    for (const RowBlock &block : batch.blocks)
      if (block.endTile - block.firstTile == 1 && !block.columnRows)
        emitHeads(block);
      else
        emitBlock(block);
  }

private:
  /// Where the next item of each worker goes.
  uint32_t *placesOf(const Variant &variant) {
    return next.data() + variant.attend * size_t{plan.workers + 1};
  }

  /// One tile for each head: a part's items differ by head and slot.
  void emitHeads(const RowBlock &block) {
    const RowTile &tile = batch.tiles[block.firstTile];
    const Variant &variant = context.variantOf(tile);
    uint32_t *places = placesOf(variant);
    WorkItem *items = plan.attends[variant.attend].items.data();
    std::span<const Piece> parts = pieces.of(block.firstTile);
    bool split = parts.size() > 1;
    for (uint32_t head = 0; head < context.facts.kvHeads; ++head) {
      partials.beginHead(block, head);
      partials.beginTile(tile, split);
      WorkItem item = itemOf(tile, variant.tileKeys);
      item.kvHead = head;
      item.partialSlot = partials.takeSlots(uint32_t(parts.size()));
      Halves halves(item);
      for (const Piece &part : parts) {
        halves.setKeys(part.beginTile * variant.tileKeys, part.endTile * variant.tileKeys);
        halves.write(items + places[*workerOf++]++);
        halves.moveSlot(split ? tile.rowCount : 0);
      }
      partials.endTile();
    }
  }

  void emitBlock(const RowBlock &block) {
    for (uint32_t head = 0; head < context.facts.kvHeads; ++head) {
      partials.beginHead(block, head);
      for (uint32_t t = block.firstTile; t < block.endTile; ++t) {
        const RowTile &tile = batch.tiles[t];
        const Variant &variant = context.variantOf(tile);
        std::span<const Piece> parts = pieces.of(t);
        partials.beginTile(tile, parts.size() > 1);
        if (tile.visibleTiles || !block.columnRows) {
          WorkItem item = itemOf(tile, variant.tileKeys);
          item.kvHead = head;
          for (const Piece &part : parts) {
            item.keyBegin = part.beginTile * variant.tileKeys;
            item.keyEnd = part.endTile * variant.tileKeys;
            item.partialSlot = partials.nextSlot();
            plan.attends[variant.attend].items[placesOf(variant)[*workerOf++]++] = item;
          }
        }
        partials.endTile();
      }
      partials.endHead();
    }
  }

  PlanContext &context;
  const Batch &batch;
  const SplitByRule &pieces;
  const uint16_t *workerOf;
  std::span<uint32_t> next;
  Plan &plan;
  Partials partials;
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
  DealtEmitter(context, batch, pieces, workerOf, next, plan).run();
}

} // namespace llmopt::runtime

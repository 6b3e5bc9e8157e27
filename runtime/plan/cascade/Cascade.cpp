#include "runtime/plan/cascade/Cascade.h"

#include "runtime/plan/Mutants.h"
#include "runtime/plan/Planner.h"

#include <algorithm>
#include <numeric>

namespace llmopt::runtime {

using bundle::BoundOp;

namespace {

bool readsLengths(const bundle::BoundProgram &program) {
  return std::any_of(program.begin(), program.end(), [](const bundle::BoundInsn &insn) {
    return insn.op == BoundOp::QueryLen || insn.op == BoundOp::KeyLen;
  });
}

/// Bounds that depend on positions alone mean the same for rows of any sequence.
bool dependsOnLengths(const bundle::BoundSet &set) {
  return std::any_of(set.intervals.begin(), set.intervals.end(), [](const auto &interval) {
    return readsLengths(interval.lo) || readsLengths(interval.hi) || !interval.stride.empty();
  });
}

bool isSupported(const PlanContext &context) {
  const bundle::AttentionFacts &facts = context.facts;
  for (const Variant &variant : context.variants)
    if (variant.tileKeys != context.variants[0].tileKeys)
      return false;
  return facts.mixesSequences && !facts.topLeft && facts.kvForm == bundle::KvForm::Paged &&
         facts.queryForm == bundle::QueryForm::Ragged && !dependsOnLengths(facts.may) &&
         !dependsOnLengths(facts.surely);
}

/// End of the keys from `from` on that lie in the ranges without a gap.
int64_t coveredUntil(const ClosedBounds::Ranges &ranges, int64_t from) {
  for (bool more = true; more;) {
    more = false;
    for (unsigned i = 0; i < ranges.count; ++i)
      if (ranges.at[i].begin <= from && ranges.at[i].end > from) {
        from = ranges.at[i].end;
        more = true;
      }
  }
  return from;
}

} // namespace

std::string_view toString(CascadeAnswer answer) {
  switch (answer) {
  case CascadeAnswer::Used:
    return "used";
  case CascadeAnswer::Off:
    return "off";
  case CascadeAnswer::NothingShared:
    return "nothing_shared";
  case CascadeAnswer::Unsupported:
    return "unsupported";
  case CascadeAnswer::Hidden:
    return "hidden";
  case CascadeAnswer::NoGain:
    return "no_gain";
  case CascadeAnswer::NoRoom:
    return "no_room";
  }
  return "unknown";
}

/// One batch's tiles while they are made.
struct Cascade::Build {
  PlanContext &context;
  const BatchShape &batch;
  std::span<const uint32_t> firstRows;
  const CascadeRule &rule;
  std::vector<RowBlock> &blocks;
  std::vector<RowTile> &tiles;
  std::vector<uint8_t> &placed;

  uint32_t maxRows; ///< of the tallest kernel
  ClosedBounds surely;
  uint32_t blockFirst = 0;             ///< packed row of the block's first, in the row list
  uint32_t blockRow = 0;               ///< rows of the block that are placed
  uint64_t nextRow = 0, blockRows = 0; ///< of all blocks
  uint64_t gain = 0;
  bool sawHidden = false, sawNoGain = false;

  uint32_t rowsOf(uint32_t sequence) const {
    return uint32_t(batch.sequences[sequence].queryLen) * context.group;
  }
  const Variant &cheapestFor(uint32_t rows, uint32_t &index) const {
    bool found = false;
    for (uint32_t i = 0; i < context.variants.size(); ++i) {
      const Variant &variant = context.variants[i];
      if (variant.tileRows >= rows &&
          (!found || variant.costPerTile / variant.tileKeys <
                         context.variants[index].costPerTile / context.variants[index].tileKeys)) {
        index = i;
        found = true;
      }
    }
    return context.variants[index];
  }
};

Cascade::Cascade(size_t sequences, size_t nodeRoom) : nodes(nodeRoom), nextSequence(sequences) {
  order.reserve(sequences);
  blockOrder.reserve(sequences);
  shared.reserve(sequences * 2);
  roots.reserve(nodeRoom);
  cuts.reserve(64);
}

/// Hangs the batch's sequences below the nodes on their ways. False where no two share a node.
bool Cascade::connect(const PlanContext &context, const BatchShape &batch) {
  if (++stamp == 0) {
    std::fill(nodes.begin(), nodes.end(), Node());
    stamp = 1;
  }
  if (nodes.size() < batch.prefixes.size())
    nodes.resize(batch.prefixes.size());
  roots.clear();
  uint32_t maxRows = 0;
  for (const Variant &variant : context.variants)
    maxRows = std::max(maxRows, variant.tileRows);
  bool meets = false;
  for (uint32_t s = 0; s < batch.sequences.size(); ++s) {
    const SequenceShape &sequence = batch.sequences[s];
    uint32_t at = sequence.prefix;
    if (at >= batch.prefixes.size() || sequence.queryLen < 1 ||
        uint64_t(sequence.queryLen) * context.group > maxRows)
      continue;
    uint32_t child = kNoPrefix;
    while (true) {
      Node &node = nodes[at];
      bool known = node.stamp == stamp;
      if (!known)
        node = {stamp, kNoPrefix, kNoPrefix, kNoPrefix, 0, 0};
      meets |= known;
      if (child != kNoPrefix) {
        nodes[child].nextSibling = node.firstChild;
        node.firstChild = child;
      } else {
        nextSequence[s] = node.firstSequence;
        node.firstSequence = s;
      }
      if (known)
        break;
      child = at;
      at = batch.prefixes[at].parent;
      if (at >= batch.prefixes.size()) {
        roots.push_back(child);
        break;
      }
    }
  }
  return meets;
}

/// Puts the sequences below a node next to each other.
void Cascade::arrange(uint32_t index) {
  Node &node = nodes[index];
  node.begin = uint32_t(order.size());
  for (uint32_t s = node.firstSequence; s != kNoPrefix; s = nextSequence[s])
    order.push_back(s);
  for (uint32_t child = node.firstChild; child != kNoPrefix; child = nodes[child].nextSibling)
    arrange(child);
  node.end = uint32_t(order.size());
}

/// Where the keys end that all rows of the part see wholly, from `fromKey` on.
int64_t Cascade::sharedEnd(Build &build, const Part &part) const {
  int64_t unit = build.rule.splitKeys ? build.rule.splitKeys : build.context.variants[0].tileKeys;
  int64_t end = int64_t(build.batch.prefixes[part.node].keyEnd) / unit * unit;
  if (end <= part.fromKey)
    return part.fromKey;
  ClosedBounds::Inputs inputs{INT64_MAX, INT64_MIN, 1, 0};
  for (uint32_t i = part.first; i < part.last; ++i) {
    const SequenceShape &sequence = build.batch.sequences[order[i]];
    inputs.queryLo = std::min(inputs.queryLo, positionOf(build.context.facts, sequence, 0));
    inputs.queryHi =
        std::max(inputs.queryHi, positionOf(build.context.facts, sequence, sequence.queryLen - 1));
    end = std::min(end, sequence.keyLen / unit * unit);
  }
  inputs.keyLen = end;
  int64_t seen = coveredUntil(build.surely.evaluate(inputs), part.fromKey) / unit * unit;
  build.sawHidden |= seen < end;
  return std::max(part.fromKey, mutant(PlanMutant::SharedNotSeen) ? end : std::min(end, seen));
}

/// Compares the model's cost of keys [fromKey, end) as one item with that of one each.
bool Cascade::worthwhile(Build &build, const Part &part, int64_t end, uint32_t rows) {
  PlanContext &context = build.context;
  uint32_t index = 0;
  const Variant &one = build.cheapestFor(rows, index);
  uint64_t keyTiles = uint64_t(end - part.fromKey) / one.tileKeys;
  uint64_t parts = build.rule.splitKeys ? uint64_t((end - part.fromKey) / build.rule.splitKeys) : 1;
  uint64_t with = keyTiles * one.tileCost + parts * one.itemCost, without = 0;
  if (!build.rule.splitKeys) // partials that would not be there else
    with += context.partialRow * rows * (part.level == 0 ? 2 : 1);
  uint64_t lastRows = 0, lastCost = 0;
  for (uint32_t i = part.first; i < part.last; ++i) {
    uint32_t own = build.rowsOf(order[i]);
    if (own != lastRows) {
      cuts.clear();
      cutRows(context.variants, own, cuts);
      lastRows = own;
      lastCost = 0;
      for (const RowCut &cut : cuts) {
        const Variant &variant = context.variants[cut.variant];
        lastCost += keyTiles * variant.tileCost;
        if (build.rule.splitKeys)
          lastCost += parts * variant.itemCost;
      }
    }
    without += lastCost;
  }
  if (with >= without) {
    build.sawNoGain = true;
    return false;
  }
  build.gain += (without - with) * context.facts.kvHeads;
  return true;
}

void Cascade::placePrivate(Build &build, uint32_t s, const Part &part) {
  PlanContext &context = build.context;
  const SequenceShape &sequence = build.batch.sequences[s];
  cuts.clear();
  cutRows(context.variants, build.rowsOf(s), cuts);
  uint32_t row = build.firstRows[s];
  for (const RowCut &cut : cuts) {
    RowTile tile{.record = s, .firstRow = row, .rowCount = cut.rows, .variant = cut.variant};
    tile.sequence = s;
    tile.level = uint8_t(part.level);
    tile.blockRow = build.blockRow;
    setKeys(context, sequence, build.firstRows[s], part.fromKey, tile);
    if (part.level > 0) {
      if (tile.visibleTiles == 0)
        tile.cost = 0; // all its keys are shared ones
      tile.cost += context.partialRow * cut.rows;
      build.blockRow += cut.rows;
    }
    build.tiles.push_back(tile);
    row += cut.rows;
  }
  build.placed[s] = 1;
}

/// The part's rows below its node, in the order of `order`.
void Cascade::place(Build &build, const Part &part) {
  const Node &node = nodes[part.node];
  uint32_t at = node.begin;
  for (uint32_t s = node.firstSequence; s != kNoPrefix; s = nextSequence[s], ++at)
    if (at >= part.first && at < part.last && part.level > 0)
      placePrivate(build, s, part);
  for (uint32_t child = node.firstChild; child != kNoPrefix; child = nodes[child].nextSibling) {
    Part below{child, std::max(part.first, nodes[child].begin),
               std::min(part.last, nodes[child].end), part.level, part.fromKey};
    if (below.first < below.last)
      placeChild(build, below);
  }
}

/// Takes a node's keys as a shared item where that pays, and goes on below it.
void Cascade::placeChild(Build &build, const Part &part) {
  PlanContext &context = build.context;
  for (uint32_t first = part.first, last = first; first < part.last; first = last) {
    // As many sequences as fit a tile: inside a block all of them do.
    uint32_t rows = 0;
    for (last = first; last < part.last && rows + build.rowsOf(order[last]) <= build.maxRows;
         ++last)
      rows += build.rowsOf(order[last]);
    Part some{part.node, first, last, part.level, part.fromKey};
    int64_t end =
        part.level < build.rule.levels && last - first > 1 ? sharedEnd(build, some) : part.fromKey;
    if (end == part.fromKey || !worthwhile(build, some, end, rows)) {
      place(build, some);
      continue;
    }
    RowBlock block{.firstTile = uint32_t(build.tiles.size()), .columnRows = rows};
    if (part.level == 0) {
      build.blockFirst = uint32_t(build.nextRow);
      build.blockRow = 0;
      build.nextRow += rows;
      for (uint32_t i = first; i < last; ++i)
        blockOrder.push_back(order[i]);
    }
    RowTile tile{.firstRow = build.blockFirst + build.blockRow,
                 .rowCount = rows - mutant(PlanMutant::SharedRowLeftOut)};
    const Variant &variant = build.cheapestFor(rows, tile.variant);
    tile.record = uint32_t(build.batch.sequences.size() + shared.size());
    tile.beginTile = uint32_t(part.fromKey / variant.tileKeys);
    tile.endTile = uint32_t(end / variant.tileKeys);
    tile.visibleTiles = tile.endTile - tile.beginTile;
    tile.flags = bundle::kMixedSequences;
    tile.level = uint8_t(part.level);
    tile.shared = true;
    tile.blockRow = build.blockRow;
    tile.sequence = order[first];
    tile.cost = costOf(variant, tile) + context.partialRow * rows;
    shared.push_back(uint32_t(build.tiles.size()));
    build.tiles.push_back(tile);
    int64_t ownFrom = end + int64_t(variant.tileKeys) * (mutant(PlanMutant::SharedKeysMissing) -
                                                         mutant(PlanMutant::SharedKeysTwice));
    place(build, {part.node, first, last, part.level + 1, ownFrom});
    if (part.level == 0) {
      block.endTile = uint32_t(build.tiles.size());
      for (uint32_t t = block.firstTile; t < block.endTile; ++t)
        block.heads = std::lcm(block.heads, context.variantOf(build.tiles[t]).heads);
      build.blocks.push_back(block);
      build.blockRows += rows;
    }
  }
}

CascadeAnswer Cascade::build(PlanContext &context, const BatchShape &batch,
                             std::span<const uint32_t> firstRows, const CascadeRule &rule,
                             std::vector<RowBlock> &blocks, std::vector<RowTile> &tiles,
                             std::vector<uint8_t> &placed) {
  clear();
  if (rule.levels == 0)
    return CascadeAnswer::Off;
  if (batch.prefixes.empty())
    return CascadeAnswer::NothingShared;
  if (!isSupported(context) || !context.closed)
    return CascadeAnswer::Unsupported;
  Build build{.context = context,
              .batch = batch,
              .firstRows = firstRows,
              .rule = rule,
              .blocks = blocks,
              .tiles = tiles,
              .placed = placed,
              .maxRows = 0,
              .surely = {}};
  if (!build.surely.compile(context.facts.surely, *context.scalars))
    return CascadeAnswer::Unsupported;
  if (!connect(context, batch))
    return CascadeAnswer::NothingShared;
  for (const Variant &variant : context.variants)
    build.maxRows = std::max(build.maxRows, variant.tileRows);
  build.nextRow = firstRows[batch.sequences.size()];
  order.clear();
  for (uint32_t root : roots) {
    arrange(root);
    placeChild(build, {root, nodes[root].begin, nodes[root].end, 0, 0});
  }
  CascadeAnswer answer = CascadeAnswer::Used;
  if (shared.empty())
    answer = build.sawNoGain   ? CascadeAnswer::NoGain
             : build.sawHidden ? CascadeAnswer::Hidden
                               : CascadeAnswer::NothingShared;
  else if (build.blockRows > rule.blockRows || shared.size() > rule.levels * batch.sequences.size())
    answer = CascadeAnswer::NoRoom;
  else if (build.gain <= rule.leastGain)
    answer = CascadeAnswer::NoGain;
  if (answer == CascadeAnswer::Used)
    return answer;
  clear();
  blocks.clear();
  tiles.clear();
  std::fill(placed.begin(), placed.end(), 0);
  return answer;
}

} // namespace llmopt::runtime

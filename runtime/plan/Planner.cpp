#include "runtime/plan/Planner.h"

#include "runtime/plan/Emit.h"
#include "runtime/plan/Mutants.h"
#include "runtime/plan/RowTiles.h"
#include "runtime/plan/split/DealItems.h"
#include "runtime/plan/split/SplitByLoad.h"
#include "runtime/plan/split/SplitByRule.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>

namespace llmopt::runtime {

#ifdef LLMOPT_PLAN_MUTANTS
PlanMutant activePlanMutant = PlanMutant::None;
#endif

using bundle::AttentionFacts;
using bundle::Program;

namespace {

using bundle::kMaxLength, bundle::kMaxRows;

constexpr uint64_t kMaxU32 = std::numeric_limits<uint32_t>::max();
constexpr uint32_t kMaxWorkers = 1u << 16;

/// Rows must be computed alike whatever else is in the batch: key tiles of one
/// size.
void keepInvariantVariants(std::vector<Variant> &variants) {
  uint32_t tileKeys = variants.front().tileKeys;
  std::erase_if(variants, [&](const Variant &v) { return v.tileKeys != tileKeys; });
}

/// Sizes that no plan can have. `firstRows` becomes each sequence's first packed row, and the end.
Status checkBatch(const BatchShape &batch, uint32_t group, std::vector<uint32_t> &firstRows) {
  if (batch.sequences.size() > kMaxU32)
    return makeStatus(StatusCode::ResourceExhausted,
                      "batch has {} sequences; at most {} are allowed", batch.sequences.size(),
                      kMaxU32);
  uint64_t rows = 0;
  firstRows.resize(batch.sequences.size() + 1);
  for (size_t s = 0; s < batch.sequences.size(); ++s) {
    const SequenceShape &sequence = batch.sequences[s];
    firstRows[s] = static_cast<uint32_t>(rows);
    // Both at once: the bound is one less than a power of two, and what is negative is beyond it.
    static_assert((kMaxLength & (kMaxLength + 1)) == 0);
    if (static_cast<uint64_t>(sequence.queryLen | sequence.keyLen) > uint64_t{kMaxLength})
      return invalidArgument("sequence {} has {} queries and {} keys; 0 to {} are "
                             "allowed",
                             s, sequence.queryLen, sequence.keyLen, kMaxLength);
    rows += static_cast<uint64_t>(sequence.queryLen) * group;
    if (rows > uint64_t{kMaxRows})
      return makeStatus(StatusCode::ResourceExhausted,
                        "batch has more than {} packed rows (queries times {} query "
                        "heads of a group) up to sequence {}; use a smaller batch",
                        kMaxRows, group, s);
  }
  firstRows.back() = static_cast<uint32_t>(rows);
  return {};
}

uint64_t queryTokensOf(const BatchShape &batch) {
  uint64_t tokens = 0;
  for (const SequenceShape &sequence : batch.sequences)
    tokens += static_cast<uint64_t>(sequence.queryLen);
  return tokens;
}

} // namespace

class Planner::State {
public:
  State(const Program &program, const PlanOptions &options, const PlanLimits &limits,
        const SplitRule &rule, PlanContext made);

  StatusOr<PlanChange> plan(const BatchShape &batch, const ScalarValues &scalars, Plan &plan,
                            bool itemsStay);

  PlanCounts room;
  PlanCounters counters;
  CascadeAnswer lastCascade = CascadeAnswer::Off;

private:
  Status checkLimits(const BatchShape &batch);
  void makeTiles(const BatchShape &batch);
  void addSequence(const SequenceShape &sequence, uint32_t index);
  void addWhole(const BatchShape &batch, uint32_t begin, uint32_t end);
  CascadeRule cascadeRule() const;
  Status makeItems(const BatchShape &batch, Plan &plan);
  void writeLengths(const BatchShape &batch, Plan &plan) const;
  uint64_t blockPartials() const;

  PlanOptions options;
  PlanLimits limits;
  SplitRule rule;
  PlanContext context;
  uint32_t workers, threads;
  uint64_t leastGain;

  SplitByLoad line;
  SplitByRule pieces;
  DealItems deal;
  Cascade cascade;

  // Of the present batch, and of the one before.
  std::vector<uint32_t> firstRows, next;
  std::vector<RowBlock> blocks, lastBlocks;
  std::vector<RowTile> tiles, lastTiles;
  std::vector<uint8_t> placed;
  std::vector<RowCut> cuts;
  uint64_t cutsOf = 0; ///< packed rows that `cuts` are of
  bool lastIsWhole = false;
};

Planner::State::State(const Program &program, const PlanOptions &options, const PlanLimits &limits,
                      const SplitRule &rule, PlanContext made)
    : room(PlanCounts::bound(program, options, limits)), options(options), limits(limits),
      rule(rule), context(std::move(made)), workers(room.workers),
      threads(options.threads ? options.threads : workers), line(workers) {
  double dearest = 0;
  for (const Variant &variant : context.variants)
    dearest = std::max(dearest, double(variant.tileCost));
  // Splits at absolute positions are merged with a cascade or without.
  leastGain = rule.policy == SplitPolicy::Auto ? uint64_t(dearest * kMergePassTiles) * threads : 0;
  // Tiles of a head. Items of the plan's kernels are counted in `room`.
  uint64_t heads = context.facts.kvHeads;
  size_t tileRoom = room.items / heads /
                    (rule.policy == SplitPolicy::Auto ? 1 : std::max<uint64_t>(limits.splits, 1));
  for (auto *list : {&tiles, &lastTiles})
    list->reserve(tileRoom);
  for (auto *list : {&blocks, &lastBlocks})
    list->reserve(limits.rows);
  firstRows.reserve(limits.rows + 1);
  placed.reserve(limits.rows);
  if (rule.policy != SplitPolicy::Auto) {
    size_t attends = attendVariants(program).size();
    pieces = SplitByRule({.pieces = room.items / heads, .tiles = tileRoom});
    deal = DealItems(workers, uint32_t(attends), room.items / heads, room.items);
    next.reserve((workers + 1) * attends);
  }
  if (options.cascadeLevels)
    cascade = Cascade(limits.rows, 2 * limits.rows);
}

Status Planner::State::checkLimits(const BatchShape &batch) {
  if (batch.sequences.size() <= limits.rows)
    LLMOPT_RETURN_IF_ERROR(checkBatch(batch, context.group, firstRows));
  uint64_t tokens = firstRows.empty() ? 0 : firstRows.back() / context.group;
  if (batch.sequences.size() > limits.rows || tokens > limits.queryTokens)
    return makeStatus(StatusCode::ResourceExhausted,
                      "a batch of {} sequences and {} query tokens; the planner was made for {} "
                      "and {}",
                      batch.sequences.size(), queryTokensOf(batch), limits.rows,
                      limits.queryTokens);
  return {};
}

/// The tiles of a sequence that shares nothing, as a block; `cuts` are its rows.
void Planner::State::addSequence(const SequenceShape &sequence, uint32_t index) {
  uint32_t row = firstRows[index];
  RowBlock &block = blocks.emplace_back(RowBlock{.firstTile = uint32_t(tiles.size()),
                                                 .heads = context.variants[cuts[0].variant].heads});
  for (const RowCut &cut : cuts) {
    RowTile &tile = tiles.emplace_back();
    tile.record = tile.sequence = index;
    tile.firstRow = row;
    tile.rowCount = cut.rows;
    tile.variant = cut.variant;
    setKeys(context, sequence, firstRows[index], 0, tile);
    tile.before = block.cost;
    block.cost += tile.cost;
    row += cut.rows;
  }
  block.endTile = uint32_t(tiles.size());
}

/// The same for sequences [begin, end) of as many queries each, of one tile whose keys are one run:
/// most of a decode step, and most of a plan's time.
void Planner::State::addWhole(const BatchShape &batch, uint32_t begin, uint32_t end) {
  const SequenceShape *sequences = batch.sequences.data();
  const Variant variant = context.variants[cuts[0].variant];
  int64_t queries = sequences[begin].queryLen;
  auto inputs = [&](int64_t keys) -> ClosedBounds::Inputs {
    int64_t first = positionOf(context.facts, {.queryLen = queries, .keyLen = keys}, 0);
    return {first, first + queries - 1, queries, keys};
  };
  const ClosedBounds::RangeByLength keysOf = context.may.rangeByLength(inputs(0), inputs(1));
  RowTile likeAll;
  likeAll.rowCount = cuts[0].rows;
  likeAll.variant = cuts[0].variant;
  uint32_t at = uint32_t(tiles.size()), count = end - begin;
  tiles.resize(at + count, likeAll);
  blocks.resize(blocks.size() + count, {.heads = variant.heads});
  RowTile *tile = tiles.data() + at;
  RowBlock *block = blocks.data() + blocks.size() - count;
  for (uint32_t s = begin; s < end; ++s, ++tile, ++block, ++at) {
    ClosedBounds::Range keys = keysOf.at(sequences[s].keyLen);
    uint32_t first = 0, last = 0;
    if (keys.begin < keys.end) {
      first = variant.keyTileOf(uint32_t(keys.begin));
      last = variant.keyTileOf(uint32_t(keys.end - 1)) + 1;
    }
    tile->record = tile->sequence = s;
    tile->firstRow = firstRows[s];
    tile->beginTile = first;
    tile->endTile = last;
    tile->visibleTiles = last - first;
    tile->cost = block->cost = variant.itemCost + (last - first) * variant.tileCost;
    block->firstTile = at;
    block->endTile = at + 1;
  }
}

CascadeRule Planner::State::cascadeRule() const {
  CascadeRule wish{.levels = std::min(options.cascadeLevels, kMaxCascadeLevels)};
  if (rule.policy == SplitPolicy::ByLength)
    wish.splitKeys = splitLength(rule, context.variants[0].tileKeys);
  wish.leastGain = leastGain;
  wish.blockRows = room.merges / context.facts.kvHeads;
  return wish;
}

void Planner::State::makeTiles(const BatchShape &batch) {
  std::swap(tiles, lastTiles);
  std::swap(blocks, lastBlocks);
  tiles.clear();
  blocks.clear();
  bool cutsFit = rule.policy == SplitPolicy::Auto || rule.policy == SplitPolicy::ByLength;
  lastCascade = CascadeAnswer::Off;
  if (options.cascadeLevels) {
    placed.assign(batch.sequences.size(), 0);
    lastCascade =
        cutsFit ? cascade.build(context, batch, firstRows, cascadeRule(), blocks, tiles, placed)
                : CascadeAnswer::Unsupported;
    if (lastCascade == CascadeAnswer::Used && blockPartials() > room.partialRows) {
      cascade.clear();
      tiles.clear();
      blocks.clear();
      lastCascade = CascadeAnswer::NoRoom;
    }
  }
  bool some = lastCascade == CascadeAnswer::Used;
  for (RowBlock &block : blocks)
    for (uint32_t t = block.firstTile; t < block.endTile; ++t) {
      tiles[t].before = block.cost;
      block.cost += tiles[t].cost;
    }
  bool oneRange = context.closed && context.may.isOneRange();
  const uint32_t count = uint32_t(batch.sequences.size());
  for (uint32_t s = 0, next; s < count; s = next) {
    next = s + 1;
    if (some && placed[s])
      continue;
    const SequenceShape &sequence = batch.sequences[s];
    uint64_t rows = uint64_t(sequence.queryLen) * context.group;
    if (rows != cutsOf) {
      cuts.clear();
      cutRows(context.variants, rows, cuts);
      cutsOf = rows;
    }
    if (oneRange && cuts.size() == 1) {
      while (next < count && batch.sequences[next].queryLen == sequence.queryLen &&
             !(some && placed[next]))
        ++next;
      addWhole(batch, s, next);
    } else if (rows) {
      addSequence(sequence, s);
    }
  }
}

/// Partial rows of blocks with shared keys, uncut.
uint64_t Planner::State::blockPartials() const {
  uint64_t rows = 0;
  if (lastCascade != CascadeAnswer::Used)
    return rows;
  for (const RowBlock &block : blocks) {
    uint64_t columns = 0;
    for (uint32_t t = block.firstTile; t < block.endTile; ++t)
      columns = std::max<uint64_t>(columns, tiles[t].level + 1u);
    rows += columns * block.columnRows;
  }
  return rows * context.facts.kvHeads;
}

Status Planner::State::makeItems(const BatchShape &batch, Plan &plan) {
  Batch shape{batch, firstRows, blocks, tiles};
  uint64_t items = tiles.size() * uint64_t{context.facts.kvHeads};
  if (items > room.items)
    return makeStatus(StatusCode::ResourceExhausted,
                      "batch needs {} work items; there is room for {}; use a smaller batch", items,
                      room.items);
  plan.merges.setSize(0);
  if (rule.policy == SplitPolicy::Auto) {
    SplitLoads loads =
        line.cut(context, blocks, tiles,
                 {.workers = workers,
                  .threads = std::min(threads, workers),
                  .partialRows = room.partialRows - std::min(room.partialRows, blockPartials()),
                  .moreItems = room.items - items});
    counters.splitsRefused += loads.refused;
    emitByLoad(context, shape, line.places(), plan);
  } else {
    bool lowered = false;
    LLMOPT_RETURN_IF_ERROR(pieces.cut(context, batch, firstRows, blocks, tiles, rule,
                                      std::min(room.partialRows, options.maxPartialRows), lowered));
    counters.splitsRefused += lowered;
    emitDealt(context, shape, pieces, deal, deal.deal(context, blocks, tiles, pieces, workers),
              next, plan);
  }
  // Merges cost about the same each: equal shares.
  plan.mergeOffsets.setSize(workers + 1);
  uint32_t merges = uint32_t(plan.merges.size()), share = merges / workers, left = merges % workers;
  for (uint32_t w = 0, at = 0, over = 0; w <= workers; ++w, at += share, over += left) {
    if (over >= workers) { // merges * w / workers without a division each
      over -= workers;
      ++at;
    }
    plan.mergeOffsets[w] = at;
  }
  return {};
}

/// What follows from the lengths alone: positions of the rows, records of the sequences.
void Planner::State::writeLengths(const BatchShape &batch, Plan &plan) const {
  const AttentionFacts &facts = context.facts;
  plan.rows.setSize(0);
  plan.sequences.setSize(0);
  bundle::SequenceRecord *record = plan.sequences.end();
  bundle::RowEntry *row = plan.rows.end();
  for (const SequenceShape &sequence : batch.sequences) {
    *record++ = {.queryBase = sequence.queryBase,
                 .keyBase = sequence.keyBase,
                 .queryLen = sequence.queryLen,
                 .keyLen = sequence.keyLen,
                 .tableBase = sequence.tableBase,
                 .batch = sequence.batch,
                 .reserved = {}};
    int64_t first = mutant(PlanMutant::RowPositionsStay) ? 0 : positionOf(facts, sequence, 0);
    for (int64_t query = 0; query < sequence.queryLen; ++query)
      *row++ = {static_cast<uint32_t>(query), static_cast<int32_t>(first + query)};
  }
  plan.sequences.setSize(batch.sequences.size());
  plan.rows.setSize(size_t(row - plan.rows.begin()));
  for (uint32_t s : cascade.rowOrder()) {
    const SequenceShape &sequence = batch.sequences[s];
    for (int64_t query = 0; query < sequence.queryLen; ++query)
      plan.rows.push({static_cast<uint32_t>(sequence.queryBase + query),
                      static_cast<int32_t>(positionOf(facts, sequence, query))});
  }
  for (uint32_t t : cascade.sharedTiles()) {
    const SequenceShape &sequence = batch.sequences[tiles[t].sequence];
    plan.sequences.push({.queryBase = 0,
                         .keyBase = sequence.keyBase,
                         .queryLen = 1,
                         .keyLen = int64_t{tiles[t].endTile} * context.variantOf(tiles[t]).tileKeys,
                         .tableBase = sequence.tableBase,
                         .batch = sequence.batch,
                         .reserved = {}});
  }
}

namespace {

/// Equal bytes: both hold plain records without padding.
template <typename T> bool same(const std::vector<T> &a, const std::vector<T> &b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

} // namespace

StatusOr<PlanChange> Planner::State::plan(const BatchShape &batch, const ScalarValues &scalars,
                                          Plan &plan, bool itemsStay) {
  bool itemsKnown = std::exchange(lastIsWhole, false) && itemsStay;
  LLMOPT_RETURN_IF_ERROR(checkLimits(batch));
  context.scalars = &scalars;
  context.closed = context.may.compile(context.facts.may, scalars);
  makeTiles(batch);
  ++counters.plans;
  ++counters.cascades[size_t(lastCascade)];
  counters.sharedTiles += cascade.sharedTiles().size() * context.facts.kvHeads;
  writeLengths(batch, plan);
  plan.workers = workers;
  // Keys that a thinned mask shows inside a tile are not in the comparison.
  if (itemsKnown && context.closed && same(tiles, lastTiles) && same(blocks, lastBlocks)) {
    lastIsWhole = true;
    ++counters.lengthsOnly;
    return PlanChange::Lengths;
  }
  LLMOPT_RETURN_IF_ERROR(makeItems(batch, plan));
  lastIsWhole = true;
  return PlanChange::All;
}

Planner::Planner(std::unique_ptr<State> state) : state(std::move(state)) {}
Planner::Planner(Planner &&) noexcept = default;
Planner &Planner::operator=(Planner &&) noexcept = default;
Planner::~Planner() = default;

const PlanCounts &Planner::room() const { return state->room; }
CascadeAnswer Planner::lastCascade() const { return state->lastCascade; }
const PlanCounters &Planner::counters() const { return state->counters; }

StatusOr<PlanChange> Planner::plan(const BatchShape &batch, const ScalarValues &scalars, Plan &plan,
                                   bool itemsStay) {
  return state->plan(batch, scalars, plan, itemsStay);
}

StatusOr<Planner> Planner::create(const Program &program, const PlanOptions &options,
                                  const PlanLimits &limits) {
  const AttentionFacts &facts = program.facts;
  bool invariant = options.batchInvariant || facts.batchInvariant;
  PlanContext context{.facts = facts,
                      .scalars = nullptr,
                      .variants = attendVariants(program),
                      .group = facts.kvHeads ? facts.queryHeads / facts.kvHeads : 0,
                      .partialRow = partialRowCost(program),
                      .batchInvariant = invariant,
                      .tuples = false,
                      .may = {},
                      .keySet = {}};
  if (context.variants.empty() || context.group == 0)
    return invalidArgument("program '{}' has {} attend kernels, {} query heads and {} "
                           "key/value heads; at least one of each is needed for a plan",
                           program.name, context.variants.size(), facts.queryHeads, facts.kvHeads);
  if (options.workers > kMaxWorkers)
    return invalidArgument("plan for {} workers; at most {} are allowed", options.workers,
                           kMaxWorkers);
  StatusOr<SplitRule> rule = chooseSplitRule(facts, options, invariant);
  if (!rule)
    return rule.status();
  if (PlanCounts room = PlanCounts::bound(program, options, limits);
      std::max({room.items, room.rows, room.sequences, room.merges}) > kMaxU32)
    return makeStatus(StatusCode::ResourceExhausted,
                      "plans of up to {} work items, {} query tokens, {} sequences and {} merge "
                      "items; at most {} are allowed; use smaller batches",
                      room.items, room.rows, room.sequences, room.merges, kMaxU32);
  if (invariant)
    keepInvariantVariants(context.variants);
  context.tuples = std::any_of(context.variants.begin(), context.variants.end(),
                               [](const Variant &variant) { return variant.heads > 1; });
  try {
    return Planner(std::make_unique<State>(program, options, limits, *rule, std::move(context)));
  } catch (const std::bad_alloc &) {
    return makeStatus(StatusCode::ResourceExhausted,
                      "no memory to plan batches of {} sequences and {} query tokens", limits.rows,
                      limits.queryTokens);
  }
}

StatusOr<Plan> makePlan(const Program &program, const BatchShape &batch,
                        const ScalarValues &scalars, const PlanOptions &options) try {
  const AttentionFacts &facts = program.facts;
  std::vector<uint32_t> firstRows;
  LLMOPT_RETURN_IF_ERROR(
      checkBatch(batch, facts.kvHeads ? facts.queryHeads / facts.kvHeads : 0, firstRows));
  PlanLimits limits{.rows = batch.sequences.size()};
  int64_t longest = 0;
  limits.queryTokens = queryTokensOf(batch);
  for (const SequenceShape &sequence : batch.sequences)
    longest = std::max(longest, sequence.keyLen);
  limits.splits = mostSplits(program, options, uint64_t(longest));
  StatusOr<Planner> planner = Planner::create(program, options, limits);
  if (!planner)
    return planner.status();
  Plan plan = makeRoom(program, planner->room());
  StatusOr<PlanChange> change = planner->plan(batch, scalars, plan);
  if (!change)
    return change.status();
  return plan;
} catch (const std::bad_alloc &) {
  return makeStatus(StatusCode::ResourceExhausted,
                    "no memory for the plan of a batch of {} sequences", batch.sequences.size());
}

Status checkTable(const BatchShape &batch, uint32_t pageSize, std::span<const int64_t> columns) {
  if (columns.size() != 1 && columns.size() != batch.sequences.size())
    return invalidArgument("page table has column counts of {} sequences; the batch has "
                           "{}",
                           columns.size(), batch.sequences.size());
  for (size_t s = 0; s < batch.sequences.size(); ++s) {
    int64_t available = columns.size() == 1 ? columns[0] : columns[s];
    int64_t keyLen = batch.sequences[s].keyLen;
    // Divide instead of multiplying: columns may be any 64-bit number.
    bool fits =
        pageSize > 0 && keyLen >= 0 && keyLen / pageSize + (keyLen % pageSize != 0) <= available;
    if (!fits)
      return invalidArgument("sequence {} has {} keys; its page table holds {} pages of "
                             "{} keys; give it more columns or a shorter length",
                             s, keyLen, available, pageSize);
  }
  return {};
}

} // namespace llmopt::runtime

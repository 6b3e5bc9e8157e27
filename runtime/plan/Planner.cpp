#include "runtime/plan/Planner.h"

#include "runtime/plan/Assign.h"
#include "runtime/plan/RowTiles.h"
#include "runtime/plan/Splits.h"

#include <algorithm>
#include <limits>
#include <new>

namespace llmopt::runtime {

using bundle::AttentionFacts;
using bundle::MergeItem;
using bundle::Program;
using bundle::WorkItem;

namespace {

constexpr uint64_t kMaxU32 = std::numeric_limits<uint32_t>::max();
constexpr int64_t kMaxLength = std::numeric_limits<int32_t>::max();
constexpr uint64_t kMaxPartialRows = std::numeric_limits<int32_t>::max();
constexpr uint32_t kMaxWorkers = 1u << 16;

std::vector<Variant> attendVariants(const Program &program) {
  std::vector<Variant> variants;
  for (uint32_t i = 0; i < program.kernels.size(); ++i) {
    const bundle::Kernel &kernel = program.kernels[i];
    if (kernel.kind == bundle::KernelKind::Attend)
      variants.push_back({i, kernel.tileRows, kernel.tileKeys, kernel.costPerTile});
  }
  return variants;
}

/// Rows must be computed alike whatever else is in the batch: key tiles of one
/// size.
void keepInvariantVariants(std::vector<Variant> &variants) {
  uint32_t tileKeys = variants.front().tileKeys;
  std::erase_if(variants, [&](const Variant &v) { return v.tileKeys != tileKeys; });
}

Status checkBatch(const BatchShape &batch, uint32_t group) {
  if (batch.sequences.size() > kMaxU32)
    return makeStatus(StatusCode::ResourceExhausted,
                      "batch has {} sequences; at most {} are allowed", batch.sequences.size(),
                      kMaxU32);
  uint64_t rows = 0;
  for (size_t s = 0; s < batch.sequences.size(); ++s) {
    const SequenceShape &sequence = batch.sequences[s];
    for (int64_t length : {sequence.queryLen, sequence.keyLen})
      if (length < 0 || length > kMaxLength)
        return invalidArgument("sequence {} has {} queries and {} keys; 0 to {} are "
                               "allowed",
                               s, sequence.queryLen, sequence.keyLen, kMaxLength);
    rows += static_cast<uint64_t>(sequence.queryLen) * group;
    if (rows > kMaxU32)
      return makeStatus(StatusCode::ResourceExhausted,
                        "batch has more than {} packed rows (queries times {} query "
                        "heads of a group) up to sequence {}; use a smaller batch",
                        kMaxU32, group, s);
  }
  return {};
}

void addSequences(const AttentionFacts &facts, const BatchShape &batch, Plan &plan) {
  size_t queries = 0;
  for (const SequenceShape &sequence : batch.sequences)
    queries += static_cast<size_t>(sequence.queryLen);
  plan.rows.reserve(queries);
  plan.sequences.reserve(batch.sequences.size());
  for (const SequenceShape &sequence : batch.sequences) {
    plan.sequences.push_back({.queryBase = sequence.queryBase,
                              .keyBase = sequence.keyBase,
                              .queryLen = sequence.queryLen,
                              .keyLen = sequence.keyLen,
                              .tableBase = sequence.tableBase,
                              .batch = sequence.batch,
                              .reserved = {}});
    for (int64_t query = 0; query < sequence.queryLen; ++query)
      plan.rows.push_back(
          {static_cast<uint32_t>(query), static_cast<int32_t>(positionOf(facts, sequence, query))});
  }
}

/// Packed row of each sequence's first query.
std::vector<uint32_t> firstRowsOf(const BatchShape &batch, uint32_t group) {
  std::vector<uint32_t> firstRows;
  uint32_t row = 0;
  for (const SequenceShape &sequence : batch.sequences) {
    firstRows.push_back(row);
    row += static_cast<uint32_t>(sequence.queryLen) * group;
  }
  return firstRows;
}

/// The items of all variants in natural order: sequence, KV head, rows, keys.
struct ItemList {
  std::vector<WorkItem> items;
  std::vector<uint32_t> variants;
  std::vector<double> costs;
};

/// Appends the items and merges of one row tile for one KV head.
void addTile(const RowTile &tile, const Variant &variant, uint32_t kvHead,
             std::span<const KeyRange> ranges, ItemList &list, Plan &plan) {
  bool split = ranges.size() > 1;
  uint32_t partial = static_cast<uint32_t>(plan.partialRows);
  for (size_t k = 0; k < ranges.size(); ++k) {
    int32_t slot = split ? static_cast<int32_t>(partial + k * tile.rowCount) : -1;
    list.items.push_back({.firstRow = tile.firstRow,
                          .rowCount = tile.rowCount,
                          .kvHead = kvHead,
                          .sequence = tile.sequence,
                          .keyBegin = static_cast<uint32_t>(ranges[k].begin),
                          .keyEnd = static_cast<uint32_t>(ranges[k].end),
                          .partialSlot = slot,
                          .flags = 0});
    list.variants.push_back(tile.variant);
    // Splits carry equal numbers of visible tiles but for rounding.
    list.costs.push_back(tile.cost(variant) / static_cast<double>(ranges.size()));
  }
  if (!split)
    return;
  for (uint32_t r = 0; r < tile.rowCount; ++r)
    plan.merges.push_back({.row = tile.firstRow + r,
                           .kvHead = kvHead,
                           .sequence = tile.sequence,
                           .firstPartial = partial + r,
                           .count = static_cast<uint32_t>(ranges.size()),
                           .stride = tile.rowCount,
                           .reserved = {}});
  plan.partialRows += ranges.size() * tile.rowCount;
}

ItemList makeItems(const PlanContext &context, const BatchShape &batch, const SplitRule &rule,
                   std::span<const uint32_t> firstRows, std::span<const RowTile> tiles,
                   Plan &plan) {
  ItemList list;
  std::vector<std::vector<KeyRange>> ranges;
  for (size_t first = 0, last = 0; first < tiles.size(); first = last) {
    uint32_t s = tiles[first].sequence;
    ranges.clear();
    for (; last < tiles.size() && tiles[last].sequence == s; ++last) {
      const RowTile &tile = tiles[last];
      bundle::KeySet keys;
      if (tile.splits > 1)
        keys = visibleKeys(context, batch.sequences[s], firstRows[s], tile);
      ranges.push_back(splitRanges(tile, keys, rule, context.variants[tile.variant].tileKeys));
    }
    for (uint32_t head = 0; head < context.facts.kvHeads; ++head)
      for (size_t t = first; t < last; ++t)
        addTile(tiles[t], context.variants[tiles[t].variant], head, ranges[t - first], list, plan);
  }
  return list;
}

/// Sorts the items by variant and worker, keeping their natural order inside.
void dealItems(const PlanContext &context, const ItemList &list, Plan &plan) {
  std::vector<uint32_t> workerOf = assignItems(list.costs, plan.workers);
  for (AttendPlan &attend : plan.attends)
    attend.itemOffsets.assign(plan.workers + 1, 0);
  auto attendOf = [&](size_t item) -> AttendPlan & {
    uint32_t kernel = context.variants[list.variants[item]].kernel;
    return *std::find_if(plan.attends.begin(), plan.attends.end(),
                         [&](const AttendPlan &a) { return a.kernel == kernel; });
  };
  for (size_t i = 0; i < list.items.size(); ++i)
    ++attendOf(i).itemOffsets[workerOf[i] + 1];
  for (AttendPlan &attend : plan.attends) {
    for (uint32_t w = 0; w < plan.workers; ++w)
      attend.itemOffsets[w + 1] += attend.itemOffsets[w];
    attend.items.resize(attend.itemOffsets.back());
  }
  std::vector<std::vector<uint32_t>> next;
  for (const AttendPlan &attend : plan.attends)
    next.push_back(attend.itemOffsets);
  for (size_t i = 0; i < list.items.size(); ++i) {
    AttendPlan &attend = attendOf(i);
    std::vector<uint32_t> &places = next[static_cast<size_t>(&attend - plan.attends.data())];
    attend.items[places[workerOf[i]]++] = list.items[i];
  }
}

/// Merges cost about the same each: equal shares.
void dealMerges(Plan &plan) {
  plan.mergeOffsets.resize(plan.workers + 1);
  for (uint64_t w = 0; w <= plan.workers; ++w)
    plan.mergeOffsets[w] = static_cast<uint32_t>(plan.merges.size() * w / plan.workers);
}

Status checkCounts(const PlanContext &context, std::span<const RowTile> tiles) {
  uint64_t items = 0, merges = 0;
  for (const RowTile &tile : tiles) {
    items += uint64_t{tile.splits} * context.facts.kvHeads;
    merges += tile.splits > 1 ? uint64_t{tile.rowCount} * context.facts.kvHeads : 0;
  }
  if (items > kMaxU32 || merges > kMaxU32)
    return makeStatus(StatusCode::ResourceExhausted,
                      "batch needs {} work items and {} merge items; at most {} are "
                      "allowed; use a smaller batch",
                      items, merges, kMaxU32);
  return {};
}

uint32_t workersOf(const PlanOptions &options) { return std::max<uint32_t>(options.workers, 1); }

uint32_t threadsOf(const PlanOptions &options) {
  return options.threads ? options.threads : workersOf(options);
}

StatusOr<Plan> planUnguarded(const Program &program, const BatchShape &batch,
                             const ScalarValues &scalars, const PlanOptions &options) {
  const AttentionFacts &facts = program.facts;
  PlanContext context{.facts = facts,
                      .scalars = scalars,
                      .variants = attendVariants(program),
                      .group = facts.kvHeads ? facts.queryHeads / facts.kvHeads : 0,
                      .batchInvariant = options.batchInvariant || facts.batchInvariant};
  if (context.variants.empty() || context.group == 0)
    return invalidArgument("program '{}' has {} attend kernels, {} query heads and {} "
                           "key/value heads; at least one of each is needed for a plan",
                           program.name, context.variants.size(), facts.queryHeads, facts.kvHeads);
  Plan plan;
  plan.workers = workersOf(options);
  if (plan.workers > kMaxWorkers)
    return invalidArgument("plan for {} workers; at most {} are allowed", plan.workers,
                           kMaxWorkers);
  LLMOPT_RETURN_IF_ERROR(checkBatch(batch, context.group));
  StatusOr<SplitRule> rule = chooseSplitRule(facts, options, context.batchInvariant);
  if (!rule)
    return rule.status();
  for (const Variant &variant : context.variants)
    plan.attends.push_back({.kernel = variant.kernel, .itemOffsets = {}, .items = {}});
  if (context.batchInvariant)
    keepInvariantVariants(context.variants);

  std::vector<uint32_t> firstRows = firstRowsOf(batch, context.group);
  std::vector<RowTile> tiles = makeRowTiles(context, batch);
  LLMOPT_RETURN_IF_ERROR(decideSplits(context, batch, *rule, threadsOf(options),
                                      std::min(options.maxPartialRows, kMaxPartialRows), firstRows,
                                      tiles));
  LLMOPT_RETURN_IF_ERROR(checkCounts(context, tiles));
  addSequences(facts, batch, plan);
  ItemList list = makeItems(context, batch, *rule, firstRows, tiles, plan);
  dealItems(context, list, plan);
  dealMerges(plan);
  return plan;
}

uint64_t mulSaturated(uint64_t a, uint64_t b) {
  uint64_t result;
  return __builtin_mul_overflow(a, b, &result) ? std::numeric_limits<uint64_t>::max() : result;
}

} // namespace

int64_t positionOf(const bundle::AttentionFacts &facts, const SequenceShape &sequence,
                   int64_t query) {
  return facts.topLeft ? query : query + sequence.keyLen - sequence.queryLen;
}

StatusOr<Plan> makePlan(const Program &program, const BatchShape &batch,
                        const ScalarValues &scalars, const PlanOptions &options) {
  try {
    return planUnguarded(program, batch, scalars, options);
  } catch (const std::bad_alloc &) {
    return makeStatus(StatusCode::ResourceExhausted,
                      "no memory for the plan of a batch of {} sequences", batch.sequences.size());
  }
}

uint64_t workspaceBound(const Program &program, const PlanOptions &options,
                        const PlanCapacities &capacities) {
  const AttentionFacts &facts = program.facts;
  bool invariant = options.batchInvariant || facts.batchInvariant;
  StatusOr<SplitRule> rule = chooseSplitRule(facts, options, invariant);
  std::vector<Variant> variants = attendVariants(program);
  if (!rule || variants.empty() || rule->policy == SplitPolicy::None)
    return 0;
  uint32_t tileRows = 0;
  uint64_t mostSplits = 1;
  for (const Variant &variant : variants) {
    tileRows = std::max(tileRows, variant.tileRows);
    uint64_t length = rule->policy == SplitPolicy::ByLength
                          ? static_cast<uint64_t>(splitLength(*rule, variant.tileKeys))
                          : variant.tileKeys;
    mostSplits =
        std::max(mostSplits, capacities.keyLen / length + (capacities.keyLen % length != 0));
  }
  if (rule->policy == SplitPolicy::Fixed)
    mostSplits = std::min<uint64_t>(mostSplits, rule->splits);
  if (mostSplits == 1)
    return 0;
  uint64_t rows = mulSaturated(capacities.queryTokens, facts.queryHeads);
  uint64_t bound = mulSaturated(rows, mostSplits);
  // Auto cuts an item of cost c > mean / kFinestShare into fewer than
  // 2 c kFinestShare / mean pieces, and all costs together are threads * mean.
  if (rule->policy == SplitPolicy::Auto)
    bound =
        std::min(bound, mulSaturated(uint64_t{2} * kFinestShare * threadsOf(options), tileRows));
  if (!invariant)
    bound = std::min(bound, options.maxPartialRows);
  return std::min(bound, kMaxPartialRows);
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

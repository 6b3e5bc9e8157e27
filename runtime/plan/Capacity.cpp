#include "runtime/plan/Capacity.h"

#include "runtime/plan/CostModel.h"
#include "runtime/plan/split/SplitRule.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <numeric>

namespace llmopt::runtime {

using bundle::Program;

namespace {

constexpr uint64_t kMaxSlots = std::numeric_limits<int32_t>::max();

uint64_t times(uint64_t a, uint64_t b) {
  uint64_t result;
  return __builtin_mul_overflow(a, b, &result) ? std::numeric_limits<uint64_t>::max() : result;
}

uint64_t plus(uint64_t a, uint64_t b) {
  uint64_t result;
  return __builtin_add_overflow(a, b, &result) ? std::numeric_limits<uint64_t>::max() : result;
}

bool isInvariant(const Program &program, const PlanOptions &options) {
  return options.batchInvariant || program.facts.batchInvariant;
}

} // namespace

PlanCounts PlanCounts::of(const Plan &plan) {
  PlanCounts counts{.workers = plan.workers,
                    .items = 0,
                    .rows = plan.rows.size(),
                    .sequences = plan.sequences.size(),
                    .merges = plan.merges.size(),
                    .partialRows = plan.partialRows};
  for (const AttendPlan &attend : plan.attends)
    counts.items = std::max<uint64_t>(counts.items, attend.items.size());
  return counts;
}

uint64_t mostSplits(const Program &program, const PlanOptions &options, uint64_t keyLen) {
  StatusOr<SplitRule> rule = chooseSplitRule(program.facts, options, isInvariant(program, options));
  if (!rule)
    return 1;
  uint64_t most = 1;
  for (const Variant &variant : attendVariants(program)) {
    uint64_t length = rule->policy == SplitPolicy::ByLength
                          ? static_cast<uint64_t>(splitLength(*rule, variant.tileKeys))
                          : variant.tileKeys;
    most = std::max(most, keyLen / length + (keyLen % length != 0));
  }
  switch (rule->policy) {
  case SplitPolicy::None:
    return 1;
  case SplitPolicy::Fixed:
    return std::min<uint64_t>(most, rule->splits);
  case SplitPolicy::Auto:
  case SplitPolicy::ByLength:
    return most;
  }
  return most;
}

PlanCounts PlanCounts::bound(const Program &program, const PlanOptions &options,
                             const PlanLimits &limits) {
  const bundle::AttentionFacts &facts = program.facts;
  PlanCounts counts{.workers = std::max<uint32_t>(options.workers, 1),
                    .items = 0,
                    .rows = limits.queryTokens,
                    .sequences = limits.rows,
                    .merges = 0,
                    .partialRows = 0};
  bool invariant = isInvariant(program, options);
  StatusOr<SplitRule> rule = chooseSplitRule(facts, options, invariant);
  std::vector<Variant> variants = attendVariants(program);
  if (!rule || variants.empty() || facts.kvHeads == 0)
    return counts;
  uint64_t levels = std::min(options.cascadeLevels, kMaxCascadeLevels);
  uint64_t fewestRows = variants[0].tileRows, mostRows = 0, tupleRows = 0, tupleHeads = 1, all = 1;
  for (const Variant &variant : variants) {
    fewestRows = std::min<uint64_t>(fewestRows, variant.tileRows);
    mostRows = std::max<uint64_t>(mostRows, variant.tileRows);
    tupleHeads = std::max<uint64_t>(tupleHeads, variant.heads);
    tupleRows = std::max(tupleRows, uint64_t{variant.tileRows} * variant.heads);
    all = std::lcm(all, uint64_t{variant.heads});
  }
  if (levels) { // tiles of any variants may be a block
    tupleHeads = all;
    tupleRows = times(mostRows, all);
  }
  uint64_t perHead = times(limits.queryTokens, facts.queryHeads / facts.kvHeads);
  uint64_t allRows = times(limits.queryTokens, facts.queryHeads);
  // Of each sequence one tile that is not full; of each level a shared tile for two of them.
  uint64_t tiles = plus(perHead / fewestRows, times(limits.rows, 1 + levels));
  counts.items = times(tiles, facts.kvHeads);
  if (levels) {
    counts.rows = times(2, counts.rows);
    counts.sequences = plus(counts.sequences, times(limits.rows, levels));
  }
  if (rule->policy != SplitPolicy::Auto) {
    counts.items = times(counts.items, std::max<uint64_t>(limits.splits, 1));
    if (limits.splits > 1)
      counts.partialRows = times(allRows, limits.splits);
  } else if (limits.splits > 1) {
    // A cut lies between two threads and goes through one tile, which gets one part more, for
    // each head of a tuple.
    uint64_t cuts = (options.threads ? options.threads : counts.workers) - 1;
    counts.items = plus(counts.items, times(cuts, tupleHeads));
    counts.partialRows = std::min(times(allRows, limits.splits), times(2 * cuts, tupleRows));
    if (levels)
      counts.partialRows =
          plus(counts.partialRows,
               times(std::min(allRows, times(4 * limits.rows, facts.queryHeads)), levels + 1));
  }
  if (!invariant)
    counts.partialRows = std::min(counts.partialRows, options.maxPartialRows);
  counts.partialRows = std::min(counts.partialRows, kMaxSlots);
  // A row that is merged has two partials or, below shared keys, one.
  counts.merges = std::min(allRows, counts.partialRows);
  return counts;
}

std::string PlanCounts::lacks(const PlanCounts &plan) const {
  auto more = [](uint64_t wanted, uint64_t room, const char *what) {
    return wanted > room
               ? fmt::format("the plan has {} {}; there is room for {}", wanted, what, room)
               : std::string();
  };
  for (const std::string &reason :
       {more(plan.items, items, "work items"), more(plan.rows, rows, "query tokens"),
        more(plan.sequences, sequences, "sequences"), more(plan.merges, merges, "rows to merge"),
        more(plan.partialRows, partialRows, "rows of partials")})
    if (!reason.empty())
      return reason;
  return plan.workers == workers
             ? ""
             : fmt::format("the plan is for {} workers; the arena for {}", plan.workers, workers);
}

Plan makeRoom(const Program &program, const PlanCounts &room) {
  Plan plan;
  plan.workers = room.workers;
  for (const Variant &variant : attendVariants(program))
    plan.attends.push_back({.kernel = variant.kernel,
                            .itemOffsets = PlanArray<uint32_t>(uint64_t{room.workers} + 1),
                            .items = PlanArray<bundle::WorkItem>(room.items)});
  plan.rows = PlanArray<bundle::RowEntry>(room.rows);
  plan.sequences = PlanArray<bundle::SequenceRecord>(room.sequences);
  plan.mergeOffsets = PlanArray<uint32_t>(uint64_t{room.workers} + 1);
  plan.merges = PlanArray<bundle::MergeItem>(room.merges);
  return plan;
}

} // namespace llmopt::runtime

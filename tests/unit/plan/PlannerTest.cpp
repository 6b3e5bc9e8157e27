#include "PlanTestUtil.h"

#include <numeric>

using namespace plantest;

namespace {

Plan planOrDie(const Program &program, const BatchShape &batch, const PlanOptions &options,
               const ScalarValues &scalars = {}) {
  StatusOr<Plan> plan = makePlan(program, batch, scalars, options);
  EXPECT_TRUE(plan) << plan.status().toString();
  if (!plan)
    return {};
  checkPlan(program, batch, scalars, options, *plan);
  return *std::move(plan);
}

size_t itemCount(const Plan &plan) {
  size_t count = 0;
  for (const AttendPlan &attend : plan.attends)
    count += attend.items.size();
  return count;
}

/// Visible tiles of the busiest worker.
double longestLoad(const Plan &plan, uint32_t tileKeys) {
  double longest = 0;
  for (uint32_t w = 0; w < plan.workers; ++w) {
    double load = 0;
    for (const AttendPlan &attend : plan.attends)
      for (uint32_t i = attend.itemOffsets[w]; i < attend.itemOffsets[w + 1]; ++i)
        load += (attend.items[i].keyEnd - attend.items[i].keyBegin + tileKeys - 1) / tileKeys;
    longest = std::max(longest, load);
  }
  return longest;
}

} // namespace

TEST(Planner, DecodeOfAGroupIsOneItemForEachKvHead) {
  Program program = makeProgram(4, 2, causalMask(), {attendKernel(16, 64, 1)});
  Plan plan = planOrDie(program, makeBatch({{1, 100}}), {.workers = 1});
  ASSERT_EQ(plan.attends[0].items.size(), 2u);
  WorkItem item = plan.attends[0].items[1];
  EXPECT_EQ(item.firstRow, 0u);
  EXPECT_EQ(item.rowCount, 4u);
  EXPECT_EQ(item.kvHead, 1u);
  EXPECT_EQ(item.keyBegin, 0u);
  EXPECT_EQ(item.keyEnd, 128u) << "the kernel knows the length";
  EXPECT_EQ(item.partialSlot, -1);
  EXPECT_EQ(plan.rows[0].position, 99);
}

// A5: every integer ratio of query to KV heads.
TEST(Planner, AnyGroupSize) {
  for (uint32_t group : {1, 3, 5, 6, 7, 16}) {
    Program program = makeProgram(group, 2, causalMask(), {attendKernel(16, 32, 1)});
    planOrDie(program, makeBatch({{1, 1000}, {5, 5}, {37, 300}}), {.workers = 8});
  }
}

// A12: no keys, no queries, or neither, between others.
TEST(Planner, EmptySequencesOwnItemsOnlyForTheirRows) {
  Program program = makeProgram(1, 1, causalMask(), {attendKernel(8, 16, 1)});
  for (uint32_t splits : {1, 4}) {
    PlanOptions options{.workers = 2, .splitPolicy = SplitPolicy::Fixed, .splits = splits};
    Plan decode = planOrDie(program, makeBatch({{1, 0}, {1, 5}, {1, 0}, {1, 33}}), options);
    EXPECT_EQ(itemCount(decode), splits == 1 ? 4u : 6u);
    Plan prefill = planOrDie(program, makeBatch({{3, 0}, {0, 5}, {2, 0}, {1, 33}}), options);
    EXPECT_EQ(itemCount(prefill), splits == 1 ? 3u : 5u);
    EXPECT_EQ(itemCount(planOrDie(program, makeBatch({}), options)), 0u);
    EXPECT_EQ(itemCount(planOrDie(program, makeBatch({{0, 0}}), options)), 0u);
  }
}

TEST(Planner, RowsThatSeeNothingStillOwnAnItem) {
  Program program = makeProgram(2, 1, BoundSet(), {attendKernel(8, 16, 1)});
  Plan plan = planOrDie(program, makeBatch({{5, 100}}), {.workers = 4});
  ASSERT_EQ(plan.attends[0].items.size(), 2u);
  EXPECT_EQ(plan.attends[0].items[0].keyEnd, 0u);
}

TEST(Planner, KeyRangeIsTheHullOfTheMaskInWholeTiles) {
  Program program = makeProgram(1, 1, windowMask(100), {attendKernel(16, 64, 1)});
  Plan plan = planOrDie(program, makeBatch({{1, 1000}}), {.workers = 1});
  EXPECT_EQ(plan.attends[0].items[0].keyBegin, 896u) << "900 aligned down";
  EXPECT_EQ(plan.attends[0].items[0].keyEnd, 1024u);
}

TEST(Planner, TopLeftPositionsStartAtZero) {
  Program program = makeProgram(1, 1, causalMask(), {attendKernel(16, 16, 1)});
  program.facts.topLeft = true;
  Plan plan = planOrDie(program, makeBatch({{4, 100}}), {.workers = 1});
  EXPECT_EQ(plan.rows[3].position, 3);
  EXPECT_EQ(plan.attends[0].items[0].keyEnd, 16u);
}

TEST(Planner, BoundsReadScalarsAndPerHeadExtremes) {
  BoundSet may = windowMask(1);
  may.intervals[0].lo = {{BoundOp::QueryLo}, {BoundOp::ScalarMax, 0}, {BoundOp::Sub}};
  Program program =
      makeProgram(1, 2, may, {attendKernel(16, 16, 1)}, {{"window", ScalarType::I64, 0, 0, -1}});
  ScalarValues scalars{{0}, {10}, {40}};
  Plan plan = planOrDie(program, makeBatch({{1, 1000}}), {.workers = 1}, scalars);
  EXPECT_EQ(plan.attends[0].items[0].keyBegin, 944u) << "999 - 40 = 959, aligned down";
}

TEST(Planner, EachTileTakesTheVariantThatWastesLeast) {
  Program program =
      makeProgram(1, 1, fullMask(), {attendKernel(16, 64, 1), attendKernel(64, 64, 2)});
  Plan decode = planOrDie(program, makeBatch({{1, 64}}), {.workers = 1});
  EXPECT_EQ(decode.attends[0].items.size(), 1u);
  EXPECT_EQ(decode.attends[1].items.size(), 0u);
  Plan prefill = planOrDie(program, makeBatch({{134, 64}}), {.workers = 1});
  EXPECT_EQ(prefill.attends[0].items.size(), 1u) << "6 rows of tail";
  EXPECT_EQ(prefill.attends[1].items.size(), 2u);
  Plan equalCost = planOrDie(program, makeBatch({{20, 64}}), {.workers = 1});
  EXPECT_EQ(equalCost.attends[1].items.size(), 1u) << "at equal cost the larger";
}

TEST(Planner, ItemsOfAWorkerStayInNaturalOrder) {
  Program program = makeProgram(1, 4, causalMask(), {attendKernel(16, 16, 1)});
  Plan plan = planOrDie(program, makeBatch({{2000, 2000}, {500, 900}}), {.workers = 3});
  const AttendPlan &attend = plan.attends[0];
  size_t neighbours = 0;
  for (uint32_t w = 0; w < 3; ++w)
    for (uint32_t i = attend.itemOffsets[w] + 1; i < attend.itemOffsets[w + 1]; ++i) {
      const WorkItem &a = attend.items[i - 1], &b = attend.items[i];
      EXPECT_LT(std::tie(a.sequence, a.kvHead, a.firstRow, a.keyBegin),
                std::tie(b.sequence, b.kvHead, b.firstRow, b.keyBegin));
      neighbours += a.kvHead == b.kvHead && a.firstRow + a.rowCount == b.firstRow;
    }
  EXPECT_GT(neighbours, attend.items.size() * 9 / 10);
}

TEST(Planner, FixedSplitsAreCappedByKeyTiles) {
  Program program = makeProgram(1, 1, fullMask(), {attendKernel(16, 64, 1)});
  PlanOptions options{.workers = 1, .splitPolicy = SplitPolicy::Fixed, .splits = 8};
  Plan plan = planOrDie(program, makeBatch({{1, 150}}), options);
  EXPECT_EQ(plan.attends[0].items.size(), 3u);
  EXPECT_EQ(plan.partialRows, 3u);
  options.splits = 0;
  EXPECT_FALSE(makePlan(program, makeBatch({{1, 1}}), {}, options));
}

TEST(Planner, SplitsByLengthLieAtAbsoluteMultiples) {
  Program program = makeProgram(1, 1, windowMask(1500), {attendKernel(16, 64, 1)});
  PlanOptions options{.workers = 1, .splitPolicy = SplitPolicy::ByLength, .splitKeys = 1000};
  Plan plan = planOrDie(program, makeBatch({{1, 4000}}), options);
  const PlanArray<WorkItem> &items = plan.attends[0].items;
  ASSERT_EQ(items.size(), 2u);
  EXPECT_EQ(items[0].keyBegin, 2496u);
  EXPECT_EQ(items[0].keyEnd, 3072u) << "1000 keys round up to 1024";
  EXPECT_EQ(items[1].keyEnd, 4032u);
}

TEST(Planner, SplitsWithoutAVisibleKeyAreLeftOut) {
  Program program = makeProgram(1, 1, sinkOrWindowMask(4, 50), {attendKernel(16, 16, 1)});
  PlanOptions options{.workers = 1, .splitPolicy = SplitPolicy::ByLength, .splitKeys = 64};
  Plan plan = planOrDie(program, makeBatch({{1, 1024}}), options);
  EXPECT_EQ(plan.attends[0].items.size(), 2u);
}

TEST(Planner, AutoSplitsOneLongSequenceOverIdleWorkers) {
  Program program = makeProgram(4, 1, causalMask(), {attendKernel(16, 64, 1)});
  Plan plan = planOrDie(program, makeBatch({{1, 131072}}), {.workers = 64});
  EXPECT_GE(plan.attends[0].items.size(), 64u);
  EXPECT_LE(longestLoad(plan, 64), 1.1 * 2048 / 64);
  Plan alone = planOrDie(program, makeBatch({{1, 131072}}), {.workers = 1});
  EXPECT_EQ(alone.partialRows, 0u) << "one worker gains nothing";
  Plan tiny = planOrDie(program, makeBatch({{1, 128}}), {.workers = 64});
  EXPECT_EQ(tiny.partialRows, 0u) << "two tiles are not worth a merge";
}

TEST(Planner, AutoBalancesNineItemsOverEightWorkers) {
  Program program = makeProgram(1, 1, causalMask(), {attendKernel(16, 64, 1)});
  Plan plan =
      planOrDie(program, makeBatch(std::vector<std::pair<int64_t, int64_t>>(9, {1, 64 * 256})),
                {.workers = 8});
  EXPECT_LE(longestLoad(plan, 64), 1.15 * 9 * 256 / 8);
}

// A41: one very long sequence among short ones.
TEST(Planner, OneLongSequenceAmongShortOnesDoesNotSetTheTime) {
  std::vector<std::pair<int64_t, int64_t>> lengths(16, {1, 512});
  lengths[0] = {1, 131072};
  for (uint32_t workers : {4, 16, 132}) {
    Program program = makeProgram(4, 8, causalMask(), {attendKernel(16, 64, 1)});
    Plan plan = planOrDie(program, makeBatch(lengths), {.workers = workers});
    double ideal = 8.0 * (131072 + 15 * 512) / 64 / workers;
    EXPECT_LE(longestLoad(plan, 64), 1.3 * ideal) << workers << " workers";
  }
}

TEST(Planner, ManyItemsAreBalancedWithoutSplits) {
  Program program = makeProgram(1, 8, causalMask(), {attendKernel(64, 64, 1)});
  Plan plan = planOrDie(program, makeBatch({{4096, 4096}}), {.workers = 8});
  EXPECT_EQ(plan.partialRows, 0u);
  double total = 8 * (64 * 65 / 2);
  EXPECT_LE(longestLoad(plan, 64), 1.05 * total / 8);
}

TEST(Planner, OverflowOfTheWorkspaceCapsTheSplits) {
  Program program = makeProgram(1, 2, fullMask(), {attendKernel(16, 64, 1)});
  BatchShape batch = makeBatch({{3, 6400}, {16, 640}});
  for (SplitPolicy policy : {SplitPolicy::Auto, SplitPolicy::Fixed, SplitPolicy::ByLength})
    for (uint64_t most : {0, 5, 6, 11, 12, 60, 100, 1000}) {
      PlanOptions options{.workers = 16,
                          .splitPolicy = policy,
                          .splits = 10,
                          .splitKeys = 128,
                          .maxPartialRows = most};
      Plan plan = planOrDie(program, batch, options);
      EXPECT_LE(plan.partialRows, most);
    }
}

TEST(Planner, BatchInvariantPlansFailInsteadOfChangingTheSplits) {
  Program program = makeProgram(1, 1, fullMask(), {attendKernel(16, 64, 1)});
  StatusOr<Plan> plan = makePlan(program, makeBatch({{1, 5000}}), {},
                                 {.workers = 4, .maxPartialRows = 2, .batchInvariant = true});
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.status().code(), StatusCode::ResourceExhausted);
}

TEST(Planner, BatchInvariantSplitsDependOnTheRowAlone) {
  Program program =
      makeProgram(2, 1, causalMask(),
                  {attendKernel(4, 64, 1), attendKernel(64, 64, 4), attendKernel(64, 128, 1)});
  program.facts.batchInvariant = true;
  // The cuts that lie inside the keys of the last query.
  auto cuts = [&](const Plan &plan, uint32_t sequence) {
    std::vector<uint32_t> ends;
    uint32_t last = 0;
    for (const AttendPlan &attend : plan.attends)
      for (const WorkItem &item : attend.items)
        if (item.sequence == sequence)
          last = std::max(last, item.firstRow);
    for (const AttendPlan &attend : plan.attends)
      for (const WorkItem &item : attend.items)
        if (item.sequence == sequence && item.firstRow == last)
          ends.push_back(item.keyEnd);
    std::sort(ends.begin(), ends.end());
    return ends;
  };
  std::vector<uint32_t> expected = {1024, 2048, 3008};
  for (uint32_t workers : {1, 7, 64}) {
    PlanOptions options{.workers = workers};
    EXPECT_EQ(cuts(planOrDie(program, makeBatch({{1, 3000}}), options), 0), expected);
    EXPECT_EQ(cuts(planOrDie(program, makeBatch({{3000, 3000}}), options), 0), expected);
    Plan mixed = planOrDie(program, makeBatch({{1, 9000}, {7, 3000}, {2, 5}}), options);
    EXPECT_EQ(cuts(mixed, 1), expected);
    EXPECT_TRUE(mixed.attends[2].items.empty()) << "another key tile, another rounding";
  }
  EXPECT_FALSE(
      makePlan(program, makeBatch({{1, 1}}), {}, {.splitPolicy = SplitPolicy::Fixed, .splits = 2}));
}

TEST(Planner, CountsThatDoNotFitAreRefused) {
  Program program = makeProgram(16, 1, causalMask(), {attendKernel(64, 64, 1)});
  StatusOr<Plan> rows = makePlan(program, makeBatch({{1 << 28, 1 << 28}}), {}, {});
  ASSERT_FALSE(rows);
  EXPECT_EQ(rows.status().code(), StatusCode::ResourceExhausted);
  // Kernels count in 32 bits up to here.
  EXPECT_FALSE(makePlan(program, makeBatch({{1, bundle::kMaxLength + 1}}), {}, {}));
  EXPECT_FALSE(makePlan(program, makeBatch({{-1, 4}}), {}, {}));
  EXPECT_FALSE(makePlan(program, makeBatch({{1, 4}}), {}, {.workers = 1u << 20}));
  planOrDie(program, makeBatch({{1, bundle::kMaxLength}}), {.workers = 8});
  program.kernels.erase(program.kernels.begin());
  EXPECT_FALSE(makePlan(program, makeBatch({{1, 4}}), {}, {})) << "nothing attends";
}

// A13: a length beyond the table is refused before planning.
TEST(Planner, LengthsBeyondTheTableAreRefused) {
  BatchShape batch = makeBatch({{1, 64}, {1, 65}});
  std::vector<int64_t> columns = {4};
  Status status = checkTable(batch, 16, columns);
  EXPECT_EQ(status.message(), "sequence 1 has 65 keys; its page table holds 4 pages of 16 "
                              "keys; give it more columns or a shorter length");
  columns = {5};
  EXPECT_TRUE(checkTable(batch, 16, columns).ok());
  columns = {4, 5};
  EXPECT_TRUE(checkTable(batch, 16, columns).ok());
  columns = {5, 4};
  EXPECT_FALSE(checkTable(batch, 16, columns).ok());
  columns = {1, 2, 3};
  EXPECT_FALSE(checkTable(batch, 16, columns).ok());
  columns = {INT64_MAX};
  EXPECT_TRUE(checkTable(batch, UINT32_MAX, columns).ok());
  EXPECT_FALSE(checkTable(batch, 0, columns).ok());
}

// 256 queries of a group of 4 are 1024 rows: five tiles of 192, and 64 rows are left. With
// costs of (rows + 16) one tile of 192 is cheaper than 16 of 4, which would read the keys 16
// times; for 40 rows ten small ones are.
TEST(Planner, TailRowsTakeTheCheaperKernel) {
  Program program =
      makeProgram(4, 1, fullMask(), {attendKernel(4, 64, 20), attendKernel(192, 64, 208)});
  auto itemsOf = [&](int64_t queries) {
    Plan plan = planOrDie(program, makeBatch({{queries, 1024}}), {.workers = 1});
    return std::pair(plan.attends[0].items.size(), plan.attends[1].items.size());
  };
  EXPECT_EQ(itemsOf(256), std::pair(size_t{0}, size_t{6}));
  EXPECT_EQ(itemsOf(250), std::pair(size_t{10}, size_t{5}));
  EXPECT_EQ(itemsOf(251), std::pair(size_t{0}, size_t{6}));
  EXPECT_EQ(itemsOf(1), std::pair(size_t{1}, size_t{0}));
}

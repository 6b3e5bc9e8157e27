#include "RandomPlans.h"

using namespace plantest;

TEST(PlannerProperty, EachRowSeesEachVisibleKeyOnce) {
  int split = 0;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Program program = randomProgram(random);
    PlanOptions options = randomOptions(random);
    BatchShape batch = randomBatch(random);
    StatusOr<Plan> plan = makePlan(program, batch, {}, options);
    if (!plan) {
      ASSERT_TRUE(program.facts.batchInvariant) << plan.status().toString();
      continue;
    }
    checkPlan(program, batch, {}, options, *plan);
    ASSERT_FALSE(HasFailure());
    EXPECT_EQ(boundOf(program, options, batch).lacks(PlanCounts::of(*plan)), "");
    if (!program.facts.batchInvariant) {
      EXPECT_LE(plan->partialRows, options.maxPartialRows);
    }
    split += plan->partialRows > 0;
  }
  EXPECT_GT(split, 50) << "the property must see splits";
}

TEST(PlannerProperty, SamePlanForSameInput) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    Random first(seed), second(seed);
    auto make = [](Random &random) {
      Program program = randomProgram(random);
      PlanOptions options = randomOptions(random);
      return makePlan(program, randomBatch(random), {}, options);
    };
    StatusOr<Plan> a = make(first), b = make(second);
    ASSERT_EQ(a.ok(), b.ok());
    if (!a)
      continue;
    EXPECT_EQ(a->partialRows, b->partialRows);
    EXPECT_EQ(a->mergeOffsets, b->mergeOffsets);
    for (size_t i = 0; i < a->attends.size(); ++i)
      EXPECT_EQ(a->attends[i].itemOffsets, b->attends[i].itemOffsets);
  }
}

// A40: no division by zero and 1 <= splits <= key tiles, whatever the counts.
TEST(PlannerProperty, SplitsAreDefinedForEveryCountOfWorkersLengthsAndSequences) {
  Program program = makeProgram(1, 1, causalMask(), {attendKernel(16, 64, 1)});
  for (uint32_t workers : {0, 1, 2, 3, 28, 64, 132, 255, 256})
    for (int64_t length : {0, 1, 63, 64, 65, 4096, 100000, 1000000})
      for (size_t sequences : {1, 2, 31, 1024}) {
        SCOPED_TRACE(testing::Message() << workers << " workers, " << sequences << " x " << length);
        BatchShape batch =
            makeBatch(std::vector<std::pair<int64_t, int64_t>>(sequences, {1, length}));
        PlanOptions options{.workers = workers};
        StatusOr<Plan> plan = makePlan(program, batch, {}, options);
        ASSERT_TRUE(plan) << plan.status().toString();
        std::vector<int64_t> splits(sequences);
        for (const WorkItem &item : plan->attends[0].items)
          ++splits[item.sequence];
        for (int64_t count : splits) {
          ASSERT_GE(count, 1);
          ASSERT_LE(count, std::max<int64_t>(1, (length + 63) / 64));
        }
        ASSERT_EQ(boundOf(program, options, batch).lacks(PlanCounts::of(*plan)), "");
      }
}

// A40 (exact): kv 4096, 32/32 heads, one query, few multiprocessors.
TEST(PlannerProperty, SmallGpuDecode) {
  Program program = makeProgram(1, 32, causalMask(), {attendKernel(16, 64, 1)});
  for (uint32_t workers : {0, 28}) {
    PlanOptions options{.workers = workers};
    BatchShape batch = makeBatch({{1, 4096}});
    StatusOr<Plan> plan = makePlan(program, batch, {}, options);
    ASSERT_TRUE(plan);
    checkPlan(program, batch, {}, options, *plan);
  }
}

// Kernels that take the items of several KV heads together: whatever the policy, their lists hold
// whole tuples, and all else that is promised of a plan holds too.
#include "CascadeCheck.h"
#include "RandomPlans.h"

using namespace plantest;

namespace {

using Lengths = std::vector<std::pair<int64_t, int64_t>>;

size_t itemCount(const Plan &plan, size_t attend) { return plan.attends[attend].items.size(); }

} // namespace

TEST(Tuples, RandomPlansKeepAllPromises) {
  int split = 0;
  for (uint32_t seed = 1000; seed < 1080; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Program program = withTuples(random, randomProgram(random));
    PlanOptions options = randomOptions(random);
    BatchShape batch = randomBatch(random);
    StatusOr<Plan> plan = makePlan(program, batch, {}, options);
    if (!plan) {
      ASSERT_TRUE(program.facts.batchInvariant) << plan.status().toString();
      continue;
    }
    checkPlan(program, batch, {}, options, *plan);
    ASSERT_EQ(boundOf(program, options, batch).lacks(PlanCounts::of(*plan)), "");
    ASSERT_FALSE(HasFailure());
    split += plan->partialRows > 0;
  }
  EXPECT_GT(split, 15);
}

TEST(Tuples, RandomTreesKeepAllPromises) {
  int used = 0;
  for (uint32_t seed = 1000; seed < 1080; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    RandomCascade shared = randomCascade(seed);
    Program program = withTuples(random, shared.program);
    used += planAndCheck(program, shared.tree, shared.options) == CascadeAnswer::Used;
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(used, 20);
}

TEST(Tuples, ThreadsGetKeysAndNotHeads) {
  for (uint32_t heads : {2, 4, 8}) {
    Program program = makeProgram(4, 8, causalMask(), {attendKernel(4, 32, 1, heads)});
    for (uint32_t workers : {2, 3, 8}) {
      PlanOptions options{.workers = workers};
      BatchShape batch = makeBatch({{1, 4096}});
      StatusOr<Plan> plan = makePlan(program, batch, {}, options);
      ASSERT_TRUE(plan);
      checkPlan(program, batch, {}, options, *plan);
      if (heads == 8)
        EXPECT_EQ(itemCount(*plan, 0), 8 * workers) << "each worker a part of the keys";
    }
  }
}

// Four key tiles are too short to be cut for one head, and not for all of them.
TEST(Tuples, AShortRowTileOfManyHeadsIsCut) {
  Program program = makeProgram(4, 8, causalMask(), {attendKernel(4, 32, 1, 8)});
  StatusOr<Plan> plan = makePlan(program, makeBatch({{1, 128}}), {}, {.workers = 2});
  ASSERT_TRUE(plan);
  EXPECT_EQ(itemCount(*plan, 0), 16u);
}

TEST(Tuples, LoadsAreBalanced) {
  for (uint32_t heads : {1, 2, 4, 8})
    for (uint32_t workers : {2, 16, 132})
      for (const Lengths &lengths :
           {Lengths(9, {1, 64 * 256}), Lengths(1, {1, 100000}),
            Lengths{{1, 30}, {1, 7000}, {1, 900}, {33, 33}, {200, 4000}}}) {
        SCOPED_TRACE(testing::Message() << heads << " heads, " << workers << " workers");
        Program program =
            costedProgram(4, 8, {attendKernel(16, 64, 1, heads), attendKernel(64, 64, 1.6, heads)});
        BatchShape batch = makeBatch(lengths);
        for (bool invariant : {false, true}) {
          PlanOptions options{.workers = workers, .batchInvariant = invariant};
          StatusOr<Plan> plan = makePlan(program, batch, {}, options);
          ASSERT_TRUE(plan);
          checkPlan(program, batch, {}, options, *plan);
          Loads loads = loadsOf(program, *plan);
          EXPECT_LE(loads.longest, invariant ? loads.mean + loads.largestItem + 2
                                             : 1.05 * loads.mean + loads.oneTile)
              << (invariant ? "batch invariant" : "by load");
        }
      }
}

// A chunk's heads part workers better than its keys do.
TEST(Tuples, ASequenceTakesKernelsOfOneKind) {
  Program program =
      makeProgram(4, 8, causalMask(),
                  {attendKernel(4, 64, 1, 8), attendKernel(4, 64, 1.2), attendKernel(64, 64, 4)});
  Plan decode = *makePlan(program, makeBatch({{1, 500}}), {}, {.workers = 1});
  EXPECT_EQ(itemCount(decode, 0), 8u);
  // 65 rows: 64 and, of the same kind, one.
  Program odd = program;
  odd.facts.queryHeads = 8;
  Plan chunk = *makePlan(odd, makeBatch({{65, 500}}), {}, {.workers = 1});
  EXPECT_EQ(itemCount(chunk, 0), 0u);
  EXPECT_EQ(itemCount(chunk, 1), 8u);
  EXPECT_EQ(itemCount(chunk, 2), 8u);
  // Two kernels of the same cost: the one that reads whole token rows.
  program.kernels[1].costPerTile = 1;
  std::swap(program.kernels[0], program.kernels[1]);
  decode = *makePlan(program, makeBatch({{1, 500}}), {}, {.workers = 1});
  EXPECT_EQ(itemCount(decode, 1), 8u);
}

TEST(Tuples, BatchesThatGrowKeepTheirItems) {
  Program program =
      makeProgram(2, 8, causalMask(), {attendKernel(4, 16, 1, 8), attendKernel(32, 16, 3)});
  for (SplitPolicy policy : {SplitPolicy::Auto, SplitPolicy::Fixed, SplitPolicy::ByLength}) {
    PlanOptions options{.workers = 5, .splitPolicy = policy, .splits = 3, .splitKeys = 128};
    Planner planner = *Planner::create(program, options, {8, 64, 64});
    Plan plan = makeRoom(program, planner.room());
    Lengths lengths = {{1, 401}, {1, 1}, {2, 99}, {1, 800}};
    ASSERT_EQ(*planner.plan(makeBatch(lengths), {}, plan, true), PlanChange::All);
    for (int step = 0; step < 40; ++step) {
      bool crosses = false;
      for (auto &[queries, keys] : lengths)
        crosses |= keys++ % 16 == 0;
      BatchShape batch = makeBatch(lengths);
      StatusOr<PlanChange> change = planner.plan(batch, {}, plan, true);
      ASSERT_TRUE(change);
      EXPECT_EQ(*change, crosses ? PlanChange::All : PlanChange::Lengths) << step;
      checkPlan(program, batch, {}, options, plan);
      ASSERT_FALSE(HasFailure());
    }
  }
}

// Plans in room that was fixed beforehand: nothing outgrows it, nothing moves, and a batch that
// grows within its key tiles keeps its items.
#include "PlanTestUtil.h"
#include "tools/bench/HeapCount.h"

using namespace plantest;
using llmopt::bench::allocations, llmopt::bench::counting;

namespace {

/// A planner for batches of up to 8 sequences, and one plan.
struct Fixed {
  explicit Fixed(PlanOptions options, BoundSet may = causalMask(), PlanLimits limits = {8, 64, 64})
      : program(
            makeProgram(2, 2, std::move(may), {attendKernel(4, 16, 1), attendKernel(32, 16, 3)})),
        options(options) {
    StatusOr<Planner> made = Planner::create(program, options, limits);
    EXPECT_TRUE(made) << made.status().toString();
    planner.emplace(*std::move(made));
    plan = makeRoom(program, planner->room());
  }
  StatusOr<PlanChange> run(const std::vector<std::pair<int64_t, int64_t>> &lengths,
                           bool itemsStay = false) {
    batch = makeBatch(lengths);
    return planner->plan(batch, {}, plan, itemsStay);
  }
  void check() { checkPlan(program, batch, {}, options, plan); }

  Program program;
  PlanOptions options;
  std::optional<Planner> planner;
  Plan plan;
  BatchShape batch;
};

std::vector<uint8_t> bytesOf(const Plan &plan) {
  std::vector<uint8_t> bytes;
  auto add = [&](const auto &array) {
    const auto *first = reinterpret_cast<const uint8_t *>(array.data());
    bytes.insert(bytes.end(), first, first + array.size() * sizeof(array[0]));
  };
  for (const AttendPlan &attend : plan.attends)
    add(attend.itemOffsets), add(attend.items);
  add(plan.mergeOffsets), add(plan.merges);
  return bytes;
}

} // namespace

TEST(PlanCapacity, EveryBatchWithinTheLimitsFitsAndNothingMoves) {
  for (SplitPolicy policy :
       {SplitPolicy::Auto, SplitPolicy::None, SplitPolicy::Fixed, SplitPolicy::ByLength}) {
    PlanOptions options{.workers = 7, .splitPolicy = policy, .splits = 3, .splitKeys = 64};
    Fixed fixed(options);
    const WorkItem *items = fixed.plan.attends[0].items.data();
    const MergeItem *merges = fixed.plan.merges.data();
    std::mt19937 random(3);
    for (int i = 0; i < 300; ++i) {
      std::vector<std::pair<int64_t, int64_t>> lengths(random() % 9);
      int64_t left = 64;
      for (auto &[queries, keys] : lengths) {
        queries = std::min<int64_t>(left, random() % 3 ? random() % 2 : random() % 40);
        left -= queries;
        keys = random() % 1024;
      }
      ASSERT_TRUE(fixed.run(lengths));
      fixed.check();
      ASSERT_FALSE(HasFailure());
      ASSERT_EQ(fixed.planner->room().lacks(PlanCounts::of(fixed.plan)), "");
      ASSERT_EQ(fixed.plan.attends[0].items.data(), items);
      ASSERT_EQ(fixed.plan.merges.data(), merges);
    }
  }
}

TEST(PlanCapacity, ABatchBeyondTheLimitsIsRefusedWithTheNumbers) {
  Fixed fixed({.workers = 2});
  StatusOr<PlanChange> many = fixed.run(std::vector<std::pair<int64_t, int64_t>>(9, {1, 10}));
  ASSERT_FALSE(many);
  EXPECT_EQ(many.status().message(), "a batch of 9 sequences and 9 query tokens; the planner was "
                                     "made for 8 and 64");
  EXPECT_FALSE(fixed.run({{65, 100}}));
  ASSERT_TRUE(fixed.run({{64, 100}}));
  fixed.check();
}

// A30: overflow lowers splits, it neither fails nor asks for more memory.
TEST(PlanCapacity, OverflowLowersSplits) {
  for (SplitPolicy policy : {SplitPolicy::Auto, SplitPolicy::Fixed, SplitPolicy::ByLength}) {
    PlanOptions options{
        .workers = 16, .splitPolicy = policy, .splits = 9, .splitKeys = 32, .maxPartialRows = 20};
    Fixed fixed(options);
    ASSERT_TRUE(fixed.run({{1, 900}, {1, 1000}, {1, 20}, {2, 700}}));
    fixed.check();
    EXPECT_LE(fixed.plan.partialRows, 20u);
    EXPECT_GT(fixed.planner->counters().splitsRefused, 0u);
  }
}

TEST(PlanCapacity, APlanAllocatesNothing) {
  std::vector<std::pair<int64_t, int64_t>> lengths = {{1, 900}, {1, 17}, {5, 700}, {1, 333}};
  for (SplitPolicy policy : {SplitPolicy::Auto, SplitPolicy::Fixed, SplitPolicy::ByLength})
    for (const BoundSet &may : {causalMask(), sinkOrWindowMask(4, 100), dilatedMask(40)}) {
      Fixed fixed({.workers = 13, .splitPolicy = policy, .splits = 4, .splitKeys = 64}, may);
      ASSERT_TRUE(fixed.run(lengths));
      for (auto &[queries, keys] : lengths)
        keys += 70;
      fixed.batch = makeBatch(lengths);
      allocations = 0;
      counting = true;
      StatusOr<PlanChange> change = fixed.planner->plan(fixed.batch, {}, fixed.plan);
      counting = false;
      ASSERT_TRUE(change);
      EXPECT_EQ(allocations, 0u) << int(policy);
      fixed.check();
    }
}

TEST(PlanGrowth, ItemsChangeOnlyWhenALengthCrossesATile) {
  for (SplitPolicy policy : {SplitPolicy::Auto, SplitPolicy::ByLength}) {
    Fixed fixed({.workers = 5, .splitPolicy = policy, .splitKeys = 128});
    std::vector<std::pair<int64_t, int64_t>> lengths = {{1, 401}, {1, 1}, {2, 99}, {1, 800}};
    ASSERT_EQ(*fixed.run(lengths, true), PlanChange::All) << "the first one";
    int whole = 0;
    for (int step = 0; step < 64; ++step) {
      std::vector<uint8_t> before = bytesOf(fixed.plan);
      bool crosses = false;
      for (auto &[queries, keys] : lengths)
        crosses |= keys++ % 16 == 0;
      StatusOr<PlanChange> change = fixed.run(lengths, true);
      ASSERT_TRUE(change);
      EXPECT_EQ(*change, crosses ? PlanChange::All : PlanChange::Lengths) << step;
      if (!crosses)
        EXPECT_EQ(bytesOf(fixed.plan), before);
      whole += crosses;
      fixed.check();
      ASSERT_FALSE(HasFailure());
    }
    EXPECT_LE(whole, 16);
    EXPECT_EQ(fixed.planner->counters().lengthsOnly, uint64_t(64 - whole));
  }
}

TEST(PlanGrowth, ItemsThatTheDeviceHasNotGotAreWrittenAgain) {
  Fixed fixed({.workers = 5});
  ASSERT_TRUE(fixed.run({{1, 401}}, true));
  EXPECT_EQ(*fixed.run({{1, 402}}, false), PlanChange::All);
  EXPECT_EQ(*fixed.run({{1, 403}}, true), PlanChange::Lengths);
  EXPECT_FALSE(fixed.run({{-1, 403}}, true)) << "what it leaves is void";
  EXPECT_EQ(*fixed.run({{1, 404}}, true), PlanChange::All);
  EXPECT_EQ(*fixed.run({{1, 404}, {1, 404}}, true), PlanChange::All);
}

// Keys that a dilated mask shows move inside the tiles.
TEST(PlanGrowth, ThinnedMasksArePlannedAnew) {
  Fixed fixed({.workers = 5}, dilatedMask(40));
  ASSERT_TRUE(fixed.run({{1, 401}}, true));
  EXPECT_EQ(*fixed.run({{1, 402}}, true), PlanChange::All);
}

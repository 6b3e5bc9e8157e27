// Shared keys as items of their own: what they cover, when they are used, and that each row
// still has each of its keys once, in parts that its merge names in order.
#include "CascadeCheck.h"

using namespace plantest;

namespace {

BoundSet surelyWindow(int64_t width) {
  return {{{.lo = {{BoundOp::QueryHi}, constant(width - 1), {BoundOp::Sub}},
            .hi = {{BoundOp::QueryLo}, constant(1), {BoundOp::Add}}}}};
}

CascadeAnswer run(const Program &program, const Tree &tree, const PlanOptions &options,
                  Plan *out = nullptr) {
  return planAndCheck(program, tree, options, out);
}

size_t sharedItems(const Plan &plan) {
  size_t count = 0;
  for (const AttendPlan &attend : plan.attends)
    for (const WorkItem &item : attend.items)
      count += item.flags == kMixedSequences;
  return count;
}

double keysRead(const Program &program, const Plan &plan) {
  double keys = 0;
  for (const AttendPlan &attend : plan.attends)
    for (const WorkItem &item : attend.items)
      keys += item.keyEnd - item.keyBegin;
  return keys / program.facts.kvHeads;
}

Tree systemPrompt(uint32_t sequences, uint32_t shared, int64_t own) {
  Tree tree;
  uint32_t node = tree.node(kNoPrefix, shared);
  for (uint32_t s = 0; s < sequences; ++s)
    tree.add(node, 1, shared + own + s);
  return tree;
}

} // namespace

TEST(Cascade, ASystemPromptIsReadOnceForATileOfRows) {
  Program program = cascadeProgram();
  Tree tree = systemPrompt(16, 2048, 100);
  Plan with, without;
  EXPECT_EQ(run(program, tree, {.workers = 4, .cascadeLevels = 1}, &with), CascadeAnswer::Used);
  EXPECT_EQ(run(program, tree, {.workers = 4}, &without), CascadeAnswer::Off);
  EXPECT_EQ(sharedItems(without), 0u);
  // 16 sequences of 4 rows fill one tile of 64.
  EXPECT_LE(keysRead(program, with), 2048 + 16 * (100 + 32));
  EXPECT_GE(keysRead(program, without), 16 * 2048);
  Loads loads = loadsOf(program, with);
  EXPECT_LE(loads.longest,
            1.05 * loads.mean + loads.oneTile + 64 * double(partialRowCost(program)));
}

TEST(Cascade, MoreRowsThanATileMakeMoreItems) {
  Program program = cascadeProgram();
  Plan plan;
  EXPECT_EQ(run(program, systemPrompt(40, 1024, 33), {.workers = 1, .cascadeLevels = 1}, &plan),
            CascadeAnswer::Used);
  EXPECT_EQ(sharedItems(plan), 3u * 2) << "160 rows in tiles of 64, for two heads";
}

TEST(Cascade, LevelsThatAreNotAskedForAreFlattened) {
  Program program = cascadeProgram();
  Tree tree;
  uint32_t top = tree.node(kNoPrefix, 1024);
  for (int a = 0; a < 2; ++a) {
    uint32_t middle = tree.node(top, 2048);
    for (int b = 0; b < 2; ++b) {
      uint32_t low = tree.node(middle, 3072);
      for (int s = 0; s < 3; ++s)
        tree.add(low, 1, 3100 + s);
      tree.add(low, 2, 3333);
    }
  }
  tree.add(kNoPrefix, 1, 500);
  for (uint32_t levels : {1, 2, 3, 8}) {
    Plan plan;
    EXPECT_EQ(run(program, tree, {.workers = 1, .cascadeLevels = levels}, &plan),
              CascadeAnswer::Used);
    size_t expected = levels == 1 ? 1 : levels == 2 ? 3 : 7; // tiles of 64 rows take 16 sequences
    if (!testing::Test::HasFailure())
      EXPECT_GE(sharedItems(plan), expected * 2) << levels;
    EXPECT_EQ(run(program, tree, {.workers = 33, .cascadeLevels = levels}), CascadeAnswer::Used);
    EXPECT_EQ(
        run(program, tree,
            {.workers = 33, .splitKeys = 128, .batchInvariant = true, .cascadeLevels = levels}),
        CascadeAnswer::Used);
  }
}

TEST(Cascade, SaysWhyItIsNotUsed) {
  Program program = cascadeProgram();
  PlanOptions options{.workers = 4, .cascadeLevels = 2};
  Tree tree = systemPrompt(16, 2048, 100);
  EXPECT_EQ(run(program, systemPrompt(1, 2048, 100), options), CascadeAnswer::NothingShared);
  EXPECT_EQ(run(program, systemPrompt(16, 8, 100), options), CascadeAnswer::NothingShared);
  EXPECT_EQ(run(program, systemPrompt(2, 16, 1000), options), CascadeAnswer::NoGain);
  Program other = program;
  other.facts.mixesSequences = false;
  EXPECT_EQ(run(other, tree, options), CascadeAnswer::Unsupported);
  PlanOptions fixed = options;
  fixed.splitPolicy = SplitPolicy::Fixed;
  fixed.splits = 2;
  EXPECT_EQ(run(program, tree, fixed), CascadeAnswer::Unsupported);
  Program window = program;
  window.facts.may = windowMask(50);
  window.facts.surely = surelyWindow(50);
  uint64_t tokens = 16;
  Planner planner = *Planner::create(window, options, {16, tokens, 8});
  Plan plan = makeRoom(window, planner.room());
  ASSERT_TRUE(planner.plan(tree.batch, {}, plan));
  EXPECT_EQ(planner.lastCascade(), CascadeAnswer::Hidden);
  PlanOptions small = options;
  small.maxPartialRows = 60;
  EXPECT_EQ(run(program, tree, small), CascadeAnswer::NoRoom);
}

// Chunks of prompts fill tiles by themselves: one item for several of them saves nothing.
TEST(Cascade, ChunksAreLeftAlone) {
  Program program = cascadeProgram();
  Tree tree;
  uint32_t node = tree.node(kNoPrefix, 2048);
  for (int s = 0; s < 4; ++s)
    tree.add(node, 128, 2300);
  EXPECT_EQ(run(program, tree, {.workers = 4, .cascadeLevels = 1}), CascadeAnswer::NothingShared);
}

TEST(Cascade, InvariantPlansCutAtSplitBoundariesOnly) {
  Program program = cascadeProgram();
  Tree tree = systemPrompt(16, 1000, 700);
  PlanOptions options{.workers = 4, .splitKeys = 256, .batchInvariant = true, .cascadeLevels = 2};
  Plan with, without;
  EXPECT_EQ(run(program, tree, options, &with), CascadeAnswer::Used);
  options.cascadeLevels = 0;
  run(program, tree, options, &without);
  auto cuts = [](const Plan &plan) {
    std::set<uint32_t> all;
    for (const AttendPlan &attend : plan.attends)
      for (const WorkItem &item : attend.items)
        all.insert(item.keyBegin);
    return all;
  };
  EXPECT_EQ(cuts(with), cuts(without));
  EXPECT_EQ(sharedItems(with), 3u * 2) << "768 of the 1000 keys";
}

TEST(Cascade, ABatchThatGrowsKeepsItsItems) {
  Program program = cascadeProgram();
  Tree tree = systemPrompt(16, 2048, 1);
  PlanOptions options{.workers = 4, .cascadeLevels = 1};
  Planner planner = *Planner::create(program, options, {16, 16, 200});
  Plan plan = makeRoom(program, planner.room());
  ASSERT_EQ(*planner.plan(tree.batch, {}, plan, true), PlanChange::All);
  int kept = 0;
  for (int step = 0; step < 32; ++step) {
    for (SequenceShape &sequence : tree.batch.sequences)
      ++sequence.keyLen;
    kept += *planner.plan(tree.batch, {}, plan, true) == PlanChange::Lengths;
    checkCascade(program, tree, plan);
    ASSERT_FALSE(HasFailure());
  }
  // Sequence s has 2049 + s keys, so one of them crosses a tile in each step.
  EXPECT_EQ(kept, 0);
  for (SequenceShape &sequence : tree.batch.sequences)
    sequence.keyLen = 2048 + 33;
  ASSERT_TRUE(planner.plan(tree.batch, {}, plan, true));
  for (SequenceShape &sequence : tree.batch.sequences)
    sequence.keyLen += 2;
  EXPECT_EQ(*planner.plan(tree.batch, {}, plan, true), PlanChange::Lengths);
  checkCascade(program, tree, plan);
}

TEST(Cascade, RandomTrees) {
  int used = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    RandomCascade random = randomCascade(seed);
    used += run(random.program, random.tree, random.options) == CascadeAnswer::Used;
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(used, 100);
}

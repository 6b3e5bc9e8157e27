// Shared keys as items of their own: what they cover, when they are used, and that each row
// still has each of its keys once, in parts that its merge names in order.
#include "Loads.h"

#include "runtime/plan/cascade/Cascade.h"

#include <map>
#include <set>

using namespace plantest;

namespace {

BoundSet surelyCausal() {
  return {{{.lo = {constant(0)}, .hi = {{BoundOp::QueryLo}, constant(1), {BoundOp::Add}}}}};
}

BoundSet surelyWindow(int64_t width) {
  return {{{.lo = {{BoundOp::QueryHi}, constant(width - 1), {BoundOp::Sub}},
            .hi = {{BoundOp::QueryLo}, constant(1), {BoundOp::Add}}}}};
}

Program cascadeProgram(uint32_t group = 4, uint32_t kvHeads = 2) {
  Program program =
      costedProgram(group, kvHeads, {attendKernel(4, 16, 1), attendKernel(64, 16, 2)});
  program.facts.surely = surelyCausal();
  program.facts.mixesSequences = true;
  program.facts.kvForm = KvForm::Paged;
  program.facts.queryForm = QueryForm::Ragged;
  program.facts.pageSize = 16;
  return program;
}

/// A batch below a tree, and the page of each key of each sequence: equal where a node says so.
struct Tree {
  BatchShape batch;
  std::vector<std::vector<int>> pages;

  uint32_t node(uint32_t parent, uint32_t keyEnd) {
    batch.prefixes.push_back({parent, keyEnd});
    return uint32_t(batch.prefixes.size() - 1);
  }
  void add(uint32_t node, int64_t queries, int64_t keys) {
    SequenceShape shape;
    shape.queryLen = queries;
    shape.keyLen = keys;
    for (const SequenceShape &other : batch.sequences)
      shape.queryBase += other.queryLen;
    shape.batch = shape.tableBase = int64_t(batch.sequences.size());
    shape.prefix = node;
    std::vector<int> own(size_t(keys / 16 + 2));
    for (size_t page = 0; page < own.size(); ++page)
      own[page] = 1000 * int(batch.sequences.size() + 1) + int(page);
    for (uint32_t n = node; n != kNoPrefix; n = batch.prefixes[n].parent)
      for (uint32_t page = 0; page < batch.prefixes[n].keyEnd / 16 && page < own.size(); ++page)
        own[page] = -1 - int(nodeOfPage(n, page) * 1000 + page);
    pages.push_back(std::move(own));
    batch.sequences.push_back(shape);
  }
  /// The node nearest the root that has the page.
  uint32_t nodeOfPage(uint32_t node, uint32_t page) const {
    while (batch.prefixes[node].parent != kNoPrefix &&
           page < batch.prefixes[batch.prefixes[node].parent].keyEnd / 16)
      node = batch.prefixes[node].parent;
    return node;
  }
};

struct Part {
  uint32_t begin, end;
  int32_t slot;
};

/// (head, token) -> parts of its keys.
using Parts = std::map<std::pair<uint32_t, uint64_t>, std::vector<Part>>;

void collect(const Program &program, const Tree &tree, const Plan &plan, Parts &parts) {
  uint32_t group = program.facts.queryHeads / program.facts.kvHeads;
  std::set<int64_t> slots;
  std::map<uint64_t, uint32_t> sequenceOf;
  for (uint32_t s = 0; s < tree.batch.sequences.size(); ++s)
    for (int64_t q = 0; q < tree.batch.sequences[s].queryLen; ++q)
      sequenceOf[uint64_t(tree.batch.sequences[s].queryBase + q)] = s;
  for (const AttendPlan &attend : plan.attends)
    for (const WorkItem &item : attend.items) {
      const SequenceRecord &record = plan.sequences[item.sequence];
      ASSERT_LE(item.rowCount, program.kernels[attend.kernel].tileRows);
      ASSERT_GT(item.rowCount, 0u);
      uint32_t end = uint32_t(std::min<int64_t>(item.keyEnd, record.keyLen));
      for (uint32_t r = 0; r < item.rowCount; ++r) {
        const RowEntry &entry = plan.rows[(item.firstRow + r) / group];
        uint64_t token = uint64_t(record.queryBase) + entry.query;
        uint32_t s = sequenceOf.at(token);
        const SequenceShape &sequence = tree.batch.sequences[s];
        ASSERT_EQ(entry.position,
                  int64_t(token) - sequence.queryBase + sequence.keyLen - sequence.queryLen);
        if (item.flags & kMixedSequences) { // the keys are the row's own, and all seen
          ASSERT_LE(end, entry.position + 1);
          for (uint32_t page = item.keyBegin / 16; page * 16 < end; ++page)
            ASSERT_EQ(tree.pages[size_t(record.tableBase)][page], tree.pages[s][page]);
        }
        uint64_t packed = token * group + (item.firstRow + r) % group;
        int32_t slot = item.partialSlot < 0 ? -1 : item.partialSlot + int32_t(r);
        if (slot >= 0)
          ASSERT_TRUE(slots.insert(slot).second) << "a partial written twice";
        parts[{item.kvHead, packed}].push_back({item.keyBegin, end, slot});
      }
    }
  ASSERT_TRUE(slots.empty() || *slots.rbegin() < int64_t(plan.partialRows));
}

void checkCascade(const Program &program, const Tree &tree, const Plan &plan) {
  uint32_t group = program.facts.queryHeads / program.facts.kvHeads;
  Parts parts;
  collect(program, tree, plan, parts);
  if (testing::Test::HasFatalFailure())
    return;
  std::map<std::pair<uint32_t, uint64_t>, MergeItem> merges;
  for (const MergeItem &merge : plan.merges) {
    uint64_t token =
        uint64_t(plan.sequences[merge.sequence].queryBase) + plan.rows[merge.row / group].query;
    ASSERT_TRUE(merges.insert({{merge.kvHead, token * group + merge.row % group}, merge}).second);
  }
  for (uint32_t head = 0; head < program.facts.kvHeads; ++head)
    for (const SequenceShape &sequence : tree.batch.sequences)
      for (int64_t r = 0; r < sequence.queryLen * group; ++r) {
        uint64_t packed = uint64_t(sequence.queryBase) * group + uint64_t(r);
        std::vector<Part> &own = parts[{head, packed}];
        ASSERT_FALSE(own.empty());
        std::sort(own.begin(), own.end(),
                  [](const Part &a, const Part &b) { return a.begin < b.begin; });
        uint32_t next = 0;
        for (const Part &part : own) {
          ASSERT_EQ(part.begin, next) << "keys twice, or left out";
          next = part.end;
        }
        int64_t position = r / group + sequence.keyLen - sequence.queryLen;
        ASSERT_GT(next, position);
        auto merge = merges.find({head, packed});
        if (own.size() == 1 && own[0].slot < 0) {
          ASSERT_EQ(merge, merges.end());
          continue;
        }
        ASSERT_NE(merge, merges.end());
        ASSERT_EQ(merge->second.count, own.size());
        for (uint32_t k = 0; k < own.size(); ++k)
          ASSERT_EQ(merge->second.firstPartial + k * merge->second.stride, uint32_t(own[k].slot));
        merges.erase(merge);
      }
  ASSERT_TRUE(merges.empty());
}

/// Plans and checks; returns what became of the shared keys.
CascadeAnswer run(const Program &program, const Tree &tree, PlanOptions options,
                  Plan *out = nullptr) {
  uint64_t tokens = 0, keys = 0;
  for (const SequenceShape &sequence : tree.batch.sequences) {
    tokens += uint64_t(sequence.queryLen);
    keys = std::max<uint64_t>(keys, uint64_t(sequence.keyLen));
  }
  StatusOr<Planner> planner = Planner::create(program, options,
                                              {.rows = tree.batch.sequences.size(),
                                               .queryTokens = tokens,
                                               .splits = mostSplits(program, options, keys)});
  EXPECT_TRUE(planner) << planner.status().toString();
  Plan plan = makeRoom(program, planner->room());
  StatusOr<PlanChange> change = planner->plan(tree.batch, {}, plan);
  EXPECT_TRUE(change) << change.status().toString();
  EXPECT_EQ(planner->room().lacks(PlanCounts::of(plan)), "");
  EXPECT_EQ(planner->counters().cascades[size_t(planner->lastCascade())], 1u);
  checkCascade(program, tree, plan);
  if (out)
    *out = plan;
  return planner->lastCascade();
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
    std::mt19937 random(seed);
    auto pick = [&](uint32_t lo, uint32_t hi) { return uint32_t(lo + random() % (hi - lo + 1)); };
    Program program = cascadeProgram(pick(1, 5), pick(1, 3));
    Tree tree;
    for (uint32_t n = pick(1, 8); n > 0; --n) {
      uint32_t parent = tree.batch.prefixes.empty() || pick(0, 2) == 0
                            ? kNoPrefix
                            : pick(0, uint32_t(tree.batch.prefixes.size()) - 1);
      uint32_t from = parent == kNoPrefix ? 0 : tree.batch.prefixes[parent].keyEnd / 16;
      tree.node(parent, (from + pick(1, 60)) * 16);
    }
    for (uint32_t s = pick(1, 20); s > 0; --s) {
      uint32_t node = pick(0, 4) ? pick(0, uint32_t(tree.batch.prefixes.size()) - 1) : kNoPrefix;
      int64_t queries = pick(0, 3) ? 1 : pick(1, 20);
      int64_t keys =
          pick(0, 100) + queries + (node == kNoPrefix ? 0 : tree.batch.prefixes[node].keyEnd);
      tree.add(node, queries, keys);
    }
    PlanOptions options{.workers = pick(1, 40), .cascadeLevels = pick(1, 4)};
    if (pick(0, 2) == 0) {
      options.batchInvariant = true;
      options.splitKeys = 16 * pick(1, 12);
    }
    used += run(program, tree, options) == CascadeAnswer::Used;
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(used, 100);
}

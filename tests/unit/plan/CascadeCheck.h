// Batches below a tree of shared pages, and the check of their plans: each row has each of its keys
// once, in parts that its merge names in order, and shared items only read keys that are all
// theirs.
#pragma once

#include "Loads.h"

#include "runtime/plan/cascade/Cascade.h"

#include <map>
#include <random>
#include <set>

namespace plantest {

inline BoundSet surelyCausal() {
  return {{{.lo = {constant(0)}, .hi = {{BoundOp::QueryLo}, constant(1), {BoundOp::Add}}}}};
}

inline Program cascadeProgram(uint32_t group = 4, uint32_t kvHeads = 2) {
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

inline void collect(const Program &program, const Tree &tree, const Plan &plan, Parts &parts) {
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

inline void checkCascade(const Program &program, const Tree &tree, const Plan &plan) {
  uint32_t group = program.facts.queryHeads / program.facts.kvHeads;
  checkTuples(program, plan);
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
inline CascadeAnswer planAndCheck(const Program &program, const Tree &tree, PlanOptions options,
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

/// A program, options and a batch below a tree of shared pages, with sharing on.
struct RandomCascade {
  Program program;
  Tree tree;
  PlanOptions options;
};

inline RandomCascade randomCascade(uint32_t seed) {
  std::mt19937 random(seed);
  auto pick = [&](uint32_t lo, uint32_t hi) { return uint32_t(lo + random() % (hi - lo + 1)); };
  uint32_t group = pick(1, 5), heads = pick(1, 3);
  RandomCascade made{cascadeProgram(group, heads), {}, {}};
  Tree &tree = made.tree;
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
    // Now and then its keys end inside of what is shared: later ones are not its own to see.
    int64_t keys =
        pick(0, 100) + queries + (node == kNoPrefix ? 0 : tree.batch.prefixes[node].keyEnd);
    if (pick(0, 5) == 0)
      keys = std::max<int64_t>(queries, keys - 160);
    tree.add(node, queries, keys);
  }
  made.options.workers = pick(1, 40);
  made.options.cascadeLevels = pick(1, 4);
  if (pick(0, 2) == 0) {
    made.options.batchInvariant = true;
    made.options.splitKeys = 16 * pick(1, 12);
  }
  return made;
}

} // namespace plantest

// Programs, masks and the coverage check that the planner's tests share.
#pragma once

#include "runtime/bundle/BoundsEval.h"
#include "runtime/bundle/BundleIO.h"
#include "runtime/plan/Planner.h"

#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <string>

namespace plantest {

using namespace llmopt;
using namespace llmopt::bundle;
using namespace llmopt::runtime;

inline BoundInsn constant(int64_t value) { return {BoundOp::Const, value}; }

inline BoundSet fullMask() { return {{{.lo = {constant(0)}, .hi = {{BoundOp::KeyLen}}}}}; }

inline BoundSet causalMask() {
  return {{{.lo = {constant(0)}, .hi = {{BoundOp::QueryHi}, constant(1), {BoundOp::Add}}}}};
}

inline BoundSet windowMask(int64_t width) {
  return {{{.lo = {{BoundOp::QueryLo}, constant(width - 1), {BoundOp::Sub}},
            .hi = {{BoundOp::QueryHi}, constant(1), {BoundOp::Add}}}}};
}

/// causal and chunked<size>, as the compiler writes it.
inline BoundSet chunkedMask(int64_t size) {
  BoundInsn n = constant(size);
  auto start = [&](BoundOp query) {
    return BoundProgram{{query}, {query}, n, {BoundOp::FloorMod}, {BoundOp::Sub}};
  };
  BoundProgram end = start(BoundOp::QueryHi);
  end.insert(end.end(),
             {n, {BoundOp::Add}, {BoundOp::QueryHi}, constant(1), {BoundOp::Add}, {BoundOp::Min}});
  return {{{.lo = start(BoundOp::QueryLo), .hi = end}}};
}

inline BoundSet sinkOrWindowMask(int64_t sinks, int64_t width) {
  BoundSet set = windowMask(width);
  set.intervals.push_back(
      {.lo = {constant(0)},
       .hi = {constant(sinks), {BoundOp::QueryHi}, constant(1), {BoundOp::Add}, {BoundOp::Min}}});
  return set;
}

/// Every stride-th key back from each query: the rows of a tile see `rows`
/// neighbours.
inline BoundSet dilatedMask(int64_t stride) {
  BoundSet set = causalMask();
  set.intervals[0].stride = {constant(stride)};
  set.intervals[0].phase = {{BoundOp::QueryLo}};
  set.intervals[0].width = {
      {BoundOp::QueryHi}, {BoundOp::QueryLo}, {BoundOp::Sub}, constant(1), {BoundOp::Add}};
  return set;
}

inline Kernel attendKernel(uint32_t tileRows, uint32_t tileKeys, double cost) {
  return {"attend", KernelKind::Attend, 0, tileRows, tileKeys, 0, cost};
}

inline Kernel attendKernel(uint32_t tileRows, uint32_t tileKeys, double cost, uint32_t heads) {
  Kernel kernel = attendKernel(tileRows, tileKeys, cost);
  kernel.itemHeads = heads;
  return kernel;
}

inline Program makeProgram(uint32_t group, uint32_t kvHeads, BoundSet may,
                           std::vector<Kernel> kernels, std::vector<Scalar> scalars = {}) {
  Program program;
  program.scalars = std::move(scalars);
  program.name = "test";
  program.facts.queryHeads = group * kvHeads;
  program.facts.kvHeads = kvHeads;
  program.facts.may = std::move(may);
  program.kernels = std::move(kernels);
  program.kernels.push_back({"merge", KernelKind::Merge, 0, 0, 0, 0, 1});
  program.images.emplace_back();
  EXPECT_TRUE(validate(program).ok()) << validate(program).toString();
  return program;
}

inline BatchShape makeBatch(const std::vector<std::pair<int64_t, int64_t>> &lengths) {
  BatchShape batch;
  int64_t query = 0, key = 0;
  for (auto [queryLen, keyLen] : lengths) {
    batch.sequences.push_back({.queryLen = queryLen,
                               .keyLen = keyLen,
                               .queryBase = query,
                               .keyBase = key,
                               .tableBase = 0,
                               .batch = static_cast<int64_t>(batch.sequences.size())});
    query += queryLen;
    key += keyLen;
  }
  return batch;
}

struct Placed {
  WorkItem item;
  uint32_t tileKeys;
};

/// Each worker's list of a kernel that takes the items of several heads holds whole tuples, and the
/// items of a tuple differ in head and partial alone.
inline void checkTuples(const Program &program, const Plan &plan) {
  for (const AttendPlan &attend : plan.attends) {
    uint32_t heads = program.kernels[attend.kernel].itemHeads;
    for (uint32_t offset : attend.itemOffsets)
      ASSERT_EQ(offset % heads, 0u) << "a worker has a part of a tuple";
    for (size_t i = 0; i < attend.items.size(); ++i) {
      const WorkItem &first = attend.items[i / heads * heads], &item = attend.items[i];
      ASSERT_EQ(first.kvHead % heads, 0u);
      ASSERT_EQ(item.partialSlot < 0, first.partialSlot < 0);
      WorkItem like = first;
      like.kvHead += uint32_t(i % heads);
      like.partialSlot = item.partialSlot;
      ASSERT_EQ(std::memcmp(&like, &item, sizeof(item)), 0)
          << "item " << i << " of a tuple differs";
    }
  }
}

/// All items, by (KV head, first row), in order of keys.
using Tiles = std::map<std::pair<uint32_t, uint32_t>, std::vector<Placed>>;

inline void checkOffsets(const PlanArray<uint32_t> &offsets, uint32_t workers, size_t count) {
  ASSERT_EQ(offsets.size(), workers + 1u);
  EXPECT_EQ(offsets[0], 0u);
  EXPECT_TRUE(std::is_sorted(offsets.begin(), offsets.end()));
  EXPECT_EQ(offsets.back(), count);
}

inline Tiles collectTiles(const Program &program, const Plan &plan) {
  Tiles tiles;
  for (const AttendPlan &attend : plan.attends) {
    checkOffsets(attend.itemOffsets, plan.workers, attend.items.size());
    const Kernel &kernel = program.kernels[attend.kernel];
    for (const WorkItem &item : attend.items) {
      EXPECT_GT(item.rowCount, 0u);
      EXPECT_LE(item.rowCount, kernel.tileRows);
      tiles[{item.kvHead, item.firstRow}].push_back({item, kernel.tileKeys});
    }
  }
  for (auto &[where, placed] : tiles)
    std::sort(placed.begin(), placed.end(),
              [](const Placed &a, const Placed &b) { return a.item.keyBegin < b.item.keyBegin; });
  return tiles;
}

/// Keys that one row alone may see.
inline KeySet keysOfRow(const Program &program, const SequenceShape &sequence,
                        const ScalarValues &scalars, int64_t query) {
  int64_t position = program.facts.topLeft ? query : query + sequence.keyLen - sequence.queryLen;
  return evaluate(program.facts.may, {.queryLo = position,
                                      .queryHi = position,
                                      .queryLen = sequence.queryLen,
                                      .keyLen = sequence.keyLen,
                                      .scalars = scalars.values,
                                      .perHeadMin = scalars.perHeadMin,
                                      .perHeadMax = scalars.perHeadMax});
}

/// Splits of one tile: aligned, ascending, disjoint, and no row sees a key
/// between.
inline void checkKeysOfTile(const Program &program, const SequenceShape &sequence,
                            const ScalarValues &scalars, const std::vector<Placed> &splits,
                            int64_t firstRow, uint32_t group) {
  int64_t covered = 0, tileKeys = splits[0].tileKeys;
  std::vector<std::pair<int64_t, int64_t>> gaps;
  for (const Placed &split : splits) {
    const WorkItem &item = split.item;
    ASSERT_EQ(split.tileKeys, tileKeys);
    ASSERT_EQ(item.rowCount, splits[0].item.rowCount);
    ASSERT_LE(item.keyBegin, item.keyEnd);
    // Whole tiles: the kernel leaves out what lies beyond the length that it reads.
    ASSERT_LT(item.keyEnd, sequence.keyLen + tileKeys);
    ASSERT_GE(item.keyBegin, covered) << "keys twice";
    ASSERT_EQ(item.keyBegin % tileKeys, 0);
    ASSERT_EQ(item.keyEnd % tileKeys, 0);
    if (splits.size() > 1) {
      ASSERT_LT(item.keyBegin, item.keyEnd) << "an empty split";
    }
    gaps.push_back({covered, item.keyBegin});
    covered = item.keyEnd;
  }
  gaps.push_back({covered, sequence.keyLen});
  int64_t lastQuery = -1;
  for (uint32_t r = 0; r < splits[0].item.rowCount; ++r) {
    int64_t query = (splits[0].item.firstRow + r - firstRow) / group;
    if (query == std::exchange(lastQuery, query))
      continue;
    KeySet keys = keysOfRow(program, sequence, scalars, query);
    for (auto [begin, end] : gaps)
      ASSERT_FALSE(keys.intersects(begin, end)) << "query " << query << " misses a key";
  }
}

inline void checkRowLists(const Program &program, const BatchShape &batch, const Plan &plan) {
  ASSERT_EQ(plan.sequences.size(), batch.sequences.size());
  size_t row = 0;
  for (size_t s = 0; s < batch.sequences.size(); ++s) {
    const SequenceShape &sequence = batch.sequences[s];
    ASSERT_EQ(plan.sequences[s].queryLen, sequence.queryLen);
    ASSERT_EQ(plan.sequences[s].keyLen, sequence.keyLen);
    ASSERT_EQ(plan.sequences[s].queryBase, sequence.queryBase);
    for (int64_t q = 0; q < sequence.queryLen; ++q, ++row) {
      ASSERT_EQ(plan.rows[row].query, q);
      ASSERT_EQ(plan.rows[row].position,
                program.facts.topLeft ? q : q + sequence.keyLen - sequence.queryLen);
    }
  }
  ASSERT_EQ(row, plan.rows.size());
}

/// Every promise of Planner.h for one plan.
inline void checkPlan(const Program &program, const BatchShape &batch, const ScalarValues &scalars,
                      const PlanOptions &options, const Plan &plan) {
  ASSERT_EQ(plan.workers, std::max(options.workers, 1u));
  checkRowLists(program, batch, plan);
  checkTuples(program, plan);
  checkOffsets(plan.mergeOffsets, plan.workers, plan.merges.size());
  std::map<std::pair<uint32_t, uint32_t>, MergeItem> merges;
  for (const MergeItem &merge : plan.merges)
    ASSERT_TRUE(merges.insert({{merge.kvHead, merge.row}, merge}).second) << "merged twice";
  Tiles tiles = collectTiles(program, plan);
  std::vector<bool> slotUsed(plan.partialRows);
  uint32_t group = program.facts.queryHeads / program.facts.kvHeads;
  for (uint32_t head = 0; head < program.facts.kvHeads; ++head) {
    uint32_t row = 0;
    for (uint32_t s = 0; s < batch.sequences.size(); ++s) {
      const SequenceShape &sequence = batch.sequences[s];
      uint32_t first = row, end = row + sequence.queryLen * group;
      while (row < end) {
        auto found = tiles.find({head, row});
        ASSERT_NE(found, tiles.end()) << "row " << row << " of head " << head;
        const std::vector<Placed> &splits = found->second;
        uint32_t rows = splits[0].item.rowCount;
        ASSERT_LE(row + rows, end) << "an item leaves its sequence";
        ASSERT_EQ(splits[0].item.sequence, s);
        checkKeysOfTile(program, sequence, scalars, splits, first, group);
        for (size_t k = 0; k < splits.size(); ++k) {
          int32_t slot = splits[k].item.partialSlot;
          if (splits.size() == 1) {
            ASSERT_EQ(slot, -1);
            break;
          }
          for (uint32_t r = 0; r < rows; ++r) {
            auto merge = merges.find({head, row + r});
            ASSERT_NE(merge, merges.end());
            ASSERT_EQ(merge->second.sequence, s);
            ASSERT_EQ(merge->second.count, splits.size());
            ASSERT_EQ(merge->second.firstPartial + k * merge->second.stride, slot + r);
            ASSERT_LT(slot + r, plan.partialRows);
            ASSERT_FALSE(slotUsed[slot + r]) << "a partial written twice";
            slotUsed[slot + r] = true;
          }
        }
        if (splits.size() > 1)
          for (uint32_t r = 0; r < rows; ++r)
            merges.erase({head, row + r});
        tiles.erase(found);
        row += rows;
      }
    }
  }
  EXPECT_TRUE(tiles.empty()) << "items of no row";
  EXPECT_TRUE(merges.empty()) << "merges of no split";
  EXPECT_TRUE(std::find(slotUsed.begin(), slotUsed.end(), false) == slotUsed.end());
}

} // namespace plantest

// The tree of shared pages, against the tables themselves.
#include "runtime/plan/cascade/SharedPrefixes.h"

#include <gtest/gtest.h>
#include <random>

using namespace llmopt::runtime;

namespace {

constexpr uint32_t kPage = 16;

struct Tables {
  Tables(uint32_t slots, uint32_t columns)
      : columns(columns), entries(size_t{slots} * columns, -1), prefixes(slots, columns, kPage) {}

  void set(uint32_t slot, uint32_t index, const std::vector<int32_t> &pages) {
    std::copy(pages.begin(), pages.end(), entries.begin() + slot * columns + index);
    prefixes.change(slot, index, uint32_t(pages.size()), entries);
  }
  uint32_t sharedKeys(uint32_t slot) const {
    uint32_t node = prefixes.nodeOf(slot);
    return node == kNoPrefix ? 0 : prefixes.prefixes()[node].keyEnd;
  }

  uint32_t columns;
  std::vector<int32_t> entries;
  SharedPrefixes prefixes;
};

} // namespace

TEST(SharedPrefixes, SequencesMeetAtTheirLastCommonPage) {
  Tables tables(4, 8);
  tables.set(0, 0, {1, 2, 3});
  EXPECT_EQ(tables.sharedKeys(0), 0u) << "alone";
  tables.set(1, 0, {1, 2, 4});
  EXPECT_EQ(tables.sharedKeys(0), 2 * kPage);
  EXPECT_EQ(tables.prefixes.nodeOf(0), tables.prefixes.nodeOf(1));
  tables.set(2, 0, {1, 5});
  EXPECT_EQ(tables.sharedKeys(2), 1 * kPage);
  EXPECT_EQ(tables.sharedKeys(0), 2 * kPage);
  uint32_t deep = tables.prefixes.nodeOf(0);
  EXPECT_EQ(tables.prefixes.prefixes()[deep].parent, tables.prefixes.nodeOf(2));
  tables.set(3, 0, {9});
  EXPECT_EQ(tables.sharedKeys(3), 0u);
  tables.set(1, 0, {7}); // another sequence has the slot
  EXPECT_EQ(tables.sharedKeys(1), 0u);
  EXPECT_EQ(tables.sharedKeys(0), 1 * kPage) << "what is left to share";
  EXPECT_TRUE(tables.prefixes.agrees(tables.entries));
}

TEST(SharedPrefixes, ForksPartWhereTheyAreWritten) {
  Tables tables(3, 8);
  tables.set(0, 0, {1, 2});
  tables.set(1, 0, {1, 2});
  tables.set(2, 0, {1, 2});
  EXPECT_EQ(tables.sharedKeys(0), 2 * kPage);
  tables.set(1, 1, {5}); // a copy of the last page before it is written
  EXPECT_EQ(tables.sharedKeys(1), 1 * kPage);
  EXPECT_EQ(tables.sharedKeys(2), 2 * kPage);
  tables.set(2, 2, {6});
  tables.set(0, 2, {6});
  EXPECT_EQ(tables.sharedKeys(0), 3 * kPage);
  tables.set(0, 1, {-1}); // a window has let it go
  EXPECT_EQ(tables.sharedKeys(0), 1 * kPage);
  EXPECT_TRUE(tables.prefixes.agrees(tables.entries));
}

TEST(SharedPrefixes, AGrowingSequenceIsComparedWithNobody) {
  Tables tables(64, 2000);
  std::vector<int32_t> prompt(1000);
  for (int32_t i = 0; i < 1000; ++i)
    prompt[size_t(i)] = i;
  for (uint32_t slot = 0; slot < 64; ++slot)
    tables.set(slot, 0, prompt);
  int32_t next = 5000;
  for (uint32_t slot = 0; slot < 64; ++slot)
    tables.set(slot, 1000, {next++});
  uint64_t before = tables.prefixes.compared();
  for (uint32_t step = 1; step < 200; ++step)
    for (uint32_t slot = 0; slot < 64; ++slot)
      tables.set(slot, 1000 + step, {next++});
  EXPECT_EQ(tables.prefixes.compared(), before);
  EXPECT_LE(before, 64u * 1000 + 64 * 64 * 2) << "each new entry once, and its siblings";
  EXPECT_TRUE(tables.prefixes.agrees(tables.entries));
}

TEST(SharedPrefixes, AgreesWithTheTablesAfterRandomChanges) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    auto pick = [&](uint32_t most) { return random() % (most + 1); };
    Tables tables(12, 10);
    for (int step = 0; step < 400; ++step) {
      uint32_t slot = pick(11), index = pick(9);
      std::vector<int32_t> pages(pick(9 - index) + (index < 9));
      for (int32_t &page : pages)
        page = pick(9) == 0 ? -1 : int32_t(pick(2));
      tables.set(slot, index, pages);
      ASSERT_TRUE(tables.prefixes.agrees(tables.entries)) << "seed " << seed << " step " << step;
    }
  }
}

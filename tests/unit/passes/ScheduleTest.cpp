// The choice of tile sizes, by numbers.
#include "passes/attn/Schedule.h"

#include <gtest/gtest.h>

using namespace llmopt;

namespace {

runtime::CpuTarget target(unsigned vectorBits, uint64_t l2Bytes) {
  runtime::CpuTarget cpu;
  cpu.vectorBits = vectorBits;
  cpu.l2Bytes = l2Bytes;
  return cpu;
}

TEST(Schedule, PacksOneGroupForDecodeAndFillsL2ForPrefill) {
  Schedule schedule = chooseCpuSchedule({.group = 4, .dQk = 128, .dV = 128}, target(512, 1 << 20));
  EXPECT_EQ(schedule.rows, (std::vector<int64_t>{4, 192}));
  EXPECT_EQ(schedule.keys, 64);
}

TEST(Schedule, WideHeadsShrinkTheManyRowTile) {
  Schedule schedule = chooseCpuSchedule({.group = 1, .dQk = 576, .dV = 512}, target(512, 1 << 20));
  ASSERT_EQ(schedule.rows.size(), 2u);
  EXPECT_EQ(schedule.rows[1] % 64, 0);
  EXPECT_LE(schedule.rows[1] * 4 * (576 + 512 + 64), 1 << 19);
}

TEST(Schedule, ManyRowsAreWholeRegisterBlocksOnEveryVectorWidth) {
  for (unsigned bits : {128u, 256u, 512u})
    for (int64_t d : {1, 3, 64, 80, 128, 256, 576}) {
      Schedule schedule =
          chooseCpuSchedule({.group = 7, .dQk = d, .dV = d}, target(bits, 512 << 10));
      EXPECT_EQ(schedule.rows.back() % (4 * bits / 32), 0) << bits << " bits, d " << d;
      EXPECT_EQ(schedule.rows.front(), 7);
    }
}

TEST(Schedule, GroupsBeyondTheLimitAreCutIntoSeveralTiles) {
  Schedule schedule = chooseCpuSchedule({.group = 71, .dQk = 64, .dV = 64}, target(512, 1 << 20));
  EXPECT_EQ(schedule.rows.front(), 16);
}

TEST(Schedule, BatchInvariantRowsFillWholeVectors) {
  Schedule schedule = chooseCpuSchedule({.group = 3, .dQk = 64, .dV = 64, .batchInvariant = true},
                                        target(512, 1 << 20));
  for (int64_t rows : schedule.rows)
    EXPECT_EQ(rows % 16, 0);
}

TEST(Schedule, WishesOfTheSpecHold) {
  Schedule schedule = chooseCpuSchedule({.group = 4, .dQk = 64, .dV = 64, .rows = 32, .keys = 128},
                                        target(256, 1 << 20));
  EXPECT_EQ(schedule.rows, (std::vector<int64_t>{32}));
  EXPECT_EQ(schedule.keys, 128);
}

} // namespace

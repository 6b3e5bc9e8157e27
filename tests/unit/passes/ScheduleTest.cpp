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

/// What `attention-bench --tiles` measured with K and V in memory (AVX-512, us a tile), by
/// rows: the costs are right to a third.
TEST(Schedule, TileCostsFollowTheMeasuredOnes) {
  struct Measured {
    int64_t bytes, d;
    double one, four, many; ///< 1, 4 and 192 rows
  };
  for (auto [bytes, d, one, four, many] : {Measured{2, 128, 1.42, 1.85, 16.24},
                                           {4, 128, 4.06, 4.45, 28.32},
                                           {4, 64, 2.21, 2.36, 14.87}}) {
    Schedule schedule = chooseCpuSchedule({.group = 4, .dQk = d, .dV = d, .elementBytes = bytes},
                                          target(512, 1 << 20));
    auto share = [&](int64_t rows) {
      return tileCost(schedule, rows, d, d) / tileCost(schedule, 192, d, d);
    };
    EXPECT_NEAR(share(1) * many / one, 1, 0.34) << bytes << " bytes, d " << d;
    EXPECT_NEAR(share(4) * many / four, 1, 0.34) << bytes << " bytes, d " << d;
  }
}

TEST(Schedule, NarrowVectorsPayLessForReadingKeys) {
  ScheduleRequest request = {.group = 4, .dQk = 64, .dV = 64};
  EXPECT_LT(chooseCpuSchedule(request, target(256, 1 << 20)).overheadRows,
            chooseCpuSchedule(request, target(512, 1 << 20)).overheadRows);
}

// More rows where a core's second cache is large, and never a power of two.
TEST(Schedule, TakesMoreRowsWithALargeL2) {
  auto rows = [](int64_t d, int64_t l2) {
    ScheduleRequest request{.group = 1, .dQk = d, .dV = d, .elementBytes = 4};
    return chooseCpuSchedule(request, target(512, l2)).rows.back();
  };
  EXPECT_EQ(rows(64, 1 << 20), 192);
  EXPECT_EQ(rows(64, 2 << 20), 320);
  EXPECT_EQ(rows(128, 2 << 20), 320);
  EXPECT_EQ(rows(1024, 2 << 20), 64) << "1 MiB holds 124";
}

// All heads or one: up to 64 rows and 64 KiB of 16 tokens, if products read in place.
TEST(Schedule, WalksAllHeadsTogetherOrOne) {
  auto heads = [](ScheduleRequest request) {
    return chooseCpuSchedule(request, target(512, 1 << 20)).heads.front();
  };
  ScheduleRequest request{
      .group = 4, .dQk = 128, .dV = 128, .elementBytes = 2, .heads = 8, .runBytes = 32 << 10};
  EXPECT_EQ(heads(request), 8);
  request.group = 8;
  EXPECT_EQ(heads(request), 8);
  request.heads = 10;
  EXPECT_EQ(heads(request), 1) << "80 rows";
  request.heads = 7;
  EXPECT_EQ(heads(request), 7);
  request.group = 16, request.heads = 2;
  EXPECT_EQ(heads(request), 1) << "no products in place";
  request.group = 1, request.heads = 16;
  EXPECT_EQ(heads(request), 16);
  request.heads = 32;
  EXPECT_EQ(heads(request), 1) << "128 KiB";
  request.heads = 8, request.batchInvariant = true;
  EXPECT_EQ(heads(request), 1);
}

// Short runs of memory only where products ask for several at once: by FMA.
TEST(Schedule, WalksHeadsTogetherFromARunOn) {
  runtime::CpuTarget plain = target(512, 1 << 20), slowDot = plain;
  slowDot.slowBf16Dot = true;
  ScheduleRequest request{.group = 4, .dQk = 128, .dV = 128, .elementBytes = 2, .heads = 4};
  auto heads = [&](const runtime::CpuTarget &cpu, int64_t bytes) {
    request.runBytes = bytes;
    return chooseCpuSchedule(request, cpu).heads.front();
  };
  EXPECT_EQ(heads(plain, 4096), 4);
  EXPECT_EQ(heads(plain, 4095), 1);
  EXPECT_EQ(heads(slowDot, 1024), 4);
  EXPECT_EQ(heads(slowDot, 1023), 1);
  request.group = 3;
  EXPECT_EQ(heads(slowDot, 4095), 1) << "products by the dot product";
}

} // namespace

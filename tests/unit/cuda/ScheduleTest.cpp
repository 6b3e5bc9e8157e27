// Tile sizes for CUDA chips, by numbers.
#include "passes/attn/Schedule.h"

#include <gtest/gtest.h>

using namespace llmopt;

namespace {

runtime::CudaTarget chip(const char *arch) { return *runtime::cudaTargetOf(arch); }

TEST(CudaSchedule, decode_shares_out_keys_and_prefill_rows) {
  Schedule schedule =
      chooseCudaSchedule({.group = 4, .dQk = 128, .dV = 128, .elementBytes = 2}, chip("sm_80"));
  EXPECT_EQ(schedule.rows, (std::vector<int64_t>{16, 64}));
  EXPECT_EQ(schedule.slices, (std::vector<int64_t>{4, 1}));
  EXPECT_EQ(schedule.keys, 64);
  EXPECT_EQ(schedule.stages, 2);
}

TEST(CudaSchedule, groups_of_many_heads_fill_the_large_tile) {
  EXPECT_EQ(
      chooseCudaSchedule({.group = 71, .dQk = 64, .dV = 64, .elementBytes = 2}, chip("sm_80")).rows,
      (std::vector<int64_t>{64}));
  EXPECT_EQ(
      chooseCudaSchedule({.group = 20, .dQk = 64, .dV = 64, .elementBytes = 2}, chip("sm_80")).rows,
      (std::vector<int64_t>{32, 64}));
}

TEST(CudaSchedule, small_shared_memory_means_fewer_keys_or_stages) {
  ScheduleRequest wide{.group = 2, .dQk = 384, .dV = 192, .elementBytes = 2};
  Schedule large = chooseCudaSchedule(wide, chip("sm_90"));
  Schedule small = chooseCudaSchedule(wide, chip("sm_86"));
  EXPECT_LT(small.keys * small.stages, large.keys * large.stages);
  for (size_t i = 0; i < small.rows.size(); ++i)
    if (small.slices[i] > 1)
      EXPECT_EQ(small.keys / small.slices[i] % 16, 0) << "a slice has whole steps";
}

TEST(CudaSchedule, shared_memory_decides_how_many_keys_and_blocks_there_are) {
  ScheduleRequest request{.group = 4, .dQk = 128, .dV = 128, .elementBytes = 2};
  runtime::CudaTarget changed = chip("sm_80");
  Schedule schedule = chooseCudaSchedule(request, changed);
  EXPECT_EQ(schedule.keys, 64);
  EXPECT_EQ(schedule.blocks, (std::vector<int64_t>{2, 2}));
  changed.sharedBytesPerSm = 150 << 10;
  schedule = chooseCudaSchedule(request, changed);
  EXPECT_EQ(schedule.keys, 64);
  EXPECT_EQ(schedule.blocks, (std::vector<int64_t>{2, 1})) << "64 rows of queries lie beside keys";
  EXPECT_EQ(schedule.workers, 108);
  EXPECT_NE(schedule.reason.find("limited by shared memory"), std::string::npos) << schedule.reason;
  changed.sharedBytesPerBlock = 60 << 10;
  schedule = chooseCudaSchedule(request, changed);
  EXPECT_EQ(schedule.keys, 32);
  EXPECT_EQ(schedule.stages, 2);
  EXPECT_EQ(schedule.slices, (std::vector<int64_t>{2, 1})) << "a slice has whole steps of 16 keys";
}

TEST(CudaSchedule, registers_of_a_multiprocessor_decide_how_many_blocks_it_holds) {
  ScheduleRequest request{.group = 4, .dQk = 128, .dV = 128, .elementBytes = 2};
  runtime::CudaTarget changed = chip("sm_80");
  Schedule schedule = chooseCudaSchedule(request, changed);
  EXPECT_EQ(schedule.blocks, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(schedule.workers, 2 * 108);
  changed.registersPerSm = 48 << 10;
  schedule = chooseCudaSchedule(request, changed);
  EXPECT_EQ(schedule.blocks, (std::vector<int64_t>{2, 1})) << "decode takes fewer registers";
  EXPECT_EQ(schedule.workers, 108);
  EXPECT_NE(schedule.reason.find("1 block on each of 108 multiprocessors, limited by registers"),
            std::string::npos)
      << schedule.reason;
}

TEST(CudaSchedule, as_many_stages_as_keep_memory_busy) {
  ScheduleRequest request{.group = 4, .dQk = 64, .dV = 64, .elementBytes = 2};
  EXPECT_EQ(chooseCudaSchedule(request, chip("sm_80")).stages, 2);
  runtime::CudaTarget changed = chip("sm_80");
  // Two blocks with a tile of 16 KiB on its way each: less than 40 KB a microsecond.
  changed.bandwidth = 40e9 * changed.sms;
  EXPECT_EQ(chooseCudaSchedule(request, changed).stages, 3);
  changed.sms *= 2; // the same memory for twice as many multiprocessors
  Schedule schedule = chooseCudaSchedule(request, changed);
  EXPECT_EQ(schedule.stages, 2);
  EXPECT_EQ(schedule.workers, 4 * 108);
  // More than four are no use, and none may cost a block.
  changed.bandwidth = 1000e9 * changed.sms;
  EXPECT_EQ(chooseCudaSchedule(request, changed).stages, 4);
  changed.sharedBytesPerSm = 90 << 10;
  schedule = chooseCudaSchedule(request, changed);
  EXPECT_EQ(schedule.stages, 2);
  EXPECT_EQ(schedule.blocks.front(), 2);
}

TEST(CudaSchedule, chips_of_the_table) {
  struct Row {
    const char *arch;
    int64_t d, keys, stages, workers;
  };
  for (Row row : {Row{"sm_80", 128, 64, 2, 216},
                  {"sm_86", 128, 64, 2, 72},
                  {"sm_89", 128, 64, 2, 58},
                  {"sm_90", 128, 64, 2, 264},
                  {"sm_100", 128, 64, 2, 296},
                  {"sm_120", 128, 64, 2, 170},
                  {"sm_100", 64, 64, 3, 296},
                  {"sm_120", 64, 64, 2, 340},
                  {"sm_89", 256, 32, 2, 58}}) {
    SCOPED_TRACE(testing::Message() << row.arch << " d " << row.d);
    Schedule schedule = chooseCudaSchedule(
        {.group = 4, .dQk = row.d, .dV = row.d, .elementBytes = 2}, chip(row.arch));
    EXPECT_EQ(schedule.keys, row.keys);
    EXPECT_EQ(schedule.stages, row.stages);
    EXPECT_EQ(schedule.workers, row.workers);
  }
}

TEST(CudaSchedule, batch_invariant_programs_have_one_kernel_without_slices) {
  Schedule schedule = chooseCudaSchedule(
      {.group = 4, .dQk = 64, .dV = 64, .elementBytes = 2, .batchInvariant = true}, chip("sm_80"));
  EXPECT_EQ(schedule.rows, (std::vector<int64_t>{64}));
  EXPECT_EQ(schedule.slices, (std::vector<int64_t>{1}));
}

TEST(CudaSchedule, results_are_written_by_a_row_a_warp_or_more_where_rows_are_short) {
  auto endRows = [](int64_t dV, int64_t bytes) {
    return chooseCudaSchedule({.group = 4, .dQk = dV, .dV = dV, .elementBytes = bytes},
                              chip("sm_80"))
        .endRows;
  };
  EXPECT_EQ(endRows(256, 2), 4);
  EXPECT_EQ(endRows(128, 2), 4);
  EXPECT_EQ(endRows(80, 2), 4);
  EXPECT_EQ(endRows(64, 2), 8) << "16 lanes have a row";
  EXPECT_EQ(endRows(512, 2), 0) << "not all rows fit";
  EXPECT_EQ(endRows(128, 4), 0) << "the plain units' rows stay in registers";
}

TEST(CudaSchedule, wishes_of_the_spec_hold) {
  Schedule schedule = chooseCudaSchedule(
      {.group = 4, .dQk = 64, .dV = 64, .elementBytes = 2, .rows = 32, .keys = 32}, chip("sm_80"));
  EXPECT_EQ(schedule.rows, (std::vector<int64_t>{32}));
  EXPECT_EQ(schedule.keys, 32);
}

TEST(CudaTarget, unknown_chips_take_the_numbers_of_an_older_one_of_their_generation) {
  EXPECT_EQ(runtime::cudaTargetOf("sm_87")->arch, 86u);
  EXPECT_EQ(runtime::cudaTargetOf("sm_90a")->arch, 90u);
  EXPECT_EQ(runtime::cudaTargetOf("sm_121")->arch, 120u);
  // Generations that came after the table.
  EXPECT_EQ(runtime::cudaTargetOf("sm_110")->arch, 100u);
  EXPECT_EQ(runtime::cudaTargetOf("sm_130")->arch, 120u);
  EXPECT_EQ(runtime::cudaTargetOf("sm_990")->arch, 120u);
  EXPECT_FALSE(runtime::cudaTargetOf("sm_75"));
  EXPECT_FALSE(runtime::cudaTargetOf("hopper"));
}

TEST(CudaTarget, resident_blocks_follow_from_what_a_block_takes) {
  auto resident = [](const char *arch, runtime::BlockNeeds block) {
    return runtime::residentBlocks(chip(arch), block);
  };
  // 168 registers of 32 threads are 5376; a quarter of a multiprocessor has 16384.
  runtime::Residency wide = resident("sm_80", {128, 168, 40 << 10});
  EXPECT_EQ(wide.blocks, 3u);
  EXPECT_STREQ(wide.limit, "registers");
  // (81 + 1) KiB twice are 164 KiB, all that there is; a byte more is too much.
  EXPECT_EQ(resident("sm_80", {128, 64, 81 << 10}).blocks, 2u);
  EXPECT_EQ(resident("sm_80", {128, 64, (81 << 10) + 1}).blocks, 1u);
  EXPECT_STREQ(resident("sm_80", {128, 64, 81 << 10}).limit, "shared memory");
  EXPECT_EQ(resident("sm_86", {1024, 32, 0}).blocks, 1u);
  EXPECT_STREQ(resident("sm_86", {1024, 32, 0}).limit, "threads");
  EXPECT_EQ(resident("sm_89", {32, 16, 0}).blocks, 24u);
  EXPECT_STREQ(resident("sm_89", {32, 16, 0}).limit, "blocks");
}

TEST(CudaTarget, register_budgets_keep_the_wanted_blocks_resident) {
  EXPECT_EQ(runtime::registerBudget(chip("sm_80"), 128, 1), 255u);
  EXPECT_EQ(runtime::registerBudget(chip("sm_80"), 128, 2), 255u);
  EXPECT_EQ(runtime::registerBudget(chip("sm_80"), 128, 3), 168u);
  for (uint32_t blocks : {1u, 2u, 3u, 4u, 8u}) {
    uint32_t registers = runtime::registerBudget(chip("sm_90"), 128, blocks);
    EXPECT_GE(runtime::residentBlocks(chip("sm_90"), {128, registers, 0}).blocks, blocks);
  }
}

} // namespace

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

TEST(CudaSchedule, batch_invariant_programs_have_one_kernel_without_slices) {
  Schedule schedule = chooseCudaSchedule(
      {.group = 4, .dQk = 64, .dV = 64, .elementBytes = 2, .batchInvariant = true}, chip("sm_80"));
  EXPECT_EQ(schedule.rows, (std::vector<int64_t>{64}));
  EXPECT_EQ(schedule.slices, (std::vector<int64_t>{1}));
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
  EXPECT_FALSE(runtime::cudaTargetOf("sm_75"));
  EXPECT_FALSE(runtime::cudaTargetOf("hopper"));
}

} // namespace

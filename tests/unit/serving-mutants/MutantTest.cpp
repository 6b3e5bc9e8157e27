// Each mistake of runtime/scheduler/Mutants.h, switched on, is noticed by random loads.
#include "runtime/scheduler/Mutants.h"
#include "tests/unit/serving/RandomLoad.h"
#include "tests/unit/serving/ReusedSlot.h"

#include <gtest/gtest-spi.h>

using namespace llmopt::test;

namespace {

Load loadOf(uint64_t seed) {
  Load load;
  load.steps = seed % 3 == 0 ? 1 : seed % 3 * 2;
  load.drafts = seed % 2 ? 3 : 0;
  load.policy = PolicyKind(seed / 2 % 4);
  load.swap = seed / 3 % 2;
  load.aborts = seed / 5 % 2;
  load.cache = seed % 7 > 1;
  load.windows = seed % 5 == 0;
  load.samples = seed / 7 % 2;
  load.events = seed % 4 > 0;
  load.seed = seed;
  return load;
}

/// What a load finds wrong, "" if nothing. Load 0 is a story that hardly a random one tells.
std::string findings(uint64_t seed) {
  testing::TestPartResultArray results;
  {
    using Reporter = testing::ScopedFakeTestPartResultReporter;
    Reporter reporter(Reporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
    if (seed)
      RandomLoad(loadOf(seed)).play([&] { return results.size() > 0; });
    else
      tellOfAReusedSlot();
  }
  return results.size() ? results.GetTestPartResult(0).message() : "";
}

/// Nearly all mistakes show within ten.
constexpr uint64_t kSeeds = 1000;

class SchedulerMutants : public testing::TestWithParam<int> {};

} // namespace

TEST_P(SchedulerMutants, IsNoticed) {
  activeSchedulerMutant = SchedulerMutant(GetParam());
  std::string found;
  uint64_t seed = 0;
  for (; seed <= kSeeds && found.empty(); ++seed)
    found = findings(seed);
  activeSchedulerMutant = SchedulerMutant::None;
  EXPECT_FALSE(found.empty()) << "mutant " << GetParam() << " passes all checks";
  RecordProperty("seed", int(seed - 1));
  RecordProperty("finding", found);
}

INSTANTIATE_TEST_SUITE_P(All, SchedulerMutants, testing::Range(1, int(SchedulerMutant::Count)));

TEST(SchedulerMutant, EndedRowsCountIsNoticedByTheStoryOfAReusedSlot) {
  activeSchedulerMutant = SchedulerMutant::EndedRowsCount;
  std::string found = findings(0);
  activeSchedulerMutant = SchedulerMutant::None;
  EXPECT_NE(found, "");
}

TEST(SchedulerMutant, TheSchedulerItselfPassesTheSameLoads) {
  for (uint64_t seed = 0; seed <= kSeeds; ++seed)
    ASSERT_EQ(findings(seed), "") << "seed " << seed;
}

// A million random calls, each followed by the checks of the device and the model.
#include "Driver.h"

#include <gtest/gtest.h>

using namespace kvtest;

namespace {

struct Totals {
  uint64_t calls = 0, lacks = 0, partial = 0, host = 0, late = 0, evicted = 0, copies = 0;
};

void run(uint64_t seed, uint32_t calls, uint32_t checkEvery, Totals &totals) {
  Random random(seed);
  ManagerOptions options = randomOptions(random);
  Driver driver(options, random);
  ASSERT_TRUE(driver.manager) << "seed " << seed << ": " << driver.error;
  driver.checkEvery = checkEvery;
  for (uint32_t i = 0; i < calls; ++i)
    ASSERT_TRUE(driver.step()) << "seed " << seed << ": " << driver.error;
  ASSERT_TRUE(driver.finishAll()) << "seed " << seed << ": " << driver.error;
  Counters count = driver.manager->counters();
  totals.calls += calls;
  totals.lacks += driver.lacks;
  totals.partial += driver.partialHits;
  totals.host += driver.hostHits;
  totals.late += driver.lateRows;
  totals.evicted += count.evictedAfterHit;
  totals.copies += count.copies;
}

} // namespace

TEST(KvRandom, AMillionCallsBreakNoInvariant) {
  Totals totals;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    run(seed, 1000, 1, totals);
    ASSERT_FALSE(HasFatalFailure());
  }
  EXPECT_EQ(totals.calls, 1000000u);
  // The calls must reach what they are meant to test.
  EXPECT_GT(totals.lacks, 10000u);
  EXPECT_GT(totals.partial, 1000u);
  EXPECT_GT(totals.host, 100u);
  EXPECT_GT(totals.late, 1000u);
  EXPECT_GT(totals.evicted, 1000u);
  EXPECT_GT(totals.copies, 1000u);
}

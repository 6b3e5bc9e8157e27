#include "tests/unit/serving/RandomLoad.h"

using namespace llmopt::test;

namespace {

void play(const Load &load) {
  SCOPED_TRACE(fmt::format("D {} drafts {} policy {} swap {} aborts {} cache {} windows {} samples "
                           "{} events {} second level {} seed {}",
                           load.steps, load.drafts, toString(load.policy), load.swap, load.aborts,
                           load.cache, load.windows, load.samples, load.events, load.secondLevel,
                           load.seed));
  RandomLoad(load).play([] { return testing::Test::HasFailure(); });
}

} // namespace

TEST(Property, RandomLoadsKeepEveryPromise) {
  uint64_t seed = 0;
  for (uint32_t steps : {1u, 2u, 4u})
    for (uint32_t drafts : {0u, 3u})
      for (PolicyKind policy : {PolicyKind::Fcfs, PolicyKind::Priority, PolicyKind::LongestPrefix,
                                PolicyKind::ShortestRemaining})
        for (int variant = 0; variant < 8; ++variant) {
          Load load;
          load.steps = steps;
          load.drafts = drafts;
          load.policy = policy;
          load.swap = variant & 1;
          load.aborts = variant & 2;
          load.cache = !(variant & 4);
          load.windows = seed % 3 == 0;
          load.tree = seed % 5 == 0;
          load.samples = seed % 2 == 0;
          load.events = seed % 4 == 1;
          load.secondLevel = load.cache && seed % 3 == 1;
          load.seed = ++seed;
          play(load);
          if (testing::Test::HasFailure())
            return;
        }
}

// Each mistake of runtime/plan/Mutants.h, switched on, is noticed by the check of random plans.
#include "runtime/plan/Mutants.h"
#include "tests/unit/plan/CascadeCheck.h"
#include "tests/unit/plan/RandomPlans.h"

#include <gtest/gtest-spi.h>

using namespace plantest;

namespace {

constexpr uint32_t kSeeds = 200;
/// Those whose programs are also planned with tuples of heads: with 8 heads a check takes long.
constexpr uint32_t kTupleSeeds = 30;

/// What the plans of a seed have wrong, "" if nothing.
std::string findings(uint32_t seed) {
  testing::TestPartResultArray results;
  {
    using Reporter = testing::ScopedFakeTestPartResultReporter;
    Reporter reporter(Reporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
    Random random(seed);
    Program program = randomProgram(random);
    PlanOptions options = randomOptions(random);
    BatchShape batch = randomBatch(random);
    if (StatusOr<Plan> plan = makePlan(program, batch, {}, options))
      checkPlan(program, batch, {}, options, *plan);
    RandomCascade shared = randomCascade(seed);
    planAndCheck(shared.program, shared.tree, shared.options);
    if (seed >= kTupleSeeds)
      return results.size() ? results.GetTestPartResult(0).message() : "";
    program = withTuples(random, program);
    if (StatusOr<Plan> plan = makePlan(program, batch, {}, options))
      checkPlan(program, batch, {}, options, *plan);
    planAndCheck(withTuples(random, shared.program), shared.tree, shared.options);
  }
  return results.size() ? results.GetTestPartResult(0).message() : "";
}

class PlanMutants : public testing::TestWithParam<int> {};

} // namespace

TEST_P(PlanMutants, IsNoticed) {
  activePlanMutant = PlanMutant(GetParam());
  std::string found;
  for (uint32_t seed = 0; seed < kSeeds && found.empty(); ++seed)
    found = findings(seed);
  activePlanMutant = PlanMutant::None;
  EXPECT_FALSE(found.empty()) << "mutant " << GetParam() << " passes all checks";
  RecordProperty("finding", found);
}

INSTANTIATE_TEST_SUITE_P(All, PlanMutants, testing::Range(1, int(PlanMutant::Count)));

TEST(PlanMutant, ThePlannerItselfPassesTheSameChecks) {
  for (uint32_t seed = 0; seed < kSeeds; ++seed)
    ASSERT_EQ(findings(seed), "") << "seed " << seed;
}

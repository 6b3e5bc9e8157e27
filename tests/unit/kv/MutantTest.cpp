// Each mistake of runtime/kv/Mutants.h, switched on, is noticed by random calls with
// the checking device, the model and the manager's own check.
#include "Driver.h"
#include "Order.h"
#include "runtime/kv/Mutants.h"

#include <gtest/gtest.h>

using namespace kvtest;

namespace {

constexpr uint64_t kSeeds = 400;
constexpr uint32_t kCalls = 1000;

/// The seed at which the mistake was noticed, or 0. `alone`: by the device and the model, without
/// the manager's own check, and before the end.
uint64_t noticedAt(Mutant mutant, std::string &how, bool alone = false) {
  activeMutant = mutant;
  uint64_t noticed = 0;
  for (uint64_t seed = 1; seed <= kSeeds && !noticed; ++seed) {
    Random random(seed);
    ManagerOptions options = randomOptions(random);
    Driver driver(options, random);
    driver.checkEvery = alone ? UINT32_MAX : 1;
    uint32_t call = 0;
    while (call < kCalls && driver.step())
      ++call;
    if (call < kCalls || (!alone && !driver.finishAll())) {
      noticed = seed;
      how = driver.error;
    }
  }
  activeMutant = Mutant::None;
  return noticed;
}

class KvMutant : public testing::TestWithParam<int> {};

} // namespace

TEST_P(KvMutant, IsNoticed) {
  std::string how;
  if (static_cast<Mutant>(GetParam()) == Mutant::HeadsFirst) {
    // Nothing wrong is served then, only less.
    std::vector<uint32_t> right = hitsWhilePrefixIsEvicted();
    activeMutant = Mutant::HeadsFirst;
    EXPECT_NE(hitsWhilePrefixIsEvicted(), right);
    activeMutant = Mutant::None;
    return;
  }
  uint64_t seed = noticedAt(static_cast<Mutant>(GetParam()), how);
  EXPECT_GT(seed, 0u) << "mutant " << GetParam() << " passes all checks";
}

INSTANTIATE_TEST_SUITE_P(All, KvMutant, testing::Range(1, static_cast<int>(Mutant::Count)));

// The manager's check is production code too: what it looks at is seen without it.
TEST(KvModel, AloneNoticesWrongOwners) {
  for (Mutant mutant :
       {Mutant::LeakedReference, Mutant::DoubleFree, Mutant::LateFree, Mutant::EarlyFree,
        Mutant::UnpinnedHit, Mutant::RefusedPin, Mutant::StaleEntry, Mutant::EarlyHash,
        Mutant::SwapUnordered, Mutant::TransferUnpinned, Mutant::CopiedSourceFreed}) {
    std::string how;
    EXPECT_GT(noticedAt(mutant, how, /*alone=*/true), 0u)
        << "mutant " << static_cast<int>(mutant) << " passes";
  }
}

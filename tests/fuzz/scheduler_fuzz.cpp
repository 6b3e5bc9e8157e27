// Requests, aborts, peers, copies and failures around a scheduler, chosen by the bytes, under the
// checks of the random loads: each answer is the model's, invariants hold after every turn.
#include "tests/unit/serving/RandomLoad.h"

#include <cstdlib>

using namespace llmopt::test;

namespace {

class AbortsAtFailures : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult &result) override {
    if (!result.failed())
      return;
    std::fprintf(stderr, "%s\n", result.message());
    std::abort();
  }
};

} // namespace

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
  testing::UnitTest::GetInstance()->listeners().Append(new AbortsAtFailures);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  constexpr size_t kHead = 2;
  if (size <= kHead)
    return 0;
  Load load;
  load.steps = 1u << data[0] % 3;
  load.drafts = data[0] / 3 % 2 ? 3 : 0;
  load.policy = PolicyKind(data[0] / 6 % 4);
  load.tree = data[0] / 24 % 2;
  load.windows = data[0] / 48 % 2;
  load.swap = data[1] & 1;
  load.aborts = data[1] & 2;
  load.cache = !(data[1] & 4);
  load.samples = data[1] & 8;
  load.events = data[1] & 16;
  load.secondLevel = load.cache && (data[1] & 32);
  for (size_t i = 0; i < size; ++i) // of what the bytes do not decide
    load.seed = load.seed * 1099511628211u + data[i];
  load.requests = 12;
  load.bytes = {data + kHead, size - kHead};
  RandomLoad(load).play([] { return false; });
  return 0;
}

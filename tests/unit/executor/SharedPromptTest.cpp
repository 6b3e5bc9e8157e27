// Requests that begin alike read the shared pages once: same bits in batch-invariant mode, same
// numbers but for rounding else.
#include "Alone.h"
#include "Server.h"

namespace llmopt::test {
namespace {

constexpr uint32_t kShared = 600, kDeeper = 1000, kRequests = 16, kAnswers = 12;

/// All begin with kShared tokens, every other one with kDeeper, and end with their own.
std::vector<kv::Token> promptOf(uint32_t index) {
  uint32_t shared = index % 2 ? kDeeper : kShared;
  std::vector<kv::Token> prompt(shared + 5 + 3 * index);
  for (uint32_t i = 0; i < prompt.size(); ++i)
    prompt[i] = i < shared ? (i * i * 31 + i * 17) % 256 : (index * 7919 + i * 13) % 256;
  return prompt;
}

struct Served {
  Served(bool invariant, uint32_t levels, std::vector<TinyGroup> groups = {})
      : model(TinyConfig()), layers(model) {
    ServerOptions options;
    options.spec.invariant = invariant;
    options.spec.rows = 64; // one kernel, so that sharing pays by any target's costs
    options.cascadeLevels = levels;
    options.groups = std::move(groups);
    options.pages = 400;
    layers.keepLogits = true;
    server = std::make_unique<Server>(options, layers);
    // The first two fill the prefix cache.
    for (uint32_t i = 0; i < kRequests; ++i) {
      std::vector<kv::Token> prompt = promptOf(i);
      RequestParams params;
      params.prompt = prompt;
      params.maxNewTokens = i < 2 ? 1 : kAnswers;
      EXPECT_TRUE(server->add(params).ok());
      if (i == 1)
        server->runOut();
    }
    server->runOut();
  }
  PlanCounters counters(uint32_t group = 0) const {
    return server->executor->planCounters(group)[0];
  }
  uint64_t used(uint32_t group = 0) const {
    return counters(group).cascades[size_t(CascadeAnswer::Used)];
  }

  TinyModel model;
  TinyLayers layers;
  std::unique_ptr<Server> server;
};

TEST(SharedPrompts, BitsAreThoseOfTheSequenceAloneWithSharingOnAndOff) {
  Served with(true, 2), one(true, 1), without(true, 0);
  EXPECT_GE(with.used(), kAnswers - 2);
  EXPECT_GE(one.used(), kAnswers - 2);
  EXPECT_GT(with.counters().sharedTiles, one.counters().sharedTiles);
  EXPECT_EQ(without.used(), 0u);
  EXPECT_EQ(without.counters().cascades[size_t(CascadeAnswer::Off)], without.counters().plans);
  Alone alone(with.model, with.server->options.spec, with.server->options.groups);
  for (size_t i = 0; i < kRequests; ++i) {
    const Outcome &outcome = with.server->outcomes[i];
    Answer expected = alone.run(outcome.prompt, outcome.asked);
    for (Served *run : {&with, &one, &without}) {
      const Outcome &own = run->server->outcomes[i];
      EXPECT_EQ(own.answer.tokens, expected.tokens) << "request " << i;
      std::vector<uint64_t> hashes = run->layers.hashes[{own.handle.slot, own.handle.generation}];
      hashes.resize(own.asked);
      EXPECT_EQ(hashes, expected.logits) << "request " << i;
    }
  }
}

TEST(SharedPrompts, WithoutBatchInvarianceLogitsDifferByRoundingOnly) {
  Served with(false, 2), without(false, 0);
  EXPECT_GE(with.used(), kAnswers - 2);
  size_t compared = 0;
  for (size_t i = 0; i < kRequests; ++i) {
    const Outcome &a = with.server->outcomes[i], &b = without.server->outcomes[i];
    const auto &left = with.layers.kept[{a.handle.slot, a.handle.generation}];
    const auto &right = without.layers.kept[{b.handle.slot, b.handle.generation}];
    for (size_t t = 0; t < a.answer.tokens.size() && t < b.answer.tokens.size(); ++t) {
      ASSERT_EQ(left[t].size(), right[t].size());
      for (size_t v = 0; v < left[t].size(); ++v)
        ASSERT_NEAR(left[t][v], right[t][v], 2e-4) << "request " << i << " token " << t;
      ++compared;
      if (a.answer.tokens[t] != b.answer.tokens[t])
        break; // a near tie: from here on they answer different questions
    }
  }
  EXPECT_GE(compared, size_t(kRequests) * kAnswers / 2);
}

// A window shows the shared pages to nobody any more; the other group shares them still.
TEST(SharedPrompts, AWindowKeepsItsKeysPrivate) {
  Served run(true, 2, {{{0}, 16, 0, 0}, {{1}, 16, 64, 4}});
  EXPECT_GE(run.used(0), kAnswers - 2);
  EXPECT_EQ(run.used(1), 0u);
  Alone alone(run.model, run.server->options.spec, run.server->options.groups);
  for (const Outcome &outcome : run.server->outcomes)
    EXPECT_EQ(outcome.answer.tokens, alone.run(outcome.prompt, outcome.asked).tokens);
}

} // namespace
} // namespace llmopt::test

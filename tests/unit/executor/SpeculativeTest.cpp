// Drafts that are verified several at a time give the tokens, and the logits' bits, of one
// token after the other.
#include "Alone.h"
#include "Server.h"

namespace llmopt::test {
namespace {

constexpr uint32_t kDrafts = 4;

/// What a row's drafts hold: as many true tokens as its turn says, then wrong ones.
void fillDrafts(const std::vector<kv::Token> &truth, uint32_t next, uint32_t turn,
                uint32_t vocabulary, std::span<kv::Token> drafts) {
  for (size_t i = 0; i < drafts.size(); ++i) {
    kv::Token right = next + i < truth.size() ? truth[next + i] : 0;
    drafts[i] = i < turn % (kDrafts + 1) ? right : (right + 1) % vocabulary;
  }
}

class DraftingLayers : public TinyLayers {
public:
  using TinyLayers::TinyLayers;
  Status draft(const ModelRow &row, kv::Token last, uint32_t position,
               std::span<kv::Token> drafts) override {
    const std::vector<kv::Token> &mine = truth.at(row.row->samplingSeed);
    EXPECT_EQ(mine.at(position), last);
    fillDrafts(mine, position + 1, turn++, model.config().vocabulary, drafts);
    return {};
  }
  std::map<uint64_t, std::vector<kv::Token>> truth; ///< by seed
  uint32_t turn = 0;
};

class HostDrafts : public DraftSource {
public:
  HostDrafts(DraftingLayers &layers, const Server *&server) : layers(layers), server(server) {}
  uint32_t propose(RequestHandle request, std::span<const kv::Token> tokens,
                   std::span<kv::Token> drafts, std::span<int16_t> parents) override {
    const Outcome &outcome = server->outcomes[server->indexOf.at(request.slot)];
    fillDrafts(layers.truth.at(outcome.seed), uint32_t(tokens.size() - outcome.prompt.size()),
               layers.turn++, 256, drafts);
    for (size_t i = 0; i < drafts.size(); ++i)
      parents[i] = int16_t(i) - 1;
    return uint32_t(drafts.size());
  }

private:
  DraftingLayers &layers;
  const Server *&server;
};

/// Hears how many tokens come at once.
class CountingServer : public Server {
public:
  using Server::Server;
  void onTokens(RequestHandle request, std::span<const kv::Token> tokens, int64_t now) override {
    if (!outcomes[indexOf.at(request.slot)].answer.tokens.empty())
      ++accepted[tokens.size() - 1];
    Server::onTokens(request, tokens, now);
  }
  std::map<size_t, uint32_t> accepted; ///< drafts at once, how often
};

struct Setting {
  const char *name;
  uint32_t stepsInFlight;
  bool fromHost;
  uint64_t pages; ///< few enough for preemptions, or many
  std::vector<TinyGroup> groups;

  friend void PrintTo(const Setting &setting, std::ostream *out) { *out << setting.name; }
};

class Speculative : public testing::TestWithParam<Setting> {};

TEST_P(Speculative, EqualsOneTokenAfterTheOther) {
  const Setting &setting = GetParam();
  ServerOptions options;
  options.groups = setting.groups;
  options.pages = setting.pages;
  options.hostPages = 400;
  options.costs.secondsPerToken = 1e-5;
  options.costs.copyLatency = 7e-4;
  options.scheduler.stepsInFlight = setting.stepsInFlight;
  TinyModel model(options.spec.model);
  DraftingLayers layers(model);
  const Server *known = nullptr;
  HostDrafts source(layers, known);
  if (setting.fromHost) {
    options.scheduler.hostDrafts = kDrafts;
    options.scheduler.draftSource = &source;
  } else {
    options.scheduler.deviceDrafts = {-1, 0, 1, 2};
  }
  Alone alone(model, options.spec, options.groups);
  CountingServer server(options, layers);
  known = &server;
  for (uint32_t i = 0; i < 12; ++i) {
    std::vector<kv::Token> prompt(20 + 13 * i);
    for (uint32_t t = 0; t < prompt.size(); ++t)
      prompt[t] = (t * t + 31 * i + 7 * t) % 256;
    RequestParams params;
    params.prompt = prompt;
    params.maxNewTokens = 90 + i;
    params.greedy = i % 4 != 3;
    params.samplingSeed = i;
    layers.truth[i] = alone.run(prompt, params.maxNewTokens + kDrafts, params.greedy, i).tokens;
    ASSERT_TRUE(server.add(params).ok());
  }
  server.runOut();
  for (const Outcome &outcome : server.outcomes) {
    Answer expected = alone.run(outcome.prompt, outcome.asked, outcome.greedy, outcome.seed);
    EXPECT_EQ(outcome.answer.tokens, expected.tokens);
    EXPECT_EQ((layers.hashes[{outcome.handle.slot, outcome.handle.generation}]), expected.logits);
  }
  for (uint32_t length = 0; length <= kDrafts; ++length)
    EXPECT_GT(server.accepted[length], 20u) << length;
  EXPECT_EQ(server.engine->deviceLosses(), 0u);
  if (setting.pages < 400)
    EXPECT_GT(server.scheduler->metrics().preemptions, 1u);
}

// Pages of 4 slots: nearly every row of five tokens crosses from one to the next. Answers of
// 90 tokens cross a window of 24 and its page boundaries many times.
INSTANTIATE_TEST_SUITE_P(
    Settings, Speculative,
    testing::Values(Setting{"DeviceTwoSteps", 2, false, 180, {{{0, 1}, 4, 0, 0}}},
                    Setting{
                        "DeviceTwoStepsWindow", 2, false, 400, {{{0}, 4, 0, 0}, {{1}, 4, 24, 3}}},
                    Setting{"DeviceFourSteps", 4, false, 60, {{{0, 1}, 16, 0, 0}}},
                    Setting{"HostOneStep", 1, true, 180, {{{0}, 4, 0, 0}, {{1}, 4, 24, 3}}}),
    [](const auto &info) { return std::string(info.param.name); });

TEST(SpeculativeTree, IsRefusedWithTheReason) {
  ServerOptions options;
  options.scheduler.deviceDrafts = {-1, -1};
  TinyModel model(options.spec.model);
  DraftingLayers layers(model);
  Server server(options, layers);
  std::vector<kv::Token> prompt(5, 1);
  layers.truth[0] = Alone(model, options.spec, server.options.groups).run(prompt, 8).tokens;
  RequestParams params;
  params.prompt = prompt;
  params.maxNewTokens = 8;
  StepResult result;
  ASSERT_TRUE(server.add(params).ok());
  // The prompt's row has no drafts yet.
  for (int step = 0; step < 2; ++step) {
    std::span<const uint8_t> bytes = server.scheduler->schedule(0);
    ASSERT_TRUE(server.executor->submit(bytes, 0).ok());
    StatusOr<const StepResult *> done = server.executor->wait();
    ASSERT_TRUE(done.ok());
    result = **done;
    ASSERT_TRUE(server.scheduler->complete(result, 0).ok());
  }
  EXPECT_EQ(result.status.toString(),
            "Unsupported: step 2 has a tree of drafts; kernels have no mask for trees yet, give "
            "each draft the one before it as its parent");
  EXPECT_EQ(server.outcomes[0].reason, FinishReason::DeviceFailure);
}

} // namespace
} // namespace llmopt::test

// Drafts that are verified several at a time give the tokens, and the logits' bits, of one
// token after the other.
#include "Alone.h"
#include "FailingDevice.h"
#include "Oracle.h"
#include "Server.h"

#include "runtime/scheduler/StepWriter.h"

namespace llmopt::test {
namespace {

using Parents = std::vector<int16_t>;

const Parents kChain = {-1, 0, 1, 2};
/// Two drafts behind the token, then branches of unlike lengths: depths 1 1 2 2 2 3 3 4.
const Parents kTree = {-1, -1, 0, 0, 1, 3, 4, 6};

uint32_t depthOf(const Parents &parents, size_t draft) {
  return parents[draft] < 0 ? 1 : 1 + depthOf(parents, size_t(parents[draft]));
}

uint32_t mostDepth(const Parents &parents) {
  uint32_t most = 0;
  for (size_t i = 0; i < parents.size(); ++i)
    most = std::max(most, depthOf(parents, i));
  return most;
}

/// What a row's drafts hold: true tokens along one branch, whose length and end go by turns,
/// and wrong ones elsewhere.
void fillDrafts(const std::vector<kv::Token> &truth, uint32_t next, uint32_t turn,
                uint32_t vocabulary, const Parents &parents, std::span<kv::Token> drafts) {
  uint32_t most = mostDepth(parents), length = turn % (most + 1);
  std::vector<size_t> ends;
  for (size_t i = 0; i < drafts.size(); ++i)
    if (depthOf(parents, i) == length)
      ends.push_back(i);
  std::vector<bool> isTrue(drafts.size());
  if (!ends.empty())
    for (int i = int(ends[turn / (most + 1) % ends.size()]); i >= 0; i = parents[size_t(i)])
      isTrue[size_t(i)] = true;
  for (size_t i = 0; i < drafts.size(); ++i) {
    size_t at = next + depthOf(parents, i) - 1;
    kv::Token right = at < truth.size() ? truth[at] : 0;
    drafts[i] = isTrue[i] ? right : kv::Token((right + 1 + i) % vocabulary);
  }
}

class DraftingLayers : public TinyLayers {
public:
  using TinyLayers::TinyLayers;
  Status draft(const ModelRow &row, kv::Token last, uint32_t position,
               std::span<kv::Token> drafts) override {
    const std::vector<kv::Token> &mine = truth.at(row.row->samplingSeed);
    if (checked)
      EXPECT_EQ(mine.at(position), last);
    fillDrafts(mine, position + 1, turn++, model.config().vocabulary, parents, drafts);
    return {};
  }
  std::map<uint64_t, std::vector<kv::Token>> truth; ///< by seed
  Parents parents = kChain;
  uint32_t turn = 0;
  bool checked = true; ///< tokens are to be the true ones
};

class HostDrafts : public DraftSource {
public:
  HostDrafts(DraftingLayers &layers, const Server *&server) : layers(layers), server(server) {}
  uint32_t propose(RequestHandle request, std::span<const kv::Token> tokens,
                   std::span<kv::Token> drafts, std::span<int16_t> parents) override {
    const Outcome &outcome = server->outcomes[server->indexOf.at(request.slot)];
    fillDrafts(layers.truth.at(outcome.seed), uint32_t(tokens.size() - outcome.prompt.size()),
               layers.turn++, 256, layers.parents, drafts);
    std::copy_n(layers.parents.begin(), drafts.size(), parents.begin());
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
  Parents parents = kChain;

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
  bool trees = setting.parents != kChain;
  options.spec.trees = trees;
  TinyModel model(options.spec.model);
  DraftingLayers layers(model);
  layers.parents = setting.parents;
  layers.keepLogits = trees;
  uint32_t drafts = uint32_t(setting.parents.size());
  const Server *known = nullptr;
  HostDrafts source(layers, known);
  if (setting.fromHost) {
    options.scheduler.hostDrafts = drafts;
    options.scheduler.hostDraftTrees = trees;
    options.scheduler.draftSource = &source;
  } else {
    options.scheduler.deviceDrafts = setting.parents;
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
    layers.truth[i] = alone.run(prompt, params.maxNewTokens + drafts, params.greedy, i).tokens;
    ASSERT_TRUE(server.add(params).ok());
  }
  server.runOut();
  for (const Outcome &outcome : server.outcomes) {
    Answer expected = alone.run(outcome.prompt, outcome.asked, outcome.greedy, outcome.seed);
    EXPECT_EQ(outcome.answer.tokens, expected.tokens);
    std::pair key(outcome.handle.slot, outcome.handle.generation);
    if (trees) // keys lie in another order while a branch is verified: sums round differently
      expectWithinFormats(model, options.groups, outcome.prompt, outcome.answer.tokens,
                          layers.kept.at(key));
    else
      EXPECT_EQ(layers.hashes[key], expected.logits);
  }
  for (uint32_t length = 0; length <= mostDepth(setting.parents); ++length)
    EXPECT_GT(server.accepted[length], 20u) << length;
  EXPECT_EQ(server.engine->deviceLosses(), 0u);
  if (setting.pages < 400)
    EXPECT_GT(server.scheduler->metrics().preemptions, 1u);
}

// Pages of 4 slots: nearly every row of five tokens crosses from one to the next. Answers of
// 90 tokens cross a window of 24 and its page boundaries many times.
const std::vector<TinyGroup> kFull = {{{0, 1}, 4, 0, 0}};
const std::vector<TinyGroup> kWindows = {{{0}, 4, 0, 0}, {{1}, 4, 24, 3}};

INSTANTIATE_TEST_SUITE_P(
    Settings, Speculative,
    testing::Values(
        Setting{"DeviceTwoSteps", 2, false, 180, kFull},
        Setting{"DeviceTwoStepsWindow", 2, false, 400, kWindows},
        Setting{"DeviceFourSteps", 4, false, 60, {{{0, 1}, 16, 0, 0}}},
        Setting{"HostOneStep", 1, true, 180, kWindows},
        Setting{"TreeTwoSteps", 2, false, 180, kFull, kTree},
        Setting{"TreeTwoStepsWindow", 2, false, 400, kWindows, kTree},
        Setting{"TreeFourStepsShortWindow", 4, false, 500, {{{0}, 4, 3, 0}, {{1}, 2, 5, 2}}, kTree},
        Setting{"TreeHeadMajor", 2, false, 180, {{{0, 1}, 4, 0, 0, true, true, true}}, kTree},
        Setting{"HostTree", 1, true, 180, kWindows, kTree}),
    [](const auto &info) { return std::string(info.param.name); });

// The accepted branch goes to its slots by copies within the device: without them the answer
// is another one.
TEST(SpeculativeTree, ABranchThatDoesNotMoveIsSeen) {
  for (bool skip : {false, true}) {
    ServerOptions options;
    auto device = std::make_shared<FailingDevice>(*CpuDevice::create(1));
    if (skip)
      device->skipCopies();
    options.device = device;
    options.spec.trees = true;
    options.scheduler.deviceDrafts = kTree;
    TinyModel model(options.spec.model);
    DraftingLayers layers(model);
    layers.parents = kTree;
    layers.checked = !skip;
    Server server(options, layers);
    std::vector<kv::Token> prompt(21);
    for (uint32_t t = 0; t < prompt.size(); ++t)
      prompt[t] = (t * 11 + 3) % 256;
    RequestParams params;
    params.prompt = prompt;
    params.maxNewTokens = 60;
    layers.truth[0] = Alone(model, options.spec, server.options.groups)
                          .run(prompt, params.maxNewTokens + uint32_t(kTree.size()))
                          .tokens;
    ASSERT_TRUE(server.add(params).ok());
    server.runOut();
    std::vector<kv::Token> expected = layers.truth[0];
    expected.resize(params.maxNewTokens);
    EXPECT_EQ(server.outcomes[0].answer.tokens == expected, !skip);
  }
}

// Executors that cannot run them say so when they are made, not at the first tree.
TEST(SpeculativeTree, NeedsKernelsWithATreeAndSetsThatHoldIt) {
  ServerOptions options;
  options.scheduler.deviceDrafts = {-1, -1};
  TinyModel model(options.spec.model);
  DraftingLayers layers(model);
  auto refusal = [&]() -> std::string {
    try {
      Server server(options, layers);
    } catch (const std::exception &error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(), "InvalidArgument: kernel 'attend 0' serves verify rows, whose drafts may "
                       "branch, and its mask has no tree; write mask(tree<argN> and ...), or give "
                       "chains of drafts");
  options.spec.trees = true;
  EXPECT_EQ(refusal(), "");
  options.scheduler.deviceDrafts.assign(64, -1);
  options.scheduler.tokenBudget = 2000;
  EXPECT_EQ(refusal(), "InvalidArgument: trees of 64 drafts; at most 63 are allowed");
}

// A step from elsewhere with a tree, at an executor that was made for chains.
TEST(SpeculativeTree, OfAStepIsRefusedWithTheReason) {
  ServerOptions options;
  options.scheduler.deviceDrafts = {-1, 0};
  TinyModel model(options.spec.model);
  DraftingLayers layers(model);
  Server server(options, layers);
  StepCapacities capacities;
  capacities.maxDraft = 2;
  capacities.tableSlots = server.blocks->options().maxSequences;
  StepWriter writer(capacities);
  std::vector<kv::Token> tokens = {1, 2, 3};
  kv::Prompt prompt(tokens, kv::CacheKey(), server.blocks->blockSize());
  ASSERT_EQ(server.blocks->openStep(), kv::Reply::Ok);
  kv::Admission admission = server.blocks->admit(prompt, 3);
  ASSERT_EQ(admission.reply, kv::Reply::Ok);
  const kv::StepTables &tables = server.blocks->closeStep();
  writer.begin(tables.step);
  writer.setTables(tables);
  step::Row &row = writer.addRow();
  row.tableSlot = admission.sequence.slot;
  row.lengthBound = 3;
  row.outputLimit = 3;
  row.phase = step::Phase::Verify;
  row.flags = step::kSamples;
  writer.addLiteral(1);
  for (kv::Token draft : {2, 3}) {
    writer.addDraft({-1, 1});
    writer.addLiteral(draft);
  }
  writer.wantLogits(3);
  ASSERT_TRUE(server.executor->submit(writer.finish(), 0).ok());
  StatusOr<const StepResult *> done = server.executor->wait();
  ASSERT_TRUE(done.ok());
  EXPECT_EQ((*done)->status.toString(),
            "Unsupported: step 1 has a tree of drafts; the executor was made for chains: set "
            "ExecutorOptions::draftTrees, with kernels whose mask has a tree");
}

} // namespace
} // namespace llmopt::test

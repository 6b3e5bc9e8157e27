// Nobody starves: not those that run behind prompts that keep coming, and not those that hold
// pages behind each other.
#include "runtime/replay/Replay.h"
#include "tests/unit/serving/Story.h"

#include <random>

using namespace llmopt::test;

namespace {

/// Prompts of 3,000 to 6,000 tokens, six a second, for a minute; answers of some 160 steps.
Trace steadyArrivals(uint64_t seed, uint32_t tokensOfAStep) {
  std::mt19937_64 random(seed);
  Trace trace;
  trace.format = TraceFormat::Azure;
  for (int i = 0; i < 360; ++i)
    trace.requests.push_back({.arrivalNs = i * 1'000'000'000ll / 6,
                              .promptTokens = int32_t(3000 + random() % 3001),
                              .outputTokens = int32_t(tokensOfAStep * (60 + random() % 200))});
  return trace;
}

/// No step of the replay takes longer, and none begins later after the one before: all of the
/// budget, behind the longest request; as many rows as may be, each of which reads as much, and
/// with logits of all its drafts.
double longestGap(const Trace &trace, const ReplayOptions &options) {
  double longest = 0, rows = options.scheduler.maxRunning, tokens = options.scheduler.tokenBudget;
  for (const TraceRequest &request : trace.requests)
    longest = std::max(longest, double(request.promptTokens + request.outputTokens));
  StepCost cost(options.model, options.accelerator, options.cost);
  StepCost::Work work;
  cost.begin(work);
  work.tokens = tokens;
  work.logits = rows * (1 + options.scheduler.maxDraft());
  work.pairs[0] = tokens * longest;
  work.keys[0] = rows * longest + tokens;
  return options.hostSeconds + cost.seconds(work);
}

/// A connector whose peers the test plays.
struct Peers : KvConnector {
  bool start(const IncomingKv &incoming) override {
    under.push_back(incoming);
    return true;
  }
  void cancel(kv::TransferId) override {}
  std::vector<IncomingKv> under; ///< way
};

/// Steps until nothing is left, with notes of peers in between.
void runWithPeers(Story &story, Peers &peers, std::mt19937_64 &random, uint64_t most) {
  for (uint64_t i = 0; i < most && !story.scheduler->idle(); ++i) {
    bool moved = story.scheduler->stepsInFlight() < story.options.scheduler.stepsInFlight &&
                 !story.launch().empty();
    if (!moved && story.scheduler->stepsInFlight()) {
      story.land();
      moved = true;
    }
    if (!peers.under.empty() && (!moved || random() % 4 == 0)) {
      IncomingKv ended = peers.under[random() % peers.under.size()];
      std::erase_if(peers.under, [&](const auto &each) { return each.transfer == ended.transfer; });
      uint32_t came = random() % 3 ? ended.count : uint32_t(random() % (ended.count + 1));
      if (random() % 8)
        story.scheduler->transferDone(ended.transfer, came);
      else
        story.scheduler->transferFailed(ended.transfer);
    }
    if (testing::Test::HasFatalFailure())
      return;
  }
  for (const IncomingKv &late : peers.under)
    story.scheduler->transferFailed(late.transfer);
  EXPECT_TRUE(story.scheduler->idle()) << story.ends;
  story.expectEmpty();
}

} // namespace

// A37 (sgl-project/sglang#32549) with its own numbers, in simulated time: the gap between two
// tokens of a running request is one step, which the budget bounds; there it was 24 s.
TEST(Starvation, ATokenOfARunningRequestWaitsForOneStepWhateverArrives) {
  for (PolicyKind policy : {PolicyKind::Fcfs, PolicyKind::Priority, PolicyKind::LongestPrefix,
                            PolicyKind::ShortestRemaining})
    for (auto [budget, chunk, inFlight, drafts] :
         {std::tuple(8192u, 0u, 1u, 0u), std::tuple(8192u, 0u, 2u, 0u),
          std::tuple(8192u, 2048u, 1u, 0u), std::tuple(2048u, 0u, 4u, 0u),
          std::tuple(2048u, 512u, 1u, 3u)}) {
      bool more = policy == PolicyKind::Fcfs || chunk == 512; // than can be computed
      SCOPED_TRACE(fmt::format("{}, {} tokens, chunks of {}, {} in flight, {} drafts, {}",
                               toString(policy), budget, chunk, inFlight, drafts, more));
      ReplayOptions options;
      options.model = llama8b(16);
      options.pages = 40000;
      options.speed = more ? 3 : 1;
      options.scheduler.maxRunning = 64;
      options.scheduler.growthTokens = 1024;
      options.scheduler.policy = policy;
      options.scheduler.tokenBudget = budget;
      options.scheduler.chunkTokens = chunk;
      options.scheduler.stepsInFlight = inFlight;
      options.scheduler.maxLength = options.scheduler.maxWaiting = 0;
      for (uint32_t i = 0; i < drafts; ++i)
        options.scheduler.deviceDrafts.push_back(int16_t(i) - 1);
      options.acceptance = drafts ? 0.6 : 0;
      Trace trace = steadyArrivals(budget + chunk, 1 + drafts);
      StatusOr<ReplayReport> report = replay(trace, options);
      ASSERT_TRUE(report.ok()) << report.status().toString();
      EXPECT_EQ(report->finished, 360u);
      EXPECT_EQ(report->metrics.preemptions, 0u) << "else it is not what this is about";
      EXPECT_GE(report->mostRunning, more ? 60u : 20u);
      EXPECT_EQ(report->saturated, more);
      double gap = double(report->metrics.interToken.max()) * 1e-9;
      EXPECT_LE(gap, longestGap(trace, options));
      if (more)
        EXPECT_GT(gap, 0.8 * longestGap(trace, options)) << "the bound says little";
    }
}

// A46 (vllm-project/vllm#45388), a slot for each of its blocks: two whose prefix another machine
// has written hold 512 and 736 of 2,048 pages and want 1,088 and 464 more; 800 are free.
TEST(Starvation, HoldersOfLoadedPagesThatWantMoreThanIsFreeBothEnd) {
  for (bool smallFirst : {false, true})
    for (uint64_t hostPages : {0u, 4096u})
      for (uint32_t inFlight : {1u, 2u, 4u}) {
        SCOPED_TRACE(fmt::format("{} {} {}", smallFirst, hostPages, inFlight));
        Peers peers;
        StoryOptions options;
        options.pageSize = 1;
        options.pages = 2048;
        options.hostPages = hostPages;
        options.cache = false;
        options.scheduler.connector = &peers;
        options.scheduler.stepsInFlight = inFlight;
        options.scheduler.growthTokens = 0;
        Story story(options);
        auto add = [&](bool small) {
          if (small)
            story.add('B', {.prompt = 737, .answer = 464, .remote = 736});
          else
            story.add('A', {.prompt = 513, .answer = 1088, .remote = 512});
        };
        add(smallFirst);
        add(!smallFirst);
        EXPECT_EQ(story.step(), "") << "both wait for their peers";
        ASSERT_EQ(peers.under.size(), 2u);
        EXPECT_EQ(story.blocks->pool().count(kv::PageState::Free), 2048u - 512 - 736);
        for (const IncomingKv &each : peers.under)
          EXPECT_TRUE(story.scheduler->transferDone(each.transfer, each.count));
        peers.under.clear();
        std::mt19937_64 random;
        runWithPeers(story, peers, random, 40000);
        story.expectAnswer('A', 1088);
        story.expectAnswer('B', 464);
        EXPECT_GE(story.scheduler->metrics().preemptions, 1u) << "one of them is stripped";
        EXPECT_LE(story.steps, 4 * 1088u);
      }
}

// The same of any number of holders, in a pool that holds the largest alone: whoever's pages are
// being written, have been, were lost on the way, or came back from host memory.
TEST(Starvation, AnyHoldersOfPagesEndInAPoolForOne) {
  uint64_t received = 0, preempted = 0, swapped = 0;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Peers peers;
    StoryOptions options;
    options.pages = 26; // 104 tokens
    options.hostPages = seed % 2 ? 64 : 0;
    options.demoteBelow = seed % 8 == 1 ? 4 : 0;
    options.cache = seed % 3 != 0;
    options.scheduler.connector = &peers;
    options.scheduler.tokenBudget = 24;
    options.scheduler.stepsInFlight = 1u << seed / 2 % 3;
    options.scheduler.growthTokens = 0;
    options.scheduler.ageSteps = 40;
    options.scheduler.policy = PolicyKind(seed % 4);
    Story story(options);
    std::string names = "ABCDEFGH";
    std::map<char, uint32_t> wanted;
    for (char name : names) {
      uint32_t prompt = 8 + uint32_t(random() % 52), answer = 8 + uint32_t(random() % 36);
      wanted[name] = answer;
      story.add(name, {.prompt = prompt,
                       .answer = answer,
                       .priority = uint32_t(random() % 3),
                       .stream = uint32_t(random() % 4),
                       .remote = random() % 4 ? uint32_t(random() % (prompt + 1)) : 0});
    }
    runWithPeers(story, peers, random, 20000);
    for (char name : names)
      story.expectAnswer(name, wanted[name]);
    received += story.scheduler->metrics().transfers;
    preempted += story.scheduler->metrics().preemptions;
    swapped += story.scheduler->metrics().swapIns;
  }
  EXPECT_GT(received, 200u) << "the loads do not do what they are for";
  EXPECT_GT(preempted, 200u);
  EXPECT_GT(swapped, 20u);
}

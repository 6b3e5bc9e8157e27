// Random loads: whatever happens, each answer is the model's, each position is computed once
// plus what preemption cost, invariants hold after every step, and nobody waits longer than
// the bound of docs/design/scheduler.md.
#include "tests/unit/serving/Story.h"

#include <random>
#include <set>

using namespace llmopt::test;

namespace {

constexpr std::string_view kNames =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

struct Load {
  uint32_t steps = 1, drafts = 0;
  PolicyKind policy = PolicyKind::Fcfs;
  bool swap = false, aborts = false, cache = true, windows = false, tree = false;
  uint64_t seed = 0;
};

StoryOptions optionsOf(const Load &load) {
  StoryOptions options;
  options.pages = 24;
  options.cache = load.cache;
  options.hostPages = load.swap ? 16 : 0;
  options.acceptance = 0.6;
  options.scheduler.policy = load.policy;
  options.scheduler.stepsInFlight = load.steps;
  options.scheduler.tokenBudget = 48;
  options.scheduler.maxRunning = 6;
  options.scheduler.maxLength = 80;
  options.scheduler.ageSteps = 40;
  options.scheduler.maxAdapters = 2;
  options.scheduler.growthTokens = load.seed % 2 ? 0 : 4;
  for (uint32_t i = 0; i < load.drafts; ++i)
    options.scheduler.deviceDrafts.push_back(load.tree ? int16_t(i / 2) - 1 : int16_t(i) - 1);
  if (load.windows) {
    kv::GroupSpec full = llama8b(options.pageSize).groups[0].group, window = full;
    window.kind = kv::GroupKind::Window;
    window.window = 10;
    window.sink = 2;
    window.dataBytes = full.dataBytes / 2;
    options.groups = {full, window};
    options.pages = 40;
  }
  return options;
}

/// Steps from coming to ending, for requests older ones of which number `older` - 1.
uint64_t waitingBound(const StoryOptions &options, uint64_t older) {
  const SchedulerOptions &s = options.scheduler;
  uint64_t chunk = s.tokenBudget - (s.maxRunning - 1) * (1 + s.maxDraft());
  auto parts = [&](uint64_t tokens) { return (tokens + chunk - 1) / chunk; };
  uint64_t others = parts(uint64_t(s.maxRunning) * s.maxLength) + s.maxLength;
  uint64_t own = parts(s.maxLength) + s.maxLength;
  return s.ageSteps + older * (s.stepsInFlight + 2) * (others + own);
}

void play(const Load &load) {
  SCOPED_TRACE(fmt::format("D {} drafts {} policy {} swap {} aborts {} cache {} windows {} seed {}",
                           load.steps, load.drafts, toString(load.policy), load.swap, load.aborts,
                           load.cache, load.windows, load.seed));
  StoryOptions options = optionsOf(load);
  Story story(options);
  std::mt19937_64 random(load.seed);
  auto upTo = [&](uint32_t n) { return uint32_t(random() % n); };
  std::map<char, uint64_t> bornAt, boundOf;
  std::set<char> aborted;
  size_t next = 0;
  uint64_t positions = 0;
  while (next < kNames.size() || !story.scheduler->idle()) {
    while (next < kNames.size() && (story.scheduler->idle() || upTo(3) == 0)) {
      char name = kNames[next++];
      Ask ask;
      ask.prompt = 1 + upTo(50);
      ask.answer = 1 + upTo(29);
      ask.priority = upTo(3);
      ask.adapter = upTo(4);
      ask.stream = upTo(2) ? UINT32_MAX : upTo(3);
      ask.seed = random();
      story.add(name, ask);
      bornAt[name] = story.steps;
      boundOf[name] =
          waitingBound(options, story.scheduler->running() + story.scheduler->waiting());
    }
    if (load.aborts && upTo(25) == 0 && next > 1) {
      char name = kNames[upTo(uint32_t(next))];
      if (story.scheduler->abort(story.handles[name], story.now))
        aborted.insert(name);
    }
    bool full = story.scheduler->stepsInFlight() == load.steps;
    if (full || upTo(2) || story.launch().empty())
      if (story.scheduler->stepsInFlight())
        story.land();
    story.checkAll();
    if (testing::Test::HasFatalFailure())
      return;
  }
  for (size_t i = 0; i < next; ++i) {
    char name = kNames[i];
    if (aborted.contains(name))
      continue;
    story.expectAnswer(name, story.asked[name].answer);
    EXPECT_LE(story.endStep[name] - bornAt[name], boundOf[name]) << name;
    positions += story.asked[name].prompt + story.asked[name].answer - 1;
  }
  story.expectEmpty();
  if (load.aborts)
    return;
  const ServingMetrics &metrics = story.scheduler->metrics();
  EXPECT_EQ(metrics.tokensComputed, positions - metrics.tokensReused + metrics.tokensRecomputed +
                                        metrics.tokensRejected + metrics.tokensDiscarded);
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
          load.seed = ++seed;
          play(load);
          if (testing::Test::HasFatalFailure())
            return;
        }
}

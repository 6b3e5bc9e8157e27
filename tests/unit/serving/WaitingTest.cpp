// The bound on waiting: docs/design/scheduler.md derives it, here it is held to against the
// loads that would break it.
#include "tests/unit/serving/Story.h"

#include <random>

using namespace llmopt::test;

namespace {

/// Small numbers, so that the bound is short: 4 run, 40 tokens a step, 64 a request.
StoryOptions small(uint32_t steps) {
  StoryOptions options;
  options.pages = 20;
  options.cache = false;
  options.scheduler.tokenBudget = 40;
  options.scheduler.maxRunning = 4;
  options.scheduler.maxLength = 64;
  options.scheduler.maxWaiting = 32;
  options.scheduler.ageSteps = 50;
  options.scheduler.stepsInFlight = steps;
  options.scheduler.growthTokens = 0;
  return options;
}

uint64_t parts(uint64_t tokens, uint64_t chunk) { return (tokens + chunk - 1) / chunk; }

/// Steps until the oldest waiter, aged, is admitted (T_run), and until it has ended then
/// (T_ward).
uint64_t boundOf(const StoryOptions &options, uint64_t olderOnes) {
  const SchedulerOptions &s = options.scheduler;
  uint64_t chunk = s.tokenBudget - (s.maxRunning - 1) * (1 + s.maxDraft());
  uint64_t run = parts(uint64_t(s.maxRunning) * s.maxLength, chunk) + s.maxLength;
  uint64_t ward = parts(s.maxLength, chunk) + s.maxLength;
  return s.ageSteps + (olderOnes + 1) * (s.stepsInFlight + 2) * (run + ward);
}

/// Names that may be used again and again: only X is looked at.
struct Stream {
  Story &story;
  char next = 'a';
  void add(const Ask &ask) {
    if (story.scheduler->waiting() < 3)
      story.add(next, ask);
    next = next == 'z' ? 'a' : char(next + 1);
  }
};

} // namespace

TEST(Waiting, ALowClassRunsUnderAnEndlessStreamOfAHighOne) {
  for (uint32_t steps : {1u, 2u, 4u})
    for (PolicyKind policy : {PolicyKind::Priority, PolicyKind::LongestPrefix,
                              PolicyKind::ShortestRemaining, PolicyKind::Fcfs}) {
      StoryOptions options = small(steps);
      options.scheduler.policy = policy;
      Story story(options);
      Stream stream{story};
      for (int i = 0; i < 6; ++i)
        stream.add({.prompt = 12, .answer = 12});
      story.launch();
      story.add('X', {.prompt = 44, .answer = 20, .priority = 7});
      uint64_t born = story.steps, bound = boundOf(options, 6);
      while (!story.endStep.contains('X') && story.steps < born + bound + 1) {
        stream.add({.prompt = 12, .answer = 12});
        if (story.launch().empty())
          story.land();
      }
      ASSERT_TRUE(story.endStep.contains('X')) << toString(policy) << " D " << steps;
      EXPECT_LE(story.endStep['X'] - born, bound);
      story.expectAnswer('X', 20);
    }
}

// Requests that nobody would spare any more: each was preempted twice before, so that the
// victim rule has nobody left whom it would rather take.
TEST(Waiting, HoldsWhenEveryRequestWasPreemptedTwiceAlready) {
  for (uint32_t steps : {1u, 2u, 4u}) {
    StoryOptions options = small(steps);
    options.pages = 16; // one request alone: 64 tokens
    options.scheduler.ageSteps = 1000000;
    Story story(options);
    std::mt19937_64 random(steps);
    std::string names = "ABCDEFGH";
    for (char name : names)
      story.add(name, {.prompt = 4, .answer = 60, .priority = uint32_t(random() % 2)});
    uint64_t allTwice = 0;
    std::map<char, uint64_t> twiceAt;
    while (!story.scheduler->idle() && story.steps < 100000) {
      if (story.launch().empty())
        story.land();
      uint32_t unfinished = 0, twice = 0;
      for (char name : names) {
        if (story.endStep.contains(name))
          continue;
        ++unfinished;
        twice += story.at(name).preemptions >= 2;
      }
      allTwice += unfinished > 1 && unfinished == twice;
    }
    EXPECT_TRUE(story.scheduler->idle());
    EXPECT_GT(allTwice, 10u) << "the load does not do what it is for";
    for (char name : names)
      story.expectAnswer(name, 60);
    // With A out of reach nobody is aged: the ward of the highest class alone keeps things
    // moving, and each finishes in its turn.
    uint64_t bound = boundOf(options, names.size()) - options.scheduler.ageSteps;
    EXPECT_LE(story.steps, bound);
    EXPECT_EQ(story.ends.find("abort"), std::string::npos);
  }
}

// A37 (sgl-project/sglang#32549), with its numbers scaled: prompts come all the time, and a
// running request still gets a token in each step.
TEST(Waiting, ARunningRequestGetsATokenInEachStepUnlessItIsPreempted) {
  StoryOptions options;
  options.pages = 4096;
  options.scheduler.maxRunning = 30;
  options.scheduler.tokenBudget = 256;
  Story story(options);
  story.add('X', {.prompt = 8, .answer = 300});
  std::mt19937_64 random(5);
  uint64_t last = 0;
  for (int i = 0; !story.endStep.contains('X'); ++i) {
    if (i % 8 == 0 && story.scheduler->waiting() < 20)
      story.add(char('a' + i / 8 % 26), {.prompt = 300 + uint32_t(random() % 300), .answer = 40});
    story.step();
    uint64_t given = story.answers['X'].size();
    EXPECT_EQ(given, last + 1) << "step " << i;
    last = given;
  }
}

// The bound on waiting counts on it: at least a chunk of the ward in each step.
TEST(Waiting, TheWardsPrefillGoesBeforeThoseAdmittedEarlier) {
  StoryOptions options;
  options.scheduler.tokenBudget = 24;
  options.scheduler.chunkTokens = 16;
  Story story(options);
  story.add('L', {.prompt = 40, .answer = 1, .priority = 1});
  EXPECT_EQ(story.step(), "L:0+16");
  story.add('H', {.prompt = 40, .answer = 1}); // the oldest of the highest class
  EXPECT_EQ(story.step(), "L:16+16 H:0+8");
  EXPECT_EQ(story.step(), "H:8+16 L:32+8!");
  story.runOut();
  story.expectEmpty();
}

TEST(Waiting, TheWardIsNeverPreemptedWhateverComes) {
  for (uint32_t steps : {1u, 2u, 4u}) {
    StoryOptions options = small(steps);
    options.scheduler.ageSteps = 30;
    Story story(options);
    std::mt19937_64 random(steps);
    std::map<uint64_t, uint32_t> preemptionsAsWard; ///< of each arrival, when it became ward
    size_t name = 0;
    for (int i = 0; i < 3000; ++i) {
      if (story.scheduler->waiting() < 6)
        story.add(char(1 + name++ % 120), {.prompt = 1 + uint32_t(random() % 40),
                                           .answer = 1 + uint32_t(random() % 20),
                                           .priority = uint32_t(random() % 4)});
      RequestHandle before = story.scheduler->ward();
      uint64_t arrival = 0;
      uint32_t preemptions = 0;
      if (before.slot != UINT32_MAX) {
        arrival = story.scheduler->request(before.slot).arrival;
        preemptions = story.scheduler->request(before.slot).preemptions;
      }
      if (story.launch().empty())
        story.land();
      // Still the ward of that call, if it lives: no preemption in it.
      if (before.slot != UINT32_MAX && story.scheduler->alive(before) &&
          story.scheduler->request(before.slot).arrival == arrival)
        EXPECT_EQ(story.scheduler->request(before.slot).preemptions, preemptions);
    }
    EXPECT_GT(story.scheduler->metrics().preemptions, 50u);
  }
}

// Several samples of one prompt: computed once, then shared page by page.
#include "tests/unit/serving/Story.h"

using namespace llmopt::test;

namespace {

StoryOptions flying(uint32_t steps) {
  StoryOptions options;
  options.scheduler.stepsInFlight = steps;
  return options;
}

} // namespace

// Seven tokens of eight are shared: a full page and three slots of a second one. The last
// token is each one's own; of the three that write into the second page two copy it first.
TEST(Samples, ShareThePagesOfTheirPromptAndCopyTheLast) {
  for (bool cache : {true, false}) {
    StoryOptions options;
    options.cache = cache;
    Story story(options);
    story.addSamples("ABC", {.prompt = 8, .answer = 4});
    EXPECT_EQ(story.scheduler->waiting(), 3u);
    EXPECT_EQ(story.step(), "A:0+7");
    EXPECT_EQ(story.blocks->pool().count(kv::PageState::Used), 2u);
    EXPECT_EQ(story.step(), "A:7+1! B:7+1! C:7+1!");
    EXPECT_EQ(story.blocks->pool().count(kv::PageState::Used), 4u);
    auto input = StepInput::parse(story.lastBytes);
    ASSERT_TRUE(input.ok());
    ASSERT_EQ(input->copies().size(), 2u);
    EXPECT_EQ(input->copies()[0].from, 1);
    EXPECT_EQ(input->copies()[0].to, 2);
    EXPECT_EQ(input->copies()[1].from, 1);
    EXPECT_EQ(input->copies()[1].to, 3);
    kv::SequenceId first = story.at('A').sequence, last = story.at('C').sequence;
    EXPECT_EQ(story.blocks->pageAt(first, 0, 0), story.blocks->pageAt(last, 0, 0));
    EXPECT_EQ(story.blocks->pageAt(last, 0, 1), 1) << "the last of them needs no copy";
    EXPECT_EQ(story.step(), "A:8+1! B:8+1! C:8+1!");
    story.runOut();
    for (char name : {'A', 'B', 'C'})
      story.expectAnswer(name, 4);
    EXPECT_EQ(story.scheduler->metrics().forks, 2u);
    EXPECT_EQ(story.scheduler->metrics().tokensComputed, 7u + 3 * 4);
    story.expectEmpty();
  }
}

TEST(Samples, HaveSeedsOfTheirOwn) {
  Story story;
  story.addSamples("ABC", {.prompt = 8, .answer = 2, .seed = 40, .greedy = false});
  story.step();
  story.step();
  auto input = StepInput::parse(story.lastBytes);
  ASSERT_EQ(input->rows().size(), 3u);
  for (uint64_t i = 0; i < 3; ++i)
    EXPECT_EQ(input->rows()[i].samplingSeed, 40 + i);
}

TEST(Samples, OfALongPromptWaitForItsLastChunk) {
  for (uint32_t d : {1u, 2u, 4u}) {
    StoryOptions options = flying(d);
    options.scheduler.tokenBudget = 16;
    Story story(options);
    story.addSamples("AB", {.prompt = 40, .answer = 3});
    EXPECT_EQ(story.launch(), "A:0+16");
    if (d == 1)
      story.land();
    EXPECT_EQ(story.launch(), "A:16+16");
    while (story.scheduler->stepsInFlight())
      story.land();
    EXPECT_EQ(story.launch(), "A:32+7");
    EXPECT_EQ(story.launch(), "") << "its pages are not there yet";
    story.land();
    EXPECT_EQ(story.launch(), "A:39+1! B:39+1!");
    story.runOut();
    story.expectAnswer('A', 3);
    story.expectAnswer('B', 3);
    story.expectEmpty();
  }
}

TEST(Samples, OfAPromptOfOneTokenAreRequestsLikeOthers) {
  Story story;
  story.addSamples("AB", {.prompt = 1, .answer = 3});
  EXPECT_EQ(story.step(), "A:0+1! B:0+1!");
  story.runOut();
  story.expectAnswer('B', 3);
  EXPECT_EQ(story.scheduler->metrics().forks, 0u);
}

TEST(Samples, OfACachedPromptHitItEach) {
  Story story;
  story.add('A', {.prompt = 16, .answer = 1, .stream = 5});
  story.step();
  story.addSamples("BC", {.prompt = 16, .answer = 2, .stream = 5});
  EXPECT_EQ(story.step(), "B:15+1! C:15+1!");
  story.runOut();
  story.expectAnswer('C', 2);
  story.expectEmpty();
}

// Whoever computes the prompt may end: by an abort, its deadline, or its step's failure.
TEST(Samples, GoOnWhenTheFirstEnds) {
  for (uint32_t d : {1u, 2u}) {
    StoryOptions options = flying(d);
    options.scheduler.tokenBudget = 16;
    Story story(options);
    story.addSamples("ABCD", {.prompt = 40, .answer = 3});
    story.launch();
    story.abort('A'); // while it runs
    story.checkAll();
    while (story.scheduler->stepsInFlight())
      story.land();
    EXPECT_EQ(story.launch(), "B:0+16");
    story.abort('C'); // while it waits for the prompt
    story.checkAll();
    story.runOut();
    story.expectAnswer('B', 3);
    story.expectAnswer('D', 3);
    EXPECT_EQ(story.scheduler->metrics().forks, 1u);
    story.expectEmpty();
  }
  Story story;
  story.addSamples("AB", {.prompt = 8, .answer = 3, .deadline = 10});
  story.now = 10;
  EXPECT_EQ(story.step(), "");
  EXPECT_EQ(story.ends, "A:deadline B:deadline");
  story.addSamples("AB", {.prompt = 8, .answer = 3});
  story.abort('A'); // before it runs
  EXPECT_EQ(story.step(), "B:0+8!") << "alone, it computes all of its prompt";
}

TEST(Samples, TakeTheirPlacesTogether) {
  StoryOptions options;
  options.scheduler.maxRunning = 4;
  Story story(options);
  story.add('X', {.prompt = 8, .answer = 2});
  EXPECT_EQ(story.step(), "X:0+8!");
  story.addSamples("ABCD", {.prompt = 8, .answer = 2});
  story.add('Y', {.prompt = 8, .answer = 4});
  EXPECT_EQ(story.step(), "X:8+1! Y:0+8!") << "there are places for three";
  EXPECT_EQ(story.step(), "Y:8+1!");
  Status status = story.trySamples("abcde", {.prompt = 8, .answer = 2});
  EXPECT_EQ(status.toString(), "InvalidArgument: 5 samples of a prompt; 1 to 4, the most that may "
                               "run, are allowed");
  story.runOut();
  for (char name : {'A', 'B', 'C', 'D'})
    story.expectAnswer(name, 2);
  story.expectEmpty();
}

// A place that the first one's samples will take is not given away meanwhile.
TEST(Samples, KeepTheirPlacesWhileThePromptIsComputed) {
  StoryOptions options;
  options.scheduler.maxRunning = 3;
  options.scheduler.tokenBudget = 16;
  Story story(options);
  story.addSamples("ABC", {.prompt = 24, .answer = 2});
  story.add('Y', {.prompt = 4, .answer = 2});
  EXPECT_EQ(story.step(), "A:0+16");
  EXPECT_EQ(story.step(), "A:16+7");
  EXPECT_EQ(story.step(), "A:23+1! B:23+1! C:23+1!");
  story.runOut();
  story.expectAnswer('Y', 2);
}

// Eight samples would grow by eight pages; the pool has six. One after the other they fit.
TEST(Samples, ThatDoNotFitTogetherRunAsRequestsLikeOthers) {
  StoryOptions options;
  options.pages = 6;
  options.cache = false;
  Story story(options);
  story.addSamples("ABCDEFGH", {.prompt = 12, .answer = 8});
  story.runOut();
  for (char name : {'A', 'B', 'C', 'D', 'E', 'F', 'G', 'H'})
    story.expectAnswer(name, 8);
  story.expectEmpty();
}

TEST(Samples, AreAllQueuedOrNone) {
  StoryOptions options;
  options.scheduler.maxWaiting = 3;
  Story story(options);
  story.addSamples("AB", {.prompt = 8, .answer = 2});
  Status status = story.trySamples("CD", {.prompt = 8, .answer = 2});
  EXPECT_EQ(status.toString(), "ResourceExhausted: 2 requests wait, and 3 may; try again later");
  EXPECT_EQ(story.scheduler->waiting(), 2u);
  story.runOut();
  story.expectAnswer('B', 2);
}

// Preempted while it computes the prompt, and again when all run: nobody loses a token.
TEST(Samples, SurvivePreemptionAndALostDevice) {
  for (bool swap : {false, true})
    for (uint32_t d : {1u, 2u}) {
      StoryOptions options = flying(d);
      options.hostPages = swap ? 64 : 0;
      options.scheduler.tokenBudget = 16;
      Story story(options);
      story.addSamples("ABC", {.prompt = 40, .answer = 9});
      story.launch();
      EXPECT_TRUE(story.scheduler->preempt(story.handles['A']));
      while (story.scheduler->stepsInFlight())
        story.land();
      story.checkAll();
      while (story.answers['B'].size() < 2) {
        ASSERT_FALSE(story.launch().empty() && !story.scheduler->stepsInFlight());
        story.land();
        story.checkAll();
      }
      EXPECT_EQ(story.scheduler->metrics().forks, 2u);
      EXPECT_TRUE(story.scheduler->preempt(story.handles['B']));
      while (story.scheduler->stepsInFlight())
        story.land();
      story.addSamples("DE", {.prompt = 40, .answer = 5});
      story.launch();
      ASSERT_TRUE(story.device->reopen().ok());
      story.scheduler->deviceLost(true, story.now);
      story.checkAll();
      story.runOut();
      for (char name : {'A', 'B', 'C'})
        story.expectAnswer(name, 9);
      story.expectAnswer('D', 5);
      story.expectAnswer('E', 5);
      story.expectEmpty();
    }
}

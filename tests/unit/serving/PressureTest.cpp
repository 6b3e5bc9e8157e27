// Lack of pages: who is preempted, who waits, who is never kept waiting for ever.
#include "tests/unit/serving/Story.h"

using namespace llmopt::test;

namespace {

/// 10 pages of 4 slots; nothing is cached, so that pages can be counted by hand.
StoryOptions tight(uint32_t pages = 10) {
  StoryOptions options;
  options.pages = pages;
  options.cache = false;
  options.scheduler.growthTokens = 0;
  return options;
}

} // namespace

TEST(Pressure, TheLeastComputedIsPreemptedAndComesBackWithAllItsTokens) {
  Story story(tight(11));
  story.add('A', {.prompt = 16, .answer = 12}); // 4 pages
  story.add('B', {.prompt = 12, .answer = 8});  // 3 pages
  story.add('C', {.prompt = 8, .answer = 8});   // 2 pages
  EXPECT_EQ(story.step(), "A:0+16! B:0+12! C:0+8!");
  // Each wants a page more, two are free: C goes, and its pages serve A and B.
  EXPECT_EQ(story.step(), "A:16+1! B:12+1!");
  EXPECT_EQ(story.scheduler->metrics().preemptions, 1u);
  EXPECT_EQ(story.at('C').state, RequestState::Waiting);
  EXPECT_EQ(story.step(), "A:17+1! B:13+1!") << "C's 9 tokens want 3 pages, 2 are free";
  for (int i = 0; i < 4; ++i)
    story.step();
  EXPECT_EQ(story.step(), "A:22+1! B:18+1!");
  EXPECT_EQ(story.ends, "B:length");
  // Room for C: its prompt and the first token of its answer are computed again.
  EXPECT_EQ(story.step(), "A:23+1! C:0+9!");
  EXPECT_EQ(story.step(), "A:24+1! C:9+1!");
  story.runOut();
  story.expectAnswer('A', 12);
  story.expectAnswer('B', 8);
  story.expectAnswer('C', 8);
  EXPECT_EQ(story.scheduler->metrics().tokensRecomputed, 8u) << "the 9th was never computed";
  story.expectEmpty();
}

// NVIDIA/TensorRT-LLM#9931: pausing a paused request again grew a vector until it threw.
TEST(Pressure, WhoIsPreemptedAlreadyIsNotPreemptedAgain) {
  for (bool swap : {false, true})
    for (uint32_t inFlight : {1u, 2u}) {
      StoryOptions options = tight(20);
      options.hostPages = swap ? 40 : 0;
      options.scheduler.stepsInFlight = inFlight;
      Story story(options);
      story.add('A', {.prompt = 16, .answer = 12});
      story.add('B', {.prompt = 12, .answer = 8});
      story.launch();
      story.launch();
      for (int i = 0; i < 1000; ++i)
        EXPECT_EQ(story.scheduler->preempt(story.handles['B']), i == 0);
      story.checkAll();
      story.land();
      EXPECT_EQ(story.scheduler->metrics().preemptions, 1u);
      for (int i = 0; i < 1000 && story.at('B').state == RequestState::Waiting; ++i)
        EXPECT_FALSE(story.scheduler->preempt(story.handles['B']));
      story.runOut();
      story.expectAnswer('A', 12);
      story.expectAnswer('B', 8);
      story.expectEmpty();
    }
}

TEST(Pressure, TheLowestClassGoesFirst) {
  Story story(tight());
  story.add('A', {.prompt = 8, .answer = 9, .priority = 1});
  story.add('B', {.prompt = 16, .answer = 9, .priority = 2});
  story.add('C', {.prompt = 12, .answer = 9, .priority = 1});
  EXPECT_EQ(story.step(), "A:0+8! B:0+16! C:0+12!");
  EXPECT_EQ(story.step(), "A:8+1! C:12+1!");
  EXPECT_EQ(story.at('B').state, RequestState::Waiting);
  story.runOut();
  for (char name : {'A', 'B', 'C'})
    story.expectAnswer(name, 9);
}

TEST(Pressure, TheOldestOfTheHighestClassIsNeverPreempted) {
  Story story(tight());
  story.add('A', {.prompt = 4, .answer = 36}); // least computed all the time, and the ward
  story.add('B', {.prompt = 16, .answer = 24});
  story.add('C', {.prompt = 16, .answer = 24});
  story.runOut();
  EXPECT_EQ(story.ends.substr(0, 8), "A:length");
  EXPECT_GT(story.scheduler->metrics().preemptions, 0u);
  for (char name : {'A', 'B', 'C'})
    story.expectAnswer(name, name == 'A' ? 36 : 24);
  story.expectEmpty();
}

TEST(Pressure, SwapKeepsWhatWasComputedWhenItIsCheaper) {
  StoryOptions options = tight();
  options.hostPages = 32; // an instant link: always cheaper than computing
  Story story(options);
  story.add('A', {.prompt = 16, .answer = 20});
  story.add('B', {.prompt = 12, .answer = 8});
  story.add('C', {.prompt = 8, .answer = 8});
  story.runOut();
  const ServingMetrics &metrics = story.scheduler->metrics();
  // The link of the cost model copies 2 pages of 512 KB in 52 us, there and back; 8 tokens of
  // an 8B model take 140 us at its default of 20 us a token.
  EXPECT_EQ(metrics.swapOuts, metrics.preemptions);
  EXPECT_EQ(metrics.swapIns, metrics.swapOuts);
  EXPECT_GT(metrics.swapOuts, 0u);
  EXPECT_EQ(metrics.tokensRecomputed, 0u);
  for (char name : {'A', 'B', 'C'})
    story.expectAnswer(name, name == 'A' ? 20 : 8);
  story.expectEmpty();
}

// A33 (sgl-project/sglang#4602, #7411): pages decide, not tokens. 32 free pages of 64 slots;
// 37 of 148 requests stand at a page's end.
TEST(Pressure, NeedIsCountedInPages) {
  StoryOptions options;
  options.pageSize = 64;
  options.pages = 37 * 1 + 111 * 2 + 32;
  options.cache = false;
  options.scheduler.maxRunning = 148;
  options.scheduler.tokenBudget = 16384;
  options.scheduler.maxWaiting = 256;
  options.scheduler.growthTokens = 0;
  Story story(options);
  for (int i = 0; i < 148; ++i)
    ASSERT_TRUE(story.tryAdd(char(i), {.prompt = i < 37 ? 64u : 100u, .answer = 20}).ok());
  story.step();
  EXPECT_EQ(story.scheduler->running(), 148u);
  EXPECT_EQ(story.blocks->pool().count(kv::PageState::Free), 32u);
  // 37 pages are wanted, 32 are there. Each victim stands at a page's end itself (least
  // computed), so it gives a page and wants one less: three of them.
  story.step();
  EXPECT_EQ(story.scheduler->running(), 145u);
  EXPECT_EQ(story.scheduler->metrics().preemptions, 3u);
  story.checkAll();
}

// Beside what runs, two pages are left alone for it to grow by.
TEST(Pressure, WhatRunsHasRoomToGrow) {
  StoryOptions options;
  options.pages = 8;
  options.cache = false;
  options.scheduler.growthTokens = 8; // 2 pages of 4
  Story story(options);
  story.add('A', {.prompt = 8, .answer = 4});
  EXPECT_EQ(story.step(), "A:0+8!");
  story.add('B', {.prompt = 20, .answer = 1}); // 5 pages; 6 are free
  EXPECT_EQ(story.step(), "A:8+1!");
  EXPECT_EQ(story.step(), "A:9+1!");
  EXPECT_EQ(story.step(), "A:10+1!");
  EXPECT_EQ(story.step(), "B:0+20!");
}

TEST(Pressure, OfEqualsTheYoungestGoes) {
  StoryOptions options;
  options.pages = 6;
  options.cache = false;
  options.scheduler.growthTokens = 0;
  Story story(options);
  for (char name : {'A', 'B', 'C'}) // A is the ward
    story.add(name, {.prompt = 7, .answer = 6});
  EXPECT_EQ(story.step(), "A:0+7! B:0+7! C:0+7!");
  EXPECT_EQ(story.step(), "A:7+1! B:7+1! C:7+1!");
  EXPECT_EQ(story.step(), "A:8+1! B:8+1!") << "three pages are wanted, none is free";
  story.runOut();
  story.expectEmpty();
}

// A waiter that fits beside the chunks computed so far, and not beside the whole prompt, waits.
TEST(Pressure, TheRestOfARunningPromptIsPromised) {
  StoryOptions options;
  options.pages = 12;
  options.scheduler.tokenBudget = 24;
  options.scheduler.chunkTokens = 16;
  options.scheduler.growthTokens = 0;
  Story story(options);
  story.add('A', {.prompt = 40, .answer = 1}); // 10 pages of 4
  EXPECT_EQ(story.step(), "A:0+16");
  story.add('B', {.prompt = 12, .answer = 1}); // 3
  EXPECT_EQ(story.step(), "A:16+16") << "4 pages are free, 2 of them A's";
  EXPECT_EQ(story.step(), "A:32+8!");
  EXPECT_EQ(story.step(), "B:0+12!");
  EXPECT_EQ(story.scheduler->metrics().preemptions, 0u);
}

// A22 (vllm-project/vllm#31731, p#33499, p#35852): the policy is to pass a waiter that does not
// fit, up to `lookahead`; after `ageSteps` freed pages are kept for it.
TEST(Pressure, SmallRequestsPassTheLargeOneUntilItIsAged) {
  StoryOptions options = tight(12);
  options.scheduler.ageSteps = 20;
  Story story(options);
  story.add('0', {.prompt = 5, .answer = 4}); // 2 pages
  EXPECT_EQ(story.step(), "0:0+5!");
  story.add('X', {.prompt = 46, .answer = 1}); // all 12 pages
  std::string order = "ABCDEFGHIJKLMNOPQRSTUVWYZabcdefghijklmnopqrstuvwyz";
  for (char name : order) { // an endless stream of small ones
    story.add(name, {.prompt = 4, .answer = 3});
    story.step();
    if (story.endStep.contains('X'))
      break;
  }
  ASSERT_TRUE(story.endStep.contains('X'));
  EXPECT_TRUE(story.endStep.contains('A')) << "small ones ran before it was aged";
  // Aged at step 21; whoever runs then has at most 3 steps to go.
  EXPECT_LE(story.endStep['X'], 21u + 3 + 1);
  story.runOut();
  story.expectEmpty();
}

// A46 (vllm-project/vllm#45388), in our terms: two holders of pages, a head of the queue that
// wants more than is free. Holders can always move or be stripped.
TEST(Pressure, HoldersOfPagesAndAHeadThatWantsMoreThanIsFree) {
  StoryOptions options;
  options.pageSize = 16;
  options.pages = 2048;
  options.maxTokens = 40000;
  options.scheduler.maxLength = 32768;
  options.scheduler.tokenBudget = 4096;
  Story story(options);
  story.add('P', {.prompt = 8192, .answer = 1, .stream = 1});
  story.add('Q', {.prompt = 11776, .answer = 1, .stream = 2});
  story.runOut(false);
  story.add('A', {.prompt = 25596, .answer = 4, .stream = 1}); // hits 512 pages, wants 1,088
  story.add('B', {.prompt = 19196, .answer = 4, .stream = 2}); // could hit 736 pages
  story.runOut(false);
  EXPECT_EQ(story.ends, "P:length Q:length A:length B:length");
  // Waiters hold nothing: B's prefix was there to be evicted for A.
  EXPECT_GE(story.scheduler->metrics().prefixHits, 8192u);
  story.expectEmpty();
}

// A34 (sgl-project/sglang p#36926, p#1858): abort at every boundary of a prefill of 4 chunks.
TEST(Pressure, AbortAtEachBoundaryGivesAllPagesBackOnceAndInsertsNothingHalfWritten) {
  for (uint32_t inFlight : {1u, 2u, 4u})
    for (int boundary = 0; boundary < 12; ++boundary) {
      StoryOptions options;
      options.scheduler.tokenBudget = 16;
      options.scheduler.stepsInFlight = inFlight;
      Story story(options);
      story.add('A', {.prompt = 64, .answer = 4, .stream = 3});
      // The events of a run: launches while fewer than D are in flight, else landings.
      int event = 0;
      uint32_t landed = 0;
      for (; event < boundary && !story.scheduler->idle(); ++event) {
        if (!story.launch().empty())
          continue;
        story.land();
        ++landed;
      }
      if (story.scheduler->idle())
        break;
      story.abort('A');
      story.checkAll();
      EXPECT_FALSE(story.scheduler->abort(story.handles['A'], story.now)) << "twice";
      story.runOut();
      story.expectEmpty();
      EXPECT_EQ(story.ends, "A:abort");
      // Only chunks that had been computed when it was aborted can be hit.
      story.add('B', {.prompt = 64, .answer = 1, .stream = 3});
      std::string row = story.step();
      uint32_t computed = std::min(16 * landed, 63u);
      EXPECT_EQ(row, fmt::format("B:{}+{}{}", computed, std::min(16u, 64 - computed),
                                 64 - computed <= 16 ? "!" : ""));
      story.runOut();
      story.expectAnswer('B', 1);
    }
}

// A lost device: pages, cache and steps in flight are gone; requests begin anew.
TEST(Pressure, ALostDeviceCostsTimeAndNoToken) {
  for (uint32_t inFlight : {1u, 4u}) {
    StoryOptions options;
    options.scheduler.stepsInFlight = inFlight;
    Story story(options);
    story.add('A', {.prompt = 12, .answer = 12});
    story.add('B', {.prompt = 8, .answer = 7});
    for (int i = 0; i < 6; ++i)
      if (story.launch().empty())
        story.land();
    ASSERT_TRUE(story.device->reopen().ok());
    story.scheduler->deviceLost(true, story.now);
    story.expectEmpty();
    EXPECT_EQ(story.blocks->pool().count(kv::PageState::Cached), 0u);
    // The new device has tables of version 0: the first step asks for a snapshot.
    std::span<const uint8_t> bytes = story.scheduler->schedule(story.now);
    EXPECT_EQ(story.device->submit(bytes, story.now).code(), StatusCode::Unavailable);
    std::vector<uint64_t> tables = story.scheduler->snapshot();
    ASSERT_TRUE(story.device
                    ->restore({reinterpret_cast<const uint8_t *>(tables.data()),
                               tables.size() * sizeof(uint64_t)})
                    .ok());
    ASSERT_TRUE(story.device->submit(bytes, story.now).ok());
    story.land();
    story.runOut();
    story.expectAnswer('A', 12);
    story.expectAnswer('B', 7);
    story.expectEmpty();
  }
}

TEST(Pressure, ALostDeviceEndsRequestsWhereThatIsThePolicy) {
  Story story;
  story.add('A', {.prompt = 12, .answer = 12});
  story.step();
  story.add('B', {.prompt = 8, .answer = 2}); // waits: it had nothing on the device
  ASSERT_TRUE(story.device->reopen().ok());
  story.scheduler->deviceLost(false, story.now);
  EXPECT_EQ(story.ends, "A:device_failure");
  EXPECT_EQ(story.scheduler->waiting(), 1u);
  story.add('C', {.prompt = 12, .answer = 3});
  story.runOut();
  story.expectAnswer('B', 2);
  story.expectAnswer('C', 3);
  story.expectEmpty();
}

// A failed step: its rows' requests end, nothing of it is hashed, others go on.
TEST(Pressure, AFailedStepEndsItsRequestsAndLeavesNoTrace) {
  Story story;
  story.add('A', {.prompt = 16, .answer = 3, .stream = 7});
  std::span<const uint8_t> bytes = story.scheduler->schedule(0);
  ASSERT_FALSE(bytes.empty());
  StepResult failed;
  failed.step = StepInput::parse(bytes)->header().stepId;
  failed.status = makeStatus(StatusCode::Internal, "launch failed");
  ASSERT_TRUE(story.scheduler->complete(failed, 0).ok());
  EXPECT_EQ(story.ends, "A:device_failure");
  story.expectEmpty();
  ASSERT_TRUE(story.device->reopen().ok());
  story.add('B', {.prompt = 16, .answer = 1, .stream = 7});
  bytes = story.scheduler->schedule(0);
  EXPECT_EQ(StepInput::parse(bytes)->rows()[0].baseLength, 0u) << "a page of a failed step was hit";
}

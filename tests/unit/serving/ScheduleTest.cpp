// The order of a step, told as stories.
#include "tests/unit/serving/Story.h"

using namespace llmopt::test;

// A37 (sgl-project/sglang#32549): prefills never keep a running request from its token.
TEST(Schedule, DecodesComeFirstAndPrefillsAreCutIntoWhatIsLeft) {
  StoryOptions options;
  options.scheduler.tokenBudget = 16;
  Story story(options);
  story.add('A', {.prompt = 8, .answer = 6});
  EXPECT_EQ(story.step(), "A:0+8!");
  story.add('B', {.prompt = 40, .answer = 2});
  EXPECT_EQ(story.step(), "A:8+1! B:0+15");
  EXPECT_EQ(story.step(), "A:9+1! B:15+15");
  EXPECT_EQ(story.step(), "A:10+1! B:30+10!");
  EXPECT_EQ(story.step(), "A:11+1! B:40+1!");
  EXPECT_EQ(story.ends, "B:length");
  EXPECT_EQ(story.step(), "A:12+1!");
  EXPECT_EQ(story.ends, "B:length A:length");
  EXPECT_EQ(story.step(), "");
  story.expectAnswer('A', 6);
  story.expectAnswer('B', 2);
  story.expectEmpty();
}

TEST(Schedule, RunningPrefillsGoOnBeforeWaitersAreAdmitted) {
  StoryOptions options;
  options.scheduler.tokenBudget = 16;
  options.scheduler.chunkTokens = 12;
  Story story(options);
  story.add('A', {.prompt = 30, .answer = 1});
  story.add('B', {.prompt = 10, .answer = 1});
  EXPECT_EQ(story.step(), "A:0+12 B:0+4");
  EXPECT_EQ(story.step(), "A:12+12 B:4+4");
  EXPECT_EQ(story.step(), "A:24+6! B:8+2!");
  EXPECT_EQ(story.ends, "A:length B:length");
}

// A7 (vllm-project/vllm p#11186, p#7753): one token is run, whatever is cached.
TEST(Schedule, AWhollyCachedPromptRunsItsLastToken) {
  Story story;
  story.add('A', {.prompt = 16, .answer = 1, .stream = 5});
  EXPECT_EQ(story.step(), "A:0+16!");
  story.add('B', {.prompt = 16, .answer = 1, .stream = 5});
  EXPECT_EQ(story.step(), "B:15+1!");
  story.add('C', {.prompt = 33, .answer = 1, .stream = 5});
  EXPECT_EQ(story.step(), "C:16+17!");
  story.expectEmpty();
}

// A19 (vllm-project/vllm p#29387): what another request of the step is about to write is no
// hit.
TEST(Schedule, RequestsOfOneStepDoNotHitEachOther) {
  StoryOptions options;
  options.pageSize = 1;
  Story story(options);
  story.add('A', {.prompt = 4, .answer = 1, .stream = 5});
  story.add('B', {.prompt = 4, .answer = 1, .stream = 5});
  EXPECT_EQ(story.step(), "A:0+4! B:0+4!");
  story.add('C', {.prompt = 4, .answer = 1, .stream = 5});
  EXPECT_EQ(story.step(), "C:3+1!");
}

TEST(Schedule, PromptLogprobsRunTheWholePromptAndWantAllLogits) {
  Story story;
  story.add('A', {.prompt = 8, .answer = 1, .stream = 5});
  EXPECT_EQ(story.step(), "A:0+8!");
  story.add('B', {.prompt = 8, .answer = 1, .stream = 5, .logprobs = true});
  EXPECT_EQ(story.step(), "B:0+8!");
  auto input = StepInput::parse(story.lastBytes);
  ASSERT_TRUE(input.ok());
  EXPECT_EQ(input->logits().size(), 8u);
}

// A4 (vllm-project/vllm#39734, #35541): permanent lack is refused at once.
TEST(Schedule, WhatThePoolCanNeverHoldIsRefusedAndOthersFinish) {
  StoryOptions options;
  options.pages = 8;
  options.pageSize = 16;
  Story story(options);
  auto large = story.tryAdd('X', {.prompt = 200, .answer = 1});
  EXPECT_EQ(large.status().code(), StatusCode::ResourceExhausted);
  EXPECT_EQ(large.status().message(),
            "a prompt of 200 tokens and an answer of 1 would not fit into the empty pool of 8 "
            "pages; shorten them, or serve with more pages");
  // The prompt fits, with its answer it does not: 128 slots hold 100 + 29 - 1 tokens.
  EXPECT_FALSE(story.tryAdd('X', {.prompt = 100, .answer = 30}).ok());
  story.add('Y', {.prompt = 100, .answer = 29});
  for (char name : {'A', 'B', 'C', 'D', 'E'})
    story.add(name, {.prompt = 10, .answer = 3});
  story.runOut();
  for (char name : {'A', 'B', 'C', 'D', 'E'})
    story.expectAnswer(name, 3);
  story.expectAnswer('Y', 29);
  EXPECT_EQ(story.scheduler->metrics().rejected[size_t(RejectReason::LargerThanPool)], 2u);
  story.expectEmpty();
}

TEST(Schedule, EachRefusalSaysWhyAndLeavesTheSchedulerUsable) {
  StoryOptions options;
  options.scheduler.maxWaiting = 1;
  options.scheduler.maxLength = 100;
  options.pages = 25;
  Story story(options);
  story.now = 1000;
  auto refusal = [&](const Ask &ask) { return story.tryAdd('X', ask).status().message(); };
  EXPECT_EQ(refusal({.prompt = 0}), "the prompt is empty; at least one token is needed");
  EXPECT_EQ(refusal({.prompt = 100, .answer = 1}),
            "a prompt of 100 tokens and an answer of 1; both together may have 100; shorten one "
            "of them");
  EXPECT_EQ(refusal({.prompt = 1, .answer = 0, .priority = 3}),
            "an answer of 0 tokens, priority 3, 0 stop tokens; at least 1 token, priorities 0 to 7 "
            "and at most 8 stop tokens are allowed");
  EXPECT_EQ(refusal({.prompt = 1, .deadline = 400}),
            "the deadline was 600 ns ago; give a later one");
  EXPECT_EQ(refusal({.prompt = 1, .stream = 214749}),
            "the prompt has a token of 2^31 or more; smaller ones are allowed");
  const ServingMetrics &metrics = story.scheduler->metrics();
  EXPECT_EQ(metrics.rejected[size_t(RejectReason::EmptyPrompt)], 1u);
  EXPECT_EQ(metrics.rejected[size_t(RejectReason::TooLong)], 1u);
  EXPECT_EQ(metrics.rejected[size_t(RejectReason::NoTime)], 1u);
  story.runOut();
  story.add('A', {});
  EXPECT_EQ(refusal({}), "1 requests wait, and 1 may; try again later");
  story.runOut();
  story.expectAnswer('A', 4);
}

TEST(Schedule, AtMostMAdaptersRunAndOthersPassTheOneThatWaits) {
  StoryOptions options;
  options.scheduler.maxAdapters = 2;
  Story story(options);
  story.add('A', {.prompt = 4, .answer = 3, .adapter = 1});
  story.add('B', {.prompt = 4, .answer = 2, .adapter = 2});
  story.add('C', {.prompt = 4, .answer = 1, .adapter = 3});
  story.add('D', {.prompt = 4, .answer = 1, .adapter = 2});
  story.add('E', {.prompt = 4, .answer = 1});
  EXPECT_EQ(story.step(), "A:0+4! B:0+4! D:0+4! E:0+4!");
  EXPECT_EQ(story.step(), "A:4+1! B:4+1!");
  EXPECT_EQ(story.step(), "A:5+1! C:0+4!");
}

TEST(Schedule, ADeadlineEndsWaitersAndRunners) {
  StoryOptions options;
  options.scheduler.maxRunning = 1;
  Story story(options);
  story.add('A', {.prompt = 8, .answer = 100, .deadline = 1'000'000'000});
  story.add('B', {.prompt = 8, .answer = 1, .deadline = 500'000'000});
  EXPECT_EQ(story.step(), "A:0+8!");
  story.now = 500'000'000;
  EXPECT_EQ(story.step(), "A:8+1!");
  EXPECT_EQ(story.ends, "B:deadline");
  story.now = 1'000'000'000;
  EXPECT_EQ(story.step(), "");
  EXPECT_EQ(story.ends, "B:deadline A:deadline");
  story.expectEmpty();
}

TEST(Schedule, PoliciesOrderTheQueue) {
  auto order = [](PolicyKind policy) {
    StoryOptions options;
    options.scheduler.policy = policy;
    options.scheduler.maxRunning = 1;
    Story story(options);
    story.add('0', {.prompt = 16, .answer = 1, .stream = 9});
    story.step();
    story.add('A', {.prompt = 40, .answer = 1, .priority = 2});
    story.add('B', {.prompt = 30, .answer = 1, .priority = 1, .stream = 9}); // 16 tokens cached
    story.add('C', {.prompt = 4, .answer = 9, .priority = 0});
    story.runOut();
    return story.ends;
  };
  EXPECT_EQ(order(PolicyKind::Fcfs), "0:length A:length B:length C:length");
  EXPECT_EQ(order(PolicyKind::Priority), "0:length C:length B:length A:length");
  EXPECT_EQ(order(PolicyKind::LongestPrefix), "0:length B:length A:length C:length");
  // Remaining: A 41, B 14 + 1, C 13.
  EXPECT_EQ(order(PolicyKind::ShortestRemaining), "0:length C:length B:length A:length");
}

TEST(Schedule, AStopTokenEndsTheAnswerAndIsGivenOut) {
  Story story;
  story.add('A', {.prompt = 4, .answer = 10, .stops = {Story::answerToken('A', 2)}});
  story.runOut();
  story.expectAnswer('A', 3);
  EXPECT_EQ(story.ends, "A:stop");
  story.expectEmpty();
}

TEST(Schedule, OptionsOutOfBoundsAreRefused) {
  kv::ManagerOptions manager;
  manager.groups = {llama8b(16).groups[0].group};
  manager.budgetBytes = kv::ManagerOptions::bytesForPages(manager.groups, 10);
  auto blocks = kv::BlockManager::create(manager);
  ASSERT_TRUE(blocks.ok());
  struct : RequestListener {
    void onTokens(RequestHandle, std::span<const kv::Token>, int64_t) override {}
    void onFinish(RequestHandle, FinishReason, int64_t) override {}
  } listener;
  SchedulerOptions options;
  options.tokenBudget = 256;
  EXPECT_EQ(Scheduler::create(options, **blocks, listener).status().message(),
            "a budget of 256 tokens a step; 256 running requests with 0 drafts each need more than "
            "256; raise the budget or lower the number of requests");
  options = {};
  options.stepsInFlight = 2;
  EXPECT_EQ(Scheduler::create(options, **blocks, listener).status().code(),
            StatusCode::InvalidArgument);
  options = {};
  options.deviceDrafts = {0};
  EXPECT_EQ(Scheduler::create(options, **blocks, listener).status().message(),
            "draft 0 has parent 0; -1 or a draft before it is allowed");
}

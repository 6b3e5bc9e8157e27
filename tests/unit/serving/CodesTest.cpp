// Each reason for which a request is refused or ends, provoked; after each the same scheduler
// serves another request (docs/status-codes.md).
#include "runtime/engine/Engine.h"
#include "tests/unit/serving/Story.h"

using namespace llmopt::test;

namespace {

StoryOptions narrow() {
  StoryOptions options;
  options.pages = 25;
  options.scheduler.maxWaiting = 2;
  options.scheduler.maxLength = 120;
  return options;
}

/// A request that nothing is wrong with gets its answer.
void expectServes(Story &story, char name) {
  story.add(name, {.prompt = 9, .answer = 3});
  story.runOut();
  story.expectAnswer(name, 3);
  story.expectEmpty();
}

/// What is refused for the reason, and the code that says so.
std::pair<Ask, StatusCode> refusedFor(RejectReason reason) {
  switch (reason) {
  case RejectReason::EmptyPrompt:
    return {{.prompt = 0}, StatusCode::InvalidArgument};
  case RejectReason::TooLong:
    return {{.prompt = 117, .answer = 4}, StatusCode::InvalidArgument};
  case RejectReason::LargerThanPool: // 25 pages of 4
    return {{.prompt = 101, .answer = 1}, StatusCode::ResourceExhausted};
  case RejectReason::QueueFull:
    return {{}, StatusCode::ResourceExhausted};
  case RejectReason::NoTime:
    return {{.deadline = 1}, StatusCode::InvalidArgument};
  case RejectReason::Invalid:
    return {{.priority = kPriorities}, StatusCode::InvalidArgument};
  }
  return {};
}

} // namespace

TEST(Codes, EachRefusalIsProvokedAndTheNextRequestServed) {
  Story story(narrow());
  story.now = 1000;
  for (size_t i = 0; i < kRejectReasons; ++i) {
    auto [ask, code] = refusedFor(RejectReason(i));
    if (RejectReason(i) == RejectReason::QueueFull)
      story.addSamples("YZ", {.prompt = 4, .answer = 1});
    StatusOr<RequestHandle> refused = story.tryAdd('X', ask);
    EXPECT_EQ(refused.status().code(), code) << toString(RejectReason(i));
    EXPECT_FALSE(refused.status().message().empty());
    for (size_t other = 0; other < kRejectReasons; ++other)
      EXPECT_EQ(story.scheduler->metrics().rejected[other], other <= i ? 1u : 0u)
          << "counted as " << toString(RejectReason(other));
    story.runOut(); // those that fill the queue
    expectServes(story, char('a' + i));
  }
}

// "Try again later" would be wrong: two may wait, so three never can.
TEST(Codes, MoreSamplesThanMayEverWaitAreRefusedForGood) {
  Story story(narrow());
  EXPECT_EQ(story.trySamples("XYZ", {.prompt = 4, .answer = 1}).toString(),
            "InvalidArgument: 3 samples of a prompt; 1 to 2, the most that may wait, are allowed");
  EXPECT_EQ(story.scheduler->metrics().rejected[size_t(RejectReason::Invalid)], 1u);
  expectServes(story, 'A');
}

TEST(Codes, EachEndIsProvokedAndTheNextRequestServed) {
  Story story;
  for (size_t i = 0; i < kFinishReasons; ++i) {
    FinishReason reason = FinishReason(i);
    uint64_t before = story.scheduler->metrics().finished[i];
    char name = char('A' + i);
    Ask ask{.prompt = 8, .answer = 10};
    if (reason == FinishReason::Stop)
      ask.stops = {Story::answerToken(name, 2)};
    if (reason == FinishReason::Deadline)
      ask.deadline = story.now + 1;
    story.add(name, ask);
    if (reason == FinishReason::DeviceFailure)
      story.adjust = [](StepResult &result) {
        for (RowResult &row : result.rows)
          row = {row.request, row.generation, 0, 0, 0, true};
      };
    story.step();
    story.adjust = nullptr;
    if (reason == FinishReason::Abort)
      story.abort(name);
    story.runOut();
    EXPECT_TRUE(story.ends.ends_with(fmt::format("{}:{}", name, toString(reason)))) << story.ends;
    EXPECT_EQ(story.scheduler->metrics().finished[i], before + 1) << toString(reason);
    expectServes(story, char('a' + i));
  }
}

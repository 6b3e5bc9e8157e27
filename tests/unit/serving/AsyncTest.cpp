// Several steps in flight: the host knows bounds, and what it finds out late is discarded.
#include "tests/unit/serving/ReusedSlot.h"
#include "tests/unit/serving/Story.h"

using namespace llmopt::test;

namespace {

StoryOptions flying(uint32_t steps, uint32_t drafts = 0, double acceptance = 0) {
  StoryOptions options;
  options.scheduler.stepsInFlight = steps;
  for (uint32_t i = 0; i < drafts; ++i)
    options.scheduler.deviceDrafts.push_back(int16_t(i) - 1);
  options.acceptance = acceptance;
  return options;
}

/// Answers when told to.
struct Grammar : TokenFilter {
  bool ready = true;
  std::vector<size_t> asked;
  bool prepare(RequestHandle, std::span<const kv::Token> tokens) override {
    asked.push_back(tokens.size());
    return ready;
  }
  uint32_t allowedDrafts(RequestHandle, std::span<const kv::Token> drafts) override {
    return uint32_t(drafts.size());
  }
};

} // namespace

TEST(Async, ARowBehindOneInFlightTakesTokenAndLengthFromIt) {
  Story story(flying(2));
  story.add('A', {.prompt = 8, .answer = 4});
  EXPECT_EQ(story.launch(), "A:0+8!");
  EXPECT_EQ(story.launch(), "A:?8+1!");
  auto input = StepInput::parse(story.lastBytes);
  ASSERT_TRUE(input.ok());
  ASSERT_EQ(input->references().size(), 1u);
  const step::Row &row = input->rows()[0];
  EXPECT_EQ(row.predecessorAgo, 1u);
  EXPECT_EQ(input->references()[0].step, input->predecessorStep(row));
  EXPECT_EQ(input->references()[0].index, 0u);
  EXPECT_EQ(input->tokens()[0].id, -1);
  EXPECT_EQ(story.launch(), "") << "two are in flight";
  story.land();
  EXPECT_EQ(story.launch(), "A:?9+1!");
  story.runOut();
  story.expectAnswer('A', 4);
  story.expectEmpty();
}

TEST(Async, ChunksBehindChunksHaveExactLengths) {
  StoryOptions options = flying(4);
  options.scheduler.tokenBudget = 16;
  Story story(options);
  story.add('A', {.prompt = 40, .answer = 2});
  EXPECT_EQ(story.launch(), "A:0+16");
  EXPECT_EQ(story.launch(), "A:16+16");
  EXPECT_EQ(story.launch(), "A:32+8!");
  EXPECT_EQ(story.launch(), "A:?40+1!");
  EXPECT_EQ(story.launch(), "");
  story.runOut();
  story.expectAnswer('A', 2);
}

TEST(Async, NoRowIsLaunchedBeyondTheAnswer) {
  Story story(flying(4));
  story.add('A', {.prompt = 8, .answer = 2});
  EXPECT_EQ(story.launch(), "A:0+8!");
  EXPECT_EQ(story.launch(), "A:?8+1!");
  EXPECT_EQ(story.launch(), "");
  story.runOut();
  EXPECT_EQ(story.scheduler->metrics().discardedRows, 0u);
}

TEST(Async, AStopFoundLateDiscardsTheRowsBehindIt) {
  for (uint32_t d : {1u, 2u, 4u}) {
    Story story(flying(d));
    story.add('A', {.prompt = 8, .answer = 30, .stops = {Story::answerToken('A', 5)}});
    story.add('B', {.prompt = 8, .answer = 30});
    story.runOut();
    story.expectAnswer('A', 6);
    story.expectAnswer('B', 30);
    EXPECT_EQ(story.ends, "A:stop B:length");
    EXPECT_EQ(story.scheduler->metrics().discardedRows, d - 1);
    story.expectEmpty();
  }
}

TEST(Async, PagesOfAnEndedRequestServeOthersOnlyAfterItsLastRow) {
  StoryOptions options = flying(2);
  options.pages = 5;
  options.cache = false;
  Story story(options);
  story.add('A', {.prompt = 14, .answer = 3});
  EXPECT_EQ(story.launch(), "A:0+14!");
  EXPECT_EQ(story.launch(), "A:?14+1!");
  story.abort('A');
  story.add('B', {.prompt = 16, .answer = 2});
  story.land();
  EXPECT_EQ(story.launch(), "") << "a step that may write A's pages is unfinished";
  story.land();
  EXPECT_EQ(story.launch(), "B:0+16!");
  story.runOut();
  story.expectAnswer('B', 2);
}

// vllm-project/vllm p#28787: async steps with chunked prefill and preemption lost output ids.
TEST(Async, PreemptionWaitsForRowsInFlightAndKeepsTheirTokens) {
  for (uint32_t d : {2u, 4u}) {
    StoryOptions options = flying(d);
    options.pages = 12;
    options.cache = false;
    options.scheduler.tokenBudget = 16;
    Story story(options);
    story.add('A', {.prompt = 16, .answer = 24});
    story.add('B', {.prompt = 12, .answer = 20});
    story.add('C', {.prompt = 8, .answer = 20});
    story.runOut();
    EXPECT_GT(story.scheduler->metrics().preemptions, 0u);
    for (char name : {'A', 'B', 'C'})
      story.expectAnswer(name, name == 'A' ? 24 : 20);
    story.expectEmpty();
  }
}

TEST(Async, VerifyRowsBehindVerifyRowsEqualSequentialDecoding) {
  for (uint32_t d : {1u, 2u, 4u})
    for (uint32_t k : {1u, 3u})
      for (double acceptance : {0.0, 0.5, 1.0}) {
        Story story(flying(d, k, acceptance));
        story.add('A', {.prompt = 7, .answer = 31, .seed = 1});
        story.add('B', {.prompt = 21, .answer = 17, .seed = 2});
        story.runOut();
        story.expectAnswer('A', 31);
        story.expectAnswer('B', 17);
        const ServingMetrics &metrics = story.scheduler->metrics();
        if (acceptance == 0)
          EXPECT_EQ(metrics.draftsAccepted, 0u);
        // A23 (vllm-project/vllm p#16370): slots for all drafts were there, at every place of
        // a page. The last drafts of an answer are cut by its length.
        if (acceptance == 1)
          EXPECT_GE(metrics.draftsAccepted + 2 * d * k, metrics.draftsProposed);
        story.expectEmpty();
      }
}

TEST(Async, TheSecondDraftRowHasBoundsOnly) {
  Story story(flying(2, 2, 1.0));
  story.add('A', {.prompt = 8, .answer = 20});
  EXPECT_EQ(story.launch(), "A:0+8!");
  EXPECT_EQ(story.launch(), "A:?8+1~2!");
  story.land();
  EXPECT_EQ(story.launch(), "A:?9+1~2!"); // 9 at least: one token and 0 to 2 drafts before it
  auto input = StepInput::parse(story.lastBytes);
  EXPECT_EQ(input->rows()[0].lengthBound, 14u);
  EXPECT_EQ(input->rows()[0].phase, step::Phase::Verify);
  story.runOut();
  story.expectAnswer('A', 20);
}

TEST(Async, ATreeOfDraftsIsWrittenWithDepthsAndItsBranchMovesLater) {
  for (uint32_t d : {1u, 2u}) {
    StoryOptions options = flying(d);
    options.scheduler.deviceDrafts = {-1, -1, 0, 1, 1}; // two first drafts, three second ones
    options.acceptance = 0.5;
    Story story(options);
    story.add('A', {.prompt = 8, .answer = 40, .seed = 3});
    story.launch();
    if (d == 1)
      story.land();
    story.launch();
    auto input = StepInput::parse(story.lastBytes);
    ASSERT_TRUE(input.ok()) << input.status().toString();
    std::vector<uint32_t> depths;
    for (const step::Row &row : input->rows())
      for (uint32_t i = 0; i < row.tokenCount; ++i)
        depths.push_back(input->depthOf(row, i));
    EXPECT_EQ(depths, (std::vector<uint32_t>{0, 1, 1, 2, 2, 2}));
    story.runOut();
    story.expectAnswer('A', 40);
    story.expectEmpty();
  }
}

TEST(Async, HostDraftsComeOnlyWhenNoRowIsInFlight) {
  struct Source : DraftSource {
    uint32_t propose(RequestHandle, std::span<const kv::Token> tokens, std::span<kv::Token> drafts,
                     std::span<int16_t> parents) override {
      for (size_t i = 0; i < drafts.size(); ++i) {
        drafts[i] = tokens.back() + 1 + kv::Token(i);
        parents[i] = int16_t(i) - 1;
      }
      return uint32_t(drafts.size());
    }
  } source;
  StoryOptions options;
  options.scheduler.draftSource = &source;
  options.scheduler.hostDrafts = 2;
  options.acceptance = 1;
  Story story(options);
  story.add('A', {.prompt = 8, .answer = 8});
  EXPECT_EQ(story.step(), "A:0+8!");
  EXPECT_EQ(story.step(), "A:8+1~2!");
  auto input = StepInput::parse(story.lastBytes);
  EXPECT_EQ(input->tokens()[1].id, int32_t(Story::answerToken('A', 1)));
  EXPECT_TRUE(input->references().empty());
  EXPECT_EQ(story.step(), "A:11+1~2!");
  EXPECT_EQ(story.step(), "A:14+1!") << "one token is left";
  story.expectAnswer('A', 8);
}

TEST(Async, ALateFilterStallsItsOwnRowOnly) {
  for (uint32_t d : {1u, 4u}) {
    Grammar grammar;
    Story story(flying(d));
    story.add('A', {.prompt = 8, .answer = 3, .filter = &grammar});
    story.add('B', {.prompt = 8, .answer = 6});
    EXPECT_EQ(story.launch(), "A:0+8! B:0+8!");
    if (d > 1)
      EXPECT_EQ(story.launch(), "B:?8+1!") << "A's next token waits for the mask after this one";
    grammar.ready = false;
    story.land();
    for (int i = 0; i < 3; ++i) {
      std::string row = story.launch();
      EXPECT_EQ(row.find('A'), std::string::npos) << row;
      story.land();
    }
    grammar.ready = true;
    EXPECT_TRUE(story.scheduler->filterReady(story.handles['A']));
    EXPECT_EQ(story.launch().substr(0, 6), "A:8+1!");
    story.runOut();
    story.expectAnswer('A', 3);
    story.expectAnswer('B', 6);
    EXPECT_EQ(grammar.asked, (std::vector<size_t>{8, 9, 10})) << "once after each token";
  }
}

TEST(Async, ResultsThatBreakTheContractAreRefusedAndChangeNothing) {
  Story story;
  story.add('A', {.prompt = 8, .answer = 3});
  std::span<const uint8_t> bytes = story.scheduler->schedule(0);
  const step::Row row = StepInput::parse(bytes)->rows()[0];
  StepResult result;
  result.step = StepInput::parse(bytes)->header().stepId;
  auto refused = [&] {
    Status status = story.scheduler->complete(result, 0);
    EXPECT_EQ(status.code(), StatusCode::Internal);
    story.checkAll();
  };
  refused(); // no rows
  result.rows.push_back({row.request, row.generation, 0, 1, 0, false});
  refused(); // its token is not there
  result.tokens.push_back(5);
  result.rows[0].generation += 1;
  refused(); // another request
  result.rows[0].generation -= 1;
  result.step += 1;
  refused(); // another step
  result.step -= 1;
  result.rows[0].tokenCount = 0;
  refused(); // a row that samples yields one
  result.rows[0].tokenCount = 1;
  EXPECT_TRUE(story.scheduler->complete(result, 0).ok());
  EXPECT_EQ(story.answers['A'], std::vector<kv::Token>{5});
  story.abort('A'); // the device has never heard of it
  story.add('B', {.prompt = 8, .answer = 3});
  story.runOut();
  story.expectAnswer('B', 3);
  story.expectEmpty();
}

TEST(Async, RowsOfAnEndedRequestAreNotThoseOfWhoHasItsSlotNow) { tellOfAReusedSlot(); }

// Requests are steady for long where pages are large: whenever that ends, all tokens since are
// known.
TEST(Async, TokensOfLongSteadyRunsAreKept) {
  for (uint32_t inFlight : {1u, 2u, 7u, 16u})
    for (uint32_t steps : {15u, 16u, 17u, 40u, 63u}) {
      StoryOptions options;
      options.pageSize = 128;
      options.cache = steps % 2; // nothing is looked up then: all tokens are computed again
      options.scheduler.stepsInFlight = inFlight;
      Story story(options);
      for (char name : {'A', 'B', 'C'})
        story.add(name, {.prompt = 5, .answer = 300});
      for (uint32_t i = 0; i < steps; ++i) {
        while (!story.launch().empty())
          ;
        story.land();
        story.checkAll();
      }
      EXPECT_TRUE(story.scheduler->preempt(story.handles['B']));
      story.runOut();
      for (char name : {'A', 'B', 'C'})
        story.expectAnswer(name, 300);
      story.expectEmpty();
    }
}

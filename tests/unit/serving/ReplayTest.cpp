// Traces through the whole runtime. The replay itself fails when a token differs from the
// trace's, an invariant is broken, or a page is held at the end.
#include "runtime/replay/Replay.h"
#include "tests/support/TestData.h"
#include "tests/unit/serving/TraceFiles.h"

using namespace llmopt;
using namespace llmopt::runtime;

namespace {

ReplayOptions optionsFor(uint64_t pages, uint32_t pageSize) {
  ReplayOptions options;
  options.model = llama8b(pageSize);
  options.pages = pages;
  options.scheduler.maxLength = options.scheduler.maxWaiting = 0;
  return options;
}

StatusOr<ReplayReport> replayFile(const char *name, const ReplayOptions &options,
                                  uint64_t limit = 0) {
  TraceOptions reading;
  reading.limit = limit;
  StatusOr<Trace> trace = readTrace(test::dataFolder() / "traces" / name, reading);
  if (!trace)
    return trace.status();
  return replay(*trace, options);
}

ModelFacts withWindow(uint32_t pageSize, uint32_t window) {
  ModelFacts model = llama8b(pageSize);
  model.groups.insert(model.groups.begin(), model.groups[0]);
  model.groups[0].group.kind = kv::GroupKind::Window;
  model.groups[0].group.window = window;
  return model;
}

using Replays = test::TraceFiles;

} // namespace

// The figures of the issue: full pages found, one request at a time, nothing ever evicted.
TEST(Replay, CountsTheFullPagesThatTheTracesShare) {
  LLMOPT_NEEDS_TEST_DATA();
  struct Case {
    const char *name;
    uint32_t pageSize;
    uint64_t pages, hits, queries;
  };
  const Case cases[] = {
      {"mooncake_conversation_first5000.jsonl.gz", 512, 200'000, 43'282, 124'979},
      {"mooncake_synthetic_all3993.jsonl.gz", 512, 200'000, 77'740, 117'888},
      {"mooncake_conversation_first5000.jsonl.gz", 16, 4'500'000, 1'385'665, 4'080'885},
      {"mooncake_synthetic_all3993.jsonl.gz", 16, 4'500'000, 2'490'686, 3'822'794},
  };
  for (const Case &each : cases) {
    ReplayOptions options = optionsFor(each.pages, each.pageSize);
    options.oneByOne = true;
    auto report = replayFile(each.name, options);
    ASSERT_TRUE(report.ok()) << report.status().toString();
    EXPECT_EQ(report->metrics.prefixPageHits, each.hits) << each.name << " " << each.pageSize;
    EXPECT_EQ(report->metrics.prefixPageQueries, each.queries);
    EXPECT_EQ(report->pages.evicted, 0u);
    EXPECT_EQ(report->metrics.preemptions, 0u);
  }
}

// Each real trace to its end, with all invariants checked on the way.
TEST(Replay, FinishesEveryRequestOfEveryTrace) {
  LLMOPT_NEEDS_TEST_DATA();
  const char *names[] = {
      "mooncake_conversation_first5000.jsonl.gz", "mooncake_synthetic_all3993.jsonl.gz",
      "azure2023_conv_first5000.csv.gz",          "azure2023_code_first5000.csv.gz",
      "sharegpt_llama3.1_300_blocks16.jsonl.gz",  "arxiv_summarization_llama2tok_first5000.csv.gz",
      "servegen_deepseek-r1_client_rates.csv.gz",
  };
  for (const char *name : names)
    for (bool windows : {false, true}) {
      ReplayOptions options = optionsFor(20'000, 16);
      if (windows)
        options.model = withWindow(16, 128);
      options.checkEvery = 1000;
      auto report = replayFile(name, options, 600);
      ASSERT_TRUE(report.ok()) << name << ": " << report.status().toString();
      EXPECT_EQ(report->finished, report->requests);
      EXPECT_EQ(report->wrongTokens, 0u);
      const ServingMetrics &m = report->metrics;
      uint64_t positions = m.promptTokensTotal + m.generationTokensTotal - report->finished;
      EXPECT_EQ(m.tokensComputed, positions - m.tokensReused + m.tokensRecomputed +
                                      m.tokensRejected + m.tokensDiscarded);
    }
}

TEST(Replay, StepsInFlightSpeculationAndSwapChangeNoToken) {
  LLMOPT_NEEDS_TEST_DATA();
  for (uint32_t steps : {1u, 2u, 4u})
    for (uint32_t drafts : {0u, 3u})
      for (bool swap : {false, true}) {
        ReplayOptions options = optionsFor(700, 16);
        options.scheduler.stepsInFlight = steps;
        for (uint32_t i = 0; i < drafts; ++i)
          options.scheduler.deviceDrafts.push_back(int16_t(i) - 1);
        options.acceptance = drafts ? 0.7 : 0;
        options.hostBytes = swap ? uint64_t(1) << 34 : 0;
        options.scheduler.growthTokens = 0;
        options.checkEvery = 200;
        auto report = replayFile("sharegpt_llama3.1_300_blocks16.jsonl.gz", options);
        ASSERT_TRUE(report.ok()) << report.status().toString();
        EXPECT_EQ(report->finished, 300u);
        EXPECT_GT(report->metrics.preemptions, 20u);
        EXPECT_EQ(swap, report->metrics.swapOuts > 0);
        EXPECT_EQ(report->metrics.swapOuts, report->metrics.swapIns);
      }
}

TEST(Replay, HostMemoryKeepsWhatPagesDoNot) {
  LLMOPT_NEEDS_TEST_DATA();
  uint64_t hits[2], demoted[2];
  for (bool secondLevel : {false, true}) {
    ReplayOptions options = optionsFor(9000, 16);
    options.hostBytes = uint64_t(1) << 36;
    options.secondLevel = secondLevel;
    options.checkEvery = 500;
    auto report = replayFile("mooncake_conversation_first5000.jsonl.gz", options, 300);
    ASSERT_TRUE(report.ok()) << report.status().toString();
    EXPECT_EQ(report->finished, report->requests);
    hits[secondLevel] = report->metrics.prefixPageHits;
    demoted[secondLevel] = report->metrics.pagesDemoted;
    EXPECT_EQ(report->metrics.hostPageHits > 0, secondLevel);
  }
  EXPECT_EQ(demoted[0], 0u);
  EXPECT_GT(demoted[1], 1000u);
  EXPECT_GT(hits[1], hits[0]);
}

TEST_F(Replays, SaysWhenTheLoadIsMoreThanTheDeviceServes) {
  std::string text = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  for (int second = 0; second < 50; ++second)
    text += fmt::format("2023-11-16 00:00:{:02},1000,50\n", second);
  StatusOr<Trace> trace = readTrace(write("a.csv", text));
  ASSERT_TRUE(trace.ok());
  ReplayOptions options = optionsFor(2000, 16);
  auto calm = replay(*trace, options);
  ASSERT_TRUE(calm.ok()) << calm.status().toString();
  EXPECT_FALSE(calm->saturated);
  EXPECT_EQ(calm->goodShare, 1);
  options.speed = 200;
  auto busy = replay(*trace, options);
  ASSERT_TRUE(busy.ok());
  EXPECT_TRUE(busy->saturated);
  EXPECT_GT(busy->requestRate, calm->requestRate);
  EXPECT_GT(busy->metrics.timeToFirstToken.mean(), calm->metrics.timeToFirstToken.mean());
}

TEST_F(Replays, TheSameTraceGivesTheSameReport) {
  std::string text = "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n";
  for (int i = 0; i < 200; ++i)
    text += fmt::format("{},{},0,0\n", 100 + i * 37 % 900, 5 + i * 11 % 60);
  StatusOr<Trace> trace = readTrace(write("a.csv", text));
  ASSERT_TRUE(trace.ok());
  ReplayOptions options = optionsFor(400, 16);
  auto a = replay(*trace, options), b = replay(*trace, options);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->seconds, b->seconds);
  EXPECT_EQ(a->metrics.steps, b->metrics.steps);
  EXPECT_EQ(a->metrics.timeToFirstToken.sum(), b->metrics.timeToFirstToken.sum());
  EXPECT_EQ(a->metrics.preemptions, b->metrics.preemptions);
}

TEST_F(Replays, EmptyAndOverlongPromptsAreRefusedAndTheOthersFinish) {
  StatusOr<Trace> trace = readTrace(write("a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                                                   "2023-11-16 00:00:01,0,5\n"
                                                   "2023-11-16 00:00:01,100000,5\n"
                                                   "2023-11-16 00:00:01,100,0\n"
                                                   "2023-11-16 00:00:01,100,7\n"));
  ASSERT_TRUE(trace.ok());
  auto report = replay(*trace, optionsFor(100, 16));
  ASSERT_TRUE(report.ok()) << report.status().toString();
  EXPECT_EQ(report->refused, 2u);
  EXPECT_EQ(report->finished, 2u) << "an answer of 0 tokens is one of 1";
}

TEST_F(Replays, OptionsOutOfBoundsAreRefused) {
  StatusOr<Trace> trace = readTrace(write("a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                                                   "2023-11-16 00:00:01,10,5\n"));
  ReplayOptions options = optionsFor(100, 16);
  options.speed = 0;
  EXPECT_EQ(replay(*trace, options).status().code(), StatusCode::InvalidArgument);
  options = optionsFor(100, 16);
  options.acceptance = 1.5;
  EXPECT_EQ(replay(*trace, options).status().code(), StatusCode::InvalidArgument);
}

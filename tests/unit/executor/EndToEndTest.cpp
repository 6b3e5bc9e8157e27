// ShareGPT requests at their full lengths through scheduler, block manager, prefix cache,
// chunked prefill, preemption and real kernels: each yields what it yields alone.
//
// LLMOPT_E2E_REQUESTS is the number of requests of the trace that run; 64 is the whole, and
// what is expected to have happened on the way is expected of the whole.
#include "Alone.h"
#include "Oracle.h"
#include "Server.h"

#include "runtime/trace/Trace.h"
#include "tests/support/TestData.h"

#include <cmath>
#include <cstdlib>
#include <set>

namespace llmopt::test {
namespace {

constexpr uint32_t kWhole = 64;

uint32_t requestCount() {
  const char *text = std::getenv("LLMOPT_E2E_REQUESTS");
  return text ? std::min(uint32_t(std::atoi(text)), kWhole) : kWhole;
}

class EndToEnd : public testing::Test {
protected:
  void SetUp() override {
    LLMOPT_NEEDS_TEST_DATA();
    TraceOptions options;
    options.limit = kWhole;
    StatusOr<Trace> read =
        readTrace(dataFolder() / "traces" / "sharegpt_llama3.1_300_blocks16.jsonl.gz", options);
    ASSERT_TRUE(read.ok()) << read.status().toString();
    trace = *std::move(read);
  }

  void add(Server &server, uint64_t index, std::span<const kv::Token> stops = {},
           uint32_t samples = 1) {
    std::vector<kv::Token> prompt(size_t(trace.requests[index].promptTokens));
    writePrompt(trace, index, prompt);
    for (kv::Token &token : prompt)
      token %= server.options.spec.model.vocabulary;
    RequestParams params;
    params.prompt = prompt;
    params.maxNewTokens = uint32_t(trace.requests[index].outputTokens);
    params.greedy = index % 3 != 0;
    params.samplingSeed = index;
    params.stopTokens = stops;
    Status added = server.addSamples(params, samples);
    ASSERT_TRUE(added.ok()) << added.toString();
  }

  Trace trace;
};

/// Requests whose tokens or logits are not those of the sequence alone, bit for bit.
uint32_t countWrong(const Server &server, Alone &alone) {
  uint32_t wrong = 0;
  for (const Outcome &outcome : server.outcomes) {
    uint32_t given = uint32_t(outcome.answer.tokens.size());
    if (!given)
      continue; // aborted before its first token
    Answer expected = alone.run(outcome.prompt, given, outcome.greedy, outcome.seed);
    std::vector<uint64_t> hashes =
        server.layers.hashes.at({outcome.handle.slot, outcome.handle.generation});
    hashes.resize(given); // a row in flight may have yielded more after the end
    wrong += outcome.answer.tokens != expected.tokens || hashes != expected.logits;
  }
  return wrong;
}

/// Small enough for preemptions; short sequences are computed again, long ones are swapped.
ServerOptions pressedOptions() {
  ServerOptions options;
  options.pages = 850;
  options.hostPages = 4000;
  options.maxSequences = 64;
  options.costs.secondsPerToken = 1e-5;
  options.costs.copyLatency = 3e-3;
  options.scheduler.stepsInFlight = 2;
  return options;
}

/// Requests that ended so; `inFlight`: while a row of theirs was in flight.
uint32_t countEnds(const Server &server, FinishReason reason, bool inFlight = false) {
  return uint32_t(std::ranges::count_if(server.outcomes, [&](const Outcome &outcome) {
    return outcome.reason == reason && (outcome.inFlight || !inFlight);
  }));
}

void report(const char *name, const Server &server) {
  kv::Counters pages = server.blocks->counters();
  const ServingMetrics &metrics = server.scheduler->metrics();
  fmt::print("{}: {} requests, {} steps, {} tokens computed ({} again), {} preemptions ({} by "
             "swap), {} pages swapped out and {} in, {} evictions of pages that had hits, {} hit "
             "tokens, {} page copies, {} forks, {} aborts ({} in flight), {} stops ({} in "
             "flight), {} rows discarded\n",
             name, server.outcomes.size(), server.steps, metrics.tokensComputed,
             metrics.tokensRecomputed, metrics.preemptions, metrics.swapOuts, pages.swappedOutPages,
             pages.swappedInPages, pages.evictedAfterHit, pages.hitTokens, pages.copies,
             metrics.forks, countEnds(server, FinishReason::Abort),
             countEnds(server, FinishReason::Abort, true), countEnds(server, FinishReason::Stop),
             countEnds(server, FinishReason::Stop, true), metrics.discardedRows);
}

TEST_F(EndToEnd, EachSequenceIsAsAloneBitForBit) {
  ServerOptions options = pressedOptions();
  TinyModel model(options.spec.model);
  TinyLayers layers(model);
  Server server(options, layers);
  uint32_t count = requestCount();
  // Beside each fourth request one with the same prompt that is aborted, and one that stops
  // at the first of some tokens; each eighth has three samples.
  std::vector<size_t> toAbort;
  const kv::Token stops[] = {3, 77, 150, 201};
  for (uint32_t i = 0; i < count; ++i) {
    add(server, i, {}, i % 8 == 2 ? 3 : 1);
    if (i % 4 == 1) {
      toAbort.push_back(server.outcomes.size());
      add(server, i);
    }
    if (i % 4 == 3)
      add(server, i, stops);
  }
  // Wherever they are: waiting, prefilling, decoding, preempted or swapped out.
  size_t next = 0;
  server.runOut([&] {
    if (server.steps % (64 + 32 * (next % 5)) == 0 && next < toAbort.size())
      server.abort(toAbort[next++]);
  });
  if (HasFatalFailure())
    return;
  for (size_t i = 0; i < server.outcomes.size(); ++i) {
    const Outcome &outcome = server.outcomes[i];
    if (outcome.reason == FinishReason::Length)
      EXPECT_EQ(outcome.answer.tokens.size(), outcome.asked) << i;
    else
      EXPECT_TRUE(outcome.reason == FinishReason::Abort || outcome.reason == FinishReason::Stop);
  }
  Alone alone(model, options.spec, server.options.groups);
  EXPECT_EQ(countWrong(server, alone), 0u);
  report("one full group", server);
  EXPECT_EQ(server.engine->deviceLosses(), 0u);
  if (count < kWhole)
    return;
  kv::Counters pages = server.blocks->counters();
  const ServingMetrics &metrics = server.scheduler->metrics();
  EXPECT_GE(metrics.preemptions, 20u);
  EXPECT_GT(metrics.swapOuts, 0u);
  EXPECT_LT(metrics.swapOuts, metrics.preemptions);
  EXPECT_GE(pages.swappedOutPages, 1000u);
  EXPECT_GE(pages.swappedInPages, 1000u);
  EXPECT_GE(pages.evictedAfterHit, 20u);
  EXPECT_GT(pages.hitTokens, 0u);
  EXPECT_GE(metrics.forks, 10u);
  EXPECT_GE(countEnds(server, FinishReason::Abort), 8u);
  EXPECT_GE(countEnds(server, FinishReason::Stop), 8u);
  EXPECT_GE(countEnds(server, FinishReason::Abort, true), 1u);
  EXPECT_GE(countEnds(server, FinishReason::Stop, true), 1u);
  EXPECT_GE(metrics.discardedRows, 8u); // ends that landed while a row was in flight
}

/// As Gemma alternates: windows in the even layers, every key in the odd ones; the first keys
/// stay visible too.
TEST_F(EndToEnd, WindowsWithSinksBesideFullLayersAreAsAlone) {
  ServerOptions options = pressedOptions();
  options.spec.model.layers = 4;
  options.groups = {{{1, 3}, 16, 0, 0}, {{0, 2}, 16, 200, 4}};
  options.pages = 900;
  TinyModel model(options.spec.model);
  TinyLayers layers(model);
  Server server(options, layers);
  for (uint32_t i = 0; i < std::min(requestCount(), 24u); ++i)
    add(server, i);
  server.runOut();
  if (HasFatalFailure())
    return;
  Alone alone(model, options.spec, server.options.groups);
  EXPECT_EQ(countWrong(server, alone), 0u);
  report("full and window with sink", server);
  EXPECT_GT(server.scheduler->metrics().preemptions, 0u);
  EXPECT_EQ(server.engine->deviceLosses(), 0u);
}

/// Without batch invariance bits may differ.
TEST_F(EndToEnd, DefaultKernelsStayWithinTheFormats) {
  ServerOptions options = pressedOptions();
  options.spec.invariant = false;
  options.pages = 300;
  TinyModel model(options.spec.model);
  TinyLayers layers(model);
  layers.keepLogits = true;
  Server server(options, layers);
  for (uint32_t i = 0; i < std::min(requestCount(), 6u); ++i)
    add(server, i);
  server.runOut();
  if (HasFatalFailure())
    return;
  report("default kernels", server);
  EXPECT_GT(server.scheduler->metrics().preemptions, 0u);
  for (const Outcome &outcome : server.outcomes)
    expectWithinFormats(model, server.options.groups, outcome.prompt, outcome.answer.tokens,
                        layers.kept.at({outcome.handle.slot, outcome.handle.generation}));
}

} // namespace
} // namespace llmopt::test

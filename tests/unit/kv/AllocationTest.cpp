// Rows, commits, hits, evictions and ends of text prompts allocate nothing.
#include "Story.h"
#include "tools/bench/HeapCount.h"

using namespace kvtest;
using llmopt::bench::allocations;

TEST(KvAllocation, TheHotPathAllocatesNothing) {
  ManagerOptions options = optionsFor({fullGroup(4), windowGroup(4, 6)}, 64);
  options.maxStepsInFlight = 2;
  options.maxDraft = 2;
  Story story(options);
  BlockManager &kv = *story.kv;
  std::vector<std::vector<Token>> texts;
  std::vector<Prompt> prompts;
  for (Token i = 0; i < 40; ++i)
    texts.push_back(text(i % 2 * 1000, 20 + i));
  for (const std::vector<Token> &tokens : texts)
    prompts.push_back(story.prompt(tokens));
  story.remember(text(0, 4)); // the key is known from here on
  uint64_t hits = 0;
  llmopt::bench::counting = true;
  Token token[3] = {1, 2, 3};
  bool ok = true;
  for (size_t i = 0; i < prompts.size(); ++i) {
    ok &= kv.openStep() == Reply::Ok;
    Admission admission = kv.admit(prompts[i], UINT32_MAX);
    ok &= admission.reply == Reply::Ok;
    hits += admission.hit.tokens > 0;
    StepId first = kv.closeStep().step;
    ok &= kv.openStep() == Reply::Ok;
    ok &= kv.reserve(admission.sequence, 3) == Reply::Ok;
    StepId second = kv.closeStep().step;
    ok &= kv.commit(admission.sequence, first, std::span(texts[i]).subspan(admission.hit.tokens)) ==
          Reply::Ok;
    ok &= kv.completeStep(first) == Reply::Ok;
    ok &= kv.commit(admission.sequence, second, {token, 2}) == Reply::Ok;
    SequenceId child;
    ok &= kv.fork(admission.sequence, child) == Reply::Ok;
    ok &= kv.completeStep(second) == Reply::Ok;
    ok &= kv.openStep() == Reply::Ok;
    ok &= kv.reserve(child, 1) == Reply::Ok;
    StepId third = kv.closeStep().step;
    ok &= kv.finish(admission.sequence) == Reply::Ok;
    ok &= kv.finish(child) == Reply::Ok;
    ok &= kv.completeStep(third) == Reply::Ok;
  }
  llmopt::bench::counting = false;
  uint64_t made = allocations;
  EXPECT_TRUE(ok);
  EXPECT_EQ(made, 0u);
  EXPECT_GT(hits, 10u);
  EXPECT_GT(kv.counters().evicted, 10u);
}

// Real kernels under the scheduler: small stories, each against the same sequence alone.
#include "Alone.h"
#include "Server.h"

namespace llmopt::test {
namespace {

std::vector<kv::Token> promptOf(uint32_t stream, uint32_t tokens, uint32_t vocabulary) {
  std::vector<kv::Token> prompt(tokens);
  for (uint32_t i = 0; i < tokens; ++i)
    prompt[i] = (stream * 7919 + i * i * 31 + i * 17) % vocabulary;
  return prompt;
}

/// Tokens and logits of all finished requests are those of the sequence alone.
void expectAsAlone(Server &server, Alone &alone) {
  for (size_t i = 0; i < server.outcomes.size(); ++i) {
    const Outcome &outcome = server.outcomes[i];
    uint32_t given = uint32_t(outcome.answer.tokens.size());
    if (!given)
      continue;
    Answer expected = alone.run(outcome.prompt, given, outcome.greedy, outcome.seed);
    EXPECT_EQ(outcome.answer.tokens, expected.tokens) << "request " << i;
    std::vector<uint64_t> hashes =
        server.layers.hashes[{outcome.handle.slot, outcome.handle.generation}];
    hashes.resize(given);
    EXPECT_EQ(hashes, expected.logits) << "request " << i;
  }
}

TEST(Executor, PrefillAndDecodeEqualTheSequenceAlone) {
  ServerOptions options;
  options.spec.model.layers = 1;
  TinyModel model(options.spec.model);
  TinyLayers layers(model);
  Server server(options, layers);
  std::vector<kv::Token> prompt = promptOf(1, 300, model.config().vocabulary);
  RequestParams params;
  params.prompt = prompt;
  params.maxNewTokens = 40;
  ASSERT_TRUE(server.add(params).ok());
  server.runOut();
  ASSERT_EQ(server.outcomes[0].reason, FinishReason::Length);
  Alone alone(model, options.spec, server.options.groups);
  expectAsAlone(server, alone);
}

// The pages and tables of vLLM and FlashInfer; bits do not depend on where a key lies.
TEST(Executor, EveryFormOfPagesAndTablesEqualsTheSequenceAlone) {
  for (int form = 1; form < 8; ++form) {
    SCOPED_TRACE(form);
    ServerOptions options;
    options.groups = {{{0}, 8, 0, 0}, {{1}, 4, 20, 2}};
    for (TinyGroup &group : options.groups) {
      group.headMajor = form & 1;
      group.interleaved = form & 2;
      group.indptr = form & 4;
    }
    options.pages = 40;
    TinyModel model(options.spec.model);
    TinyLayers layers(model);
    Server server(options, layers);
    for (uint32_t i = 0; i < 4; ++i) {
      std::vector<kv::Token> prompt = promptOf(i / 2, 50 + 9 * i, model.config().vocabulary);
      RequestParams params;
      params.prompt = prompt;
      params.maxNewTokens = 30;
      ASSERT_TRUE(server.add(params).ok());
    }
    server.runOut();
    Alone alone(model, options.spec, server.options.groups);
    expectAsAlone(server, alone);
  }
}

TEST(Executor, KernelsForPagesOfAnotherFormAreRefused) {
  ServerOptions options;
  options.groups = {{{0, 1}, 8, 0, 0}};
  TinyModel model(options.spec.model);
  TinyLayers layers(model);
  ExecutorOptions made;
  made.groups = {layerGroup(options.spec.model, options.groups[0])};
  made.groups[0].appendKernel = "append 0";
  made.memory.groups = {made.groups[0].pages};
  made.memory.budgetBytes = 64 * made.groups[0].pages.pageBytes();
  made.rules = rulesOf(options.groups, made.maxTokens, 0);
  std::vector<TinyGroup> other = options.groups;
  other[0].headMajor = true;
  auto refused =
      ModelExecutor::create(*CpuDevice::create(1), made, kernelsOf(options.spec, other), layers);
  EXPECT_EQ(refused.status().toString(),
            "InvalidArgument: kernel 'append 0' appends to pages of another form, size, number of "
            "heads or dimension than its layer group's (8 slots, 2 heads, 8 and 8)");
}

} // namespace
} // namespace llmopt::test

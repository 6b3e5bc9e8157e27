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

} // namespace
} // namespace llmopt::test

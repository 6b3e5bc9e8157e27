// The server behind the C++ API gives the tokens of the sequence alone; what is wrong comes back
// as a status, and the server goes on.
#include "CApi.h"
#include "FailingDevice.h"

#include "runtime/api/Server.h"

#include <gtest/gtest.h>

namespace llmopt::test {
namespace {

const std::vector<TinyGroup> &kGroups = oneGroup();

llmopt::runtime::ServerOptions serverOptions(const SpecOptions &spec) {
  llmopt::runtime::ServerOptions options;
  options.groups = {layerGroup(spec.model, kGroups[0])};
  options.groups[0].pages.dataBytes = 0; // as the layers need
  options.groups[0].appendKernel = "append 0";
  options.rules = rulesOf(kGroups, 512, 0);
  options.scheduler.tokenBudget = 512;
  options.scheduler.maxLength = 1024;
  return options;
}

TEST(Api, TheServerGivesTheTokensOfTheSequenceAlone) {
  SpecOptions spec;
  TinyModel model(spec.model);
  TinyLayers layers(model);
  llmopt::runtime::ServerOptions options = serverOptions(spec);
  auto server = llmopt::runtime::Server::create(*CpuDevice::create(1), options,
                                                kernelsOf(spec, kGroups), layers);
  ASSERT_TRUE(server.ok()) << server.status().toString();
  std::map<uint64_t, std::vector<kv::Token>> answers;
  std::map<uint64_t, uint32_t> finished;
  for (uint32_t i = 1; i <= 5; ++i) {
    std::vector<kv::Token> prompt = somePrompt(i);
    RequestParams params;
    params.prompt = prompt;
    params.maxNewTokens = 30;
    StatusOr<uint64_t> id = (*server)->submit(params);
    ASSERT_TRUE(id.ok());
    EXPECT_EQ(*id, i);
  }
  EXPECT_TRUE((*server)->abort(5));
  EXPECT_FALSE((*server)->abort(5));
  EXPECT_FALSE((*server)->abort(99));
  while (true) {
    StatusOr<bool> more = (*server)->advance();
    ASSERT_TRUE(more.ok());
    for (ServerEvent event; (*server)->next(event);)
      if (event.kind == ServerEvent::Kind::Token)
        answers[event.request].push_back(event.token);
      else
        ++finished[event.request];
    if (!*more)
      break;
  }
  Alone alone(model, spec, kGroups);
  for (uint32_t i = 1; i <= 5; ++i) {
    EXPECT_EQ(finished[i], 1u);
    if (i < 5)
      EXPECT_EQ(answers[i], alone.run(somePrompt(i), 30).tokens);
  }
  EXPECT_TRUE(answers[5].empty());
  EXPECT_TRUE((*server)->check().ok());
}

// Pages that make room for others are hit in host memory, with the content that they had.
TEST(Api, CachedPagesAreHitInHostMemory) {
  SpecOptions spec;
  TinyModel model(spec.model);
  TinyLayers layers(model);
  Alone alone(model, spec, kGroups);
  for (bool secondLevel : {true, false}) {
    llmopt::runtime::ServerOptions options = serverOptions(spec);
    options.pages = 64;
    options.hostPages = 400;
    options.secondLevel = secondLevel;
    options.captures = {{4, 1}};
    auto server = llmopt::runtime::Server::create(*CpuDevice::create(1), options,
                                                  kernelsOf(spec, kGroups), layers);
    ASSERT_TRUE(server.ok()) << server.status().toString();
    constexpr uint32_t kPrompts = 20; // of five pages each
    for (uint32_t round = 0; round < 2; ++round)
      for (uint32_t i = 0; i < kPrompts; ++i) {
        std::vector<kv::Token> prompt = somePrompt(i), answer;
        RequestParams params;
        params.prompt = prompt;
        params.maxNewTokens = 20;
        ASSERT_TRUE((*server)->submit(params).ok());
        for (StatusOr<bool> more = true; more && *more; more = (*server)->advance())
          for (ServerEvent event; (*server)->next(event);)
            if (event.kind == ServerEvent::Kind::Token)
              answer.push_back(event.token);
        EXPECT_EQ(answer, alone.run(prompt, 20).tokens) << i;
      }
    ServingMetrics metrics = (*server)->metrics();
    EXPECT_EQ(metrics.pagesDemoted > 0, secondLevel);
    EXPECT_EQ(metrics.hostPageHits > 0, secondLevel);
    if (secondLevel)
      EXPECT_GE(metrics.prefixHits, kPrompts * 64u) << "all but the last page of each prompt";
    else
      EXPECT_LT(metrics.prefixHits, kPrompts * 64u);
    ASSERT_EQ(metrics.replayedSteps.size(), 1u);
    EXPECT_EQ(metrics.replayedSteps[0] + metrics.eagerSteps, metrics.steps);
    EXPECT_TRUE((*server)->check().ok());
  }
}

TEST(Api, MemoryThatLacksIsSaidAndASmallerServerServes) {
  SpecOptions spec;
  TinyModel model(spec.model);
  TinyLayers layers(model);
  llmopt::runtime::ServerOptions options = serverOptions(spec);
  auto device = std::make_shared<FailingDevice>(*CpuDevice::create(1));
  device->limitMemory(1 << 20);
  auto create = [&] {
    return llmopt::runtime::Server::create(device, options, kernelsOf(spec, kGroups), layers);
  };
  Status lacking = create().status();
  EXPECT_EQ(lacking.code(), StatusCode::ResourceExhausted) << lacking.toString();
  EXPECT_NE(lacking.message().find("no memory for"), std::string::npos) << lacking.toString();
  options.pages = 100;
  auto server = create();
  ASSERT_TRUE(server.ok()) << server.status().toString();
  std::vector<kv::Token> prompt = somePrompt(1), answer;
  RequestParams params;
  params.prompt = prompt;
  params.maxNewTokens = 30;
  ASSERT_TRUE((*server)->submit(params).ok());
  for (StatusOr<bool> more = true; more && *more; more = (*server)->advance())
    for (ServerEvent event; (*server)->next(event);)
      if (event.kind == ServerEvent::Kind::Token)
        answer.push_back(event.token);
  EXPECT_EQ(answer, Alone(model, spec, kGroups).run(prompt, 30).tokens);
}

} // namespace
} // namespace llmopt::test

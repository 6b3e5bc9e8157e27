// Requests of the public server that wait for somebody else, a filter or a peer: told that it is
// there they go on, and aborted they give their pages back.
#include "Alone.h"
#include "Specs.h"

#include "runtime/api/Server.h"
#include "runtime/device/cpu/CpuDevice.h"
#include "runtime/kv/Pool.h"

#include <gtest/gtest.h>

namespace llmopt::test {
namespace {

const std::vector<TinyGroup> kGroups = {{{0, 1}, 16, 0, 0}};

/// Its first `late` answers come later.
struct LateFilter : TokenFilter {
  explicit LateFilter(int late) : late(late) {}
  bool prepare(RequestHandle, std::span<const kv::Token>) override {
    ++asked;
    return late-- <= 0;
  }
  uint32_t allowedDrafts(RequestHandle, std::span<const kv::Token>) override { return 0; }
  int late, asked = 0;
};

struct Peer : KvConnector {
  bool start(const IncomingKv &incoming) override {
    started.push_back(incoming);
    return true;
  }
  void cancel(kv::TransferId) override { ++cancelled; }
  std::vector<IncomingKv> started;
  int cancelled = 0;
};

class ServerWaits : public testing::Test {
protected:
  ServerWaits() {
    llmopt::runtime::ServerOptions options;
    options.groups = {layerGroup(spec.model, kGroups[0])};
    options.groups[0].appendKernel = "append 0";
    options.rules = rulesOf(kGroups, 512, 0);
    options.pages = 20;
    options.prefixCache = false;
    options.scheduler.tokenBudget = 512;
    options.scheduler.maxLength = 200;
    options.scheduler.connector = &peer;
    auto made = llmopt::runtime::Server::create(*CpuDevice::create(1), options,
                                                kernelsOf(spec, kGroups), layers);
    EXPECT_TRUE(made.ok()) << made.status().toString();
    server = *std::move(made);
    prompt.resize(70);
    for (uint32_t i = 0; i < prompt.size(); ++i)
      prompt[i] = i * 11 % 256;
  }

  uint64_t submit(TokenFilter *filter, uint32_t remoteTokens = 0) {
    RequestParams params;
    params.prompt = prompt;
    params.maxNewTokens = 8;
    params.filter = filter;
    params.remoteTokens = remoteTokens;
    StatusOr<uint64_t> id = server->submit(params);
    EXPECT_TRUE(id.ok()) << id.status().toString();
    return *id;
  }
  /// Calls until nothing is left to do, or a waiter is all that is left.
  bool advance() {
    bool busy = true;
    for (int i = 0; i < 200 && busy; ++i) {
      StatusOr<bool> more = server->advance();
      EXPECT_TRUE(more.ok()) << more.status().toString();
      busy = more.ok() && *more;
      for (ServerEvent event; server->next(event);)
        if (event.kind == ServerEvent::Kind::Token)
          tokens[event.request].push_back(event.token);
        else
          reasons[event.request] = event.reason;
    }
    return busy;
  }
  uint32_t held() {
    const kv::Pool &pool = server->manager().pool();
    return pool.count(kv::PageState::Used) + pool.count(kv::PageState::Pending) +
           pool.count(kv::PageState::Pinned);
  }
  void expectAnswer(uint64_t id) {
    EXPECT_EQ(reasons[id], FinishReason::Length);
    EXPECT_EQ(tokens[id], Alone(model, spec, kGroups).run(prompt, 8).tokens);
    EXPECT_EQ(held(), 0u);
    EXPECT_TRUE(server->check().ok()) << server->check().toString();
  }

  SpecOptions spec;
  TinyModel model{spec.model};
  TinyLayers layers{model};
  Peer peer;
  std::unique_ptr<llmopt::runtime::Server> server;
  std::vector<kv::Token> prompt;
  std::map<uint64_t, std::vector<kv::Token>> tokens;
  std::map<uint64_t, FinishReason> reasons;
};

TEST_F(ServerWaits, AFilterThatIsReadyLetsItsRequestGoOn) {
  LateFilter filter(3);
  uint64_t id = submit(&filter);
  for (int late = 0; late < 3; ++late) {
    EXPECT_TRUE(advance()) << "it waits for its mask";
    EXPECT_EQ(tokens[id].size(), size_t(late));
    EXPECT_TRUE(server->filterReady(id));
  }
  EXPECT_FALSE(advance());
  expectAnswer(id);
  EXPECT_EQ(filter.asked, 8);
  EXPECT_FALSE(server->filterReady(id)) << "it has ended";
  EXPECT_FALSE(server->filterReady(99)) << "it never was";
}

TEST_F(ServerWaits, APeerThatHasWrittenLetsItsRequestGoOn) {
  uint64_t id = submit(nullptr, 64);
  EXPECT_TRUE(advance()) << "it waits for its pages";
  ASSERT_EQ(peer.started.size(), 1u);
  EXPECT_NE(server->manager().pageAt(peer.started[0].sequence, 0, 3), kv::kNoPage);
  EXPECT_TRUE(server->transferDone(peer.started[0].transfer, 64));
  EXPECT_FALSE(advance());
  EXPECT_EQ(reasons[id], FinishReason::Length);
  EXPECT_EQ(server->metrics().tokensTransferred, 64u);
  EXPECT_EQ(held(), 0u);
  EXPECT_FALSE(server->transferDone(peer.started[0].transfer, 64)) << "a late note";
}

TEST_F(ServerWaits, APeerThatFailsLeavesThePromptToTheServer) {
  uint64_t id = submit(nullptr, 64);
  EXPECT_TRUE(advance());
  ASSERT_EQ(peer.started.size(), 1u);
  EXPECT_TRUE(server->transferFailed(peer.started[0].transfer));
  EXPECT_FALSE(advance());
  expectAnswer(id);
  EXPECT_FALSE(server->transferFailed(peer.started[0].transfer)) << "a late note";
}

// Before its first row, and with pages behind its second token.
TEST_F(ServerWaits, AnAbortedOneThatWaitsForItsFilterHoldsNothing) {
  for (int answers : {0, 2}) {
    LateFilter filter(answers + 1);
    uint64_t id = submit(&filter);
    for (int i = 0; i < answers; ++i) {
      EXPECT_TRUE(advance());
      EXPECT_TRUE(server->filterReady(id));
    }
    EXPECT_TRUE(advance());
    EXPECT_EQ(held() > 0, answers > 0);
    EXPECT_TRUE(server->abort(id));
    EXPECT_FALSE(advance());
    EXPECT_EQ(reasons[id], FinishReason::Abort);
    EXPECT_EQ(held(), 0u);
    EXPECT_EQ(server->metrics().pagesUsed, 0u);
    EXPECT_FALSE(server->filterReady(id));
  }
  uint64_t next = submit(nullptr);
  EXPECT_FALSE(advance());
  expectAnswer(next);
}

// The peer may write until it says that it has ended.
TEST_F(ServerWaits, AnAbortedOneThatReceivesHoldsPagesUntilItsPeerHasEnded) {
  uint64_t id = submit(nullptr, 64);
  EXPECT_TRUE(advance());
  ASSERT_EQ(peer.started.size(), 1u);
  EXPECT_TRUE(server->abort(id));
  EXPECT_EQ(peer.cancelled, 1);
  EXPECT_FALSE(advance());
  EXPECT_EQ(reasons[id], FinishReason::Abort);
  EXPECT_EQ(held(), 4u);
  EXPECT_TRUE(server->transferFailed(peer.started[0].transfer));
  EXPECT_EQ(held(), 0u);
  EXPECT_EQ(server->metrics().pagesUsed, 0u);
  uint64_t next = submit(nullptr);
  EXPECT_FALSE(advance());
  expectAnswer(next);
}

} // namespace
} // namespace llmopt::test

// Two servers, and what a network between them would do: pages that one has computed are read and
// written through the addresses that the connectors were given, and the other goes on with the
// tokens of the sequence alone.
#include "Alone.h"
#include "FailingDevice.h"
#include "Specs.h"

#include "runtime/api/Server.h"
#include "runtime/kv/Pool.h"

#include <cstring>
#include <gtest/gtest.h>
#include <optional>

namespace llmopt::test {
namespace {

using ApiServer = llmopt::runtime::Server;
using kv::PageMemory;

struct Pages {
  kv::TransferId transfer;
  uint32_t first = 0, tokens = 0;
  uint64_t tag = 0;
  std::vector<TransferPage> pages;
};

struct Peer : KvConnector {
  Status attach(const PageMemory &given) override {
    EXPECT_FALSE(memory) << "not detached";
    if (refuses)
      return makeStatus(StatusCode::Unavailable, "the network is away");
    memory = given;
    ++attached;
    return {};
  }
  void detach() override {
    EXPECT_TRUE(memory) << "not attached";
    memory.reset();
  }
  bool start(const IncomingKv &in) override {
    wanted.push_back({in.transfer, in.first, in.count, in.peerTag, {}});
    wanted.back().pages.assign(in.pages.begin(), in.pages.end());
    return true;
  }
  bool offer(const OutgoingKv &out) override {
    offered.push_back({out.transfer, 0, out.tokens, out.peerTag, {}});
    offered.back().pages.assign(out.pages.begin(), out.pages.end());
    return takes;
  }
  void cancel(kv::TransferId) override { ++cancelled; }

  std::optional<PageMemory> memory;
  int attached = 0, cancelled = 0;
  bool refuses = false, takes = true;
  std::vector<Pages> wanted, offered;
};

struct Ask {
  std::span<const kv::Token> prompt = {};
  uint32_t maxNewTokens = 1;
  std::span<const kv::Token> stopTokens = {};
  uint32_t remoteTokens = 0;
  bool forPeer = false;
  uint64_t peerTag = 0;
};

/// A server with its connector.
struct Side {
  Side(const TinyModel &model, const std::vector<TinyGroup> &groups) : layers(model) {
    for (const TinyGroup &group : groups) {
      options.groups.push_back(layerGroup(model.config(), group));
      options.groups.back().appendKernel = fmt::format("append {}", options.groups.size() - 1);
    }
    options.rules = rulesOf(groups, 512, 0);
    options.pages = 24;
    options.prefixCache = false;
    options.scheduler.tokenBudget = 512;
    options.scheduler.maxLength = 200;
    options.scheduler.connector = &peer;
    source = kernelsOf({}, groups);
  }
  Status open() {
    auto made = ApiServer::create(device, options, source, layers);
    if (!made)
      return made.status();
    server = *std::move(made);
    return {};
  }
  uint64_t submit(const Ask &ask) {
    RequestParams params;
    params.prompt = ask.prompt;
    params.maxNewTokens = ask.maxNewTokens;
    params.stopTokens = ask.stopTokens;
    params.remoteTokens = ask.remoteTokens;
    params.forPeer = ask.forPeer;
    params.peerTag = ask.peerTag;
    StatusOr<uint64_t> id = server->submit(params);
    EXPECT_TRUE(id.ok()) << id.status().toString();
    return id ? *id : 0;
  }
  /// Until nothing is left to do, or a waiter is all that is left.
  void run() {
    bool busy = true;
    for (int i = 0; i < 300 && busy; ++i) {
      StatusOr<bool> more = server->advance();
      ASSERT_TRUE(more.ok()) << more.status().toString();
      busy = *more;
      for (ServerEvent event; server->next(event);)
        if (event.kind == ServerEvent::Kind::Token)
          tokens[event.request].push_back(event.token);
        else
          reasons[event.request] = event.reason;
    }
    EXPECT_TRUE(server->check().ok()) << server->check().toString();
  }
  uint32_t pinned() const { return server->manager().pool().count(kv::PageState::Pinned); }

  TinyLayers layers;
  Peer peer;
  std::shared_ptr<Device> device = *CpuDevice::create(1);
  llmopt::runtime::ServerOptions options;
  KernelSource source;
  std::unique_ptr<ApiServer> server;
  std::map<uint64_t, std::vector<kv::Token>> tokens;
  std::map<uint64_t, FinishReason> reasons;
};

std::vector<kv::Token> promptOf(uint32_t length, uint32_t stream = 1) {
  std::vector<kv::Token> prompt(length);
  for (uint32_t i = 0; i < length; ++i)
    prompt[i] = (i * 11 + i * i * stream) % 256;
  return prompt;
}

/// As a network would: bytes from an address to an address.
void movePages(const Peer &from, const Pages &offered, const Peer &to, const Pages &wanted) {
  ASSERT_TRUE(from.memory && to.memory);
  ASSERT_EQ(from.memory->groups, to.memory->groups);
  EXPECT_NE(from.memory->base, to.memory->base);
  size_t moved = 0;
  for (const TransferPage &page : wanted.pages)
    for (const TransferPage &same : offered.pages) {
      if (same.group != page.group || same.index != page.index)
        continue;
      const uint8_t *source = from.memory->page(same.group, same.page);
      uint64_t bytes = from.memory->groups[page.group].pageBytes;
      ASSERT_LE(source + bytes, from.memory->base + from.memory->bytes);
      std::memcpy(to.memory->page(page.group, page.page), source, bytes);
      ++moved;
    }
  EXPECT_GT(moved, 0u);
}

/// K or V of a token in a layer, as the description of the memory says.
std::vector<float> rowAt(const Peer &peer, const Pages &pages, uint32_t group, uint32_t layer,
                         bool values, uint32_t position) {
  const kv::GroupMemory &of = peer.memory->groups[group];
  for (const TransferPage &page : pages.pages) {
    if (page.group != group || page.index != position / of.slots)
      continue;
    EXPECT_EQ(of.type, "f32");
    uint32_t dim = values ? of.valueDim : of.keyDim, slot = position % of.slots;
    const auto *at = reinterpret_cast<const float *>(
        peer.memory->page(group, page.page) + layer * of.layerBytes + (values ? of.keyBytes : 0));
    std::vector<float> row;
    for (uint32_t head = 0; head < of.heads; ++head) {
      size_t first = of.headMajor ? head * of.slots + slot : slot * of.heads + head;
      row.insert(row.end(), at + first * dim, at + (first + 1) * dim);
    }
    return row;
  }
  return {};
}

struct Setting {
  const char *name;
  std::vector<TinyGroup> groups;
  uint64_t pages = 24; ///< other prompts take all that nobody holds
};
const Setting kSettings[] = {
    {"one group", {{{0, 1}, 16}}},
    {"a window with a sink, other pages", {{{0}, 16}, {{1}, 8, 20, 2}}},
    {"layers in another order", {{{1}, 8}, {{0}, 4, 24}}, 44},
    {"chunks", {{{0}, 16}, {{1}, 4, 0, 0, false, false, false, 12}}},
    {"head-major, K and V in one pool", {{{0, 1}, 16, 0, 0, true, true}}},
};

class Peers : public testing::Test {
protected:
  TinyModel model{TinyConfig()};

  std::vector<kv::Token> alone(const std::vector<TinyGroup> &groups,
                               const std::vector<kv::Token> &prompt, uint32_t count) {
    return Alone(model, {}, groups).run(prompt, count).tokens;
  }
  /// The other goes on with prompt and first token; the pages are kept while others run.
  void expectHandedOver(const Setting &setting, uint32_t length, uint32_t stepsInFlight) {
    SCOPED_TRACE(fmt::format("{}, {} tokens, {} in flight", setting.name, length, stepsInFlight));
    Side a(model, setting.groups), b(model, setting.groups);
    for (Side *side : {&a, &b}) {
      side->options.pages = setting.pages;
      side->options.scheduler.stepsInFlight = stepsInFlight;
      ASSERT_TRUE(side->open().ok());
    }
    std::vector<kv::Token> prompt = promptOf(length), all = alone(setting.groups, prompt, 12);
    uint64_t id = a.submit({.prompt = prompt, .forPeer = true, .peerTag = 7});
    a.run();
    ASSERT_EQ(a.peer.offered.size(), 1u);
    const Pages &offered = a.peer.offered[0];
    EXPECT_EQ(offered.tokens, length);
    EXPECT_EQ(offered.tag, 7u);
    EXPECT_EQ(a.tokens[id], std::vector(all.begin(), all.begin() + 1));
    EXPECT_EQ(a.pinned(), offered.pages.size());
    for (uint32_t stream : {3u, 4u, 5u}) { // over all other pages
      std::vector<kv::Token> other = promptOf(120, stream);
      a.submit({.prompt = other, .maxNewTokens = 3});
      a.run();
    }

    prompt.push_back(all[0]);
    uint64_t next = b.submit(
        {.prompt = prompt, .maxNewTokens = 11, .remoteTokens = offered.tokens, .peerTag = 8});
    b.run();
    ASSERT_EQ(b.peer.wanted.size(), 1u);
    EXPECT_EQ(b.peer.wanted[0].tag, 8u);
    EXPECT_EQ(b.peer.wanted[0].first, 0u);
    EXPECT_EQ(b.peer.wanted[0].tokens, length);
    movePages(a.peer, offered, b.peer, b.peer.wanted[0]);
    EXPECT_TRUE(a.server->transferDone(offered.transfer, offered.tokens));
    EXPECT_EQ(a.pinned(), 0u);
    EXPECT_TRUE(b.server->transferDone(b.peer.wanted[0].transfer, length));
    b.run();
    EXPECT_EQ(b.reasons[next], FinishReason::Length);
    EXPECT_EQ(b.tokens[next], std::vector(all.begin() + 1, all.end()));
    EXPECT_EQ(b.server->metrics().tokensComputed, 11u);
    EXPECT_FALSE(a.server->transferDone(offered.transfer, offered.tokens)) << "a late note";
  }
};

TEST_F(Peers, OneGoesOnWithWhatTheOtherHasComputed) {
  for (const Setting &setting : kSettings)
    expectHandedOver(setting, 70, 1);
  expectHandedOver(kSettings[1], 70, 2);
}

// Wherever a window's first key lies in its page.
TEST_F(Peers, AWindowHasWhatTheFirstQueryOfTheOtherSees) {
  for (uint32_t length = 64; length < 72; ++length)
    expectHandedOver(kSettings[1], length, 1);
}

// What is written to the addresses is what the other reads: not the tokens of the prompt.
TEST_F(Peers, OtherBytesGiveOtherTokens) {
  const Setting &setting = kSettings[0];
  Side b(model, setting.groups);
  ASSERT_TRUE(b.open().ok());
  std::vector<kv::Token> prompt = promptOf(70), all = alone(setting.groups, prompt, 12);
  uint64_t id = b.submit({.prompt = prompt, .maxNewTokens = 12, .remoteTokens = 64});
  b.run();
  ASSERT_EQ(b.peer.wanted.size(), 1u);
  for (const TransferPage &page : b.peer.wanted[0].pages) {
    auto *floats = reinterpret_cast<float *>(b.peer.memory->page(page.group, page.page));
    for (uint64_t i = 0; i < b.peer.memory->groups[0].pageBytes / sizeof(float); ++i)
      floats[i] = float(i % 7) - 3;
  }
  EXPECT_TRUE(b.server->transferDone(b.peer.wanted[0].transfer, 64));
  b.run();
  EXPECT_EQ(b.reasons[id], FinishReason::Length);
  EXPECT_NE(b.tokens[id], all);
}

// K and V of the first layer follow from the token alone: they lie where the description says.
TEST_F(Peers, TheDescriptionFindsEachLayerHeadAndToken) {
  for (const Setting &setting : kSettings) {
    SCOPED_TRACE(setting.name);
    Side a(model, setting.groups);
    ASSERT_TRUE(a.open().ok());
    std::vector<kv::Token> prompt = promptOf(45);
    a.submit({.prompt = prompt, .forPeer = true});
    a.run();
    ASSERT_EQ(a.peer.offered.size(), 1u);
    EXPECT_TRUE(a.peer.memory->onHost);
    EXPECT_EQ(a.peer.memory->device, "cpu");
    uint32_t found = 0;
    for (uint32_t g = 0; g < a.peer.memory->groups.size(); ++g) {
      const std::vector<uint32_t> &layers = a.peer.memory->groups[g].layers;
      EXPECT_EQ(layers, setting.groups[g].layers);
      for (uint32_t i = 0; i < layers.size(); ++i)
        for (uint32_t position = 0; position < prompt.size() && layers[i] == 0; ++position) {
          std::vector<float> x(model.config().hidden), q(model.queryWidth()), k(model.keyWidth()),
              v(model.keyWidth());
          model.embed(prompt[position], x.data());
          model.project(0, position, x.data(), q.data(), k.data(), v.data());
          std::vector<float> key = rowAt(a.peer, a.peer.offered[0], g, i, false, position);
          if (key.empty())
            continue; // the window has given it back
          ++found;
          EXPECT_EQ(key, k) << position;
          EXPECT_EQ(rowAt(a.peer, a.peer.offered[0], g, i, true, position), v) << position;
        }
    }
    EXPECT_GE(found, 24u);
  }
}

// Only what is not cached here: from the first page on that lacks.
TEST_F(Peers, PagesThatAreCachedAreNotAskedFor) {
  const Setting &setting = kSettings[0];
  Side a(model, setting.groups), b(model, setting.groups);
  b.options.prefixCache = true;
  ASSERT_TRUE(a.open().ok() && b.open().ok());
  std::vector<kv::Token> prompt = promptOf(70), all = alone(setting.groups, prompt, 12);
  b.submit({.prompt = std::span(prompt).first(37)});
  b.run();
  a.submit({.prompt = prompt, .forPeer = true});
  a.run();
  prompt.push_back(all[0]);
  uint64_t id = b.submit({.prompt = prompt, .maxNewTokens = 11, .remoteTokens = 70});
  b.run();
  ASSERT_EQ(b.peer.wanted.size(), 1u);
  EXPECT_EQ(b.peer.wanted[0].first, 32u);
  ASSERT_EQ(b.peer.wanted[0].pages.size(), 3u);
  EXPECT_EQ(b.peer.wanted[0].pages[0].index, 2u);
  movePages(a.peer, a.peer.offered.at(0), b.peer, b.peer.wanted[0]);
  EXPECT_TRUE(b.server->transferDone(b.peer.wanted[0].transfer, 38));
  b.run();
  EXPECT_EQ(b.tokens[id], std::vector(all.begin() + 1, all.end()));
}

// A stop while a row is in flight: what that row writes lies behind what is offered.
TEST_F(Peers, WhatEndsByAStopIsOfferedWithItsAnswer) {
  for (uint32_t stepsInFlight : {1u, 2u}) {
    const Setting &setting = kSettings[1];
    Side a(model, setting.groups), b(model, setting.groups);
    a.options.scheduler.stepsInFlight = stepsInFlight;
    ASSERT_TRUE(a.open().ok() && b.open().ok());
    std::vector<kv::Token> prompt = promptOf(70), all = alone(setting.groups, prompt, 20);
    size_t end = 3;
    while (std::count(all.begin(), all.begin() + long(end), all[end]))
      ++end;
    ASSERT_LT(end, 10u);
    kv::Token stop = all[end];
    uint64_t id =
        a.submit({.prompt = prompt, .maxNewTokens = 20, .stopTokens = {&stop, 1}, .forPeer = true});
    a.run();
    EXPECT_EQ(a.reasons[id], FinishReason::Stop);
    ASSERT_EQ(a.peer.offered.size(), 1u);
    EXPECT_EQ(a.peer.offered[0].tokens, 70 + end);
    prompt.insert(prompt.end(), all.begin(), all.begin() + long(end) + 1);
    uint64_t next = b.submit({.prompt = prompt,
                              .maxNewTokens = uint32_t(19 - end),
                              .remoteTokens = a.peer.offered[0].tokens});
    b.run();
    ASSERT_EQ(b.peer.wanted.size(), 1u);
    movePages(a.peer, a.peer.offered[0], b.peer, b.peer.wanted[0]);
    EXPECT_TRUE(b.server->transferDone(b.peer.wanted[0].transfer, b.peer.wanted[0].tokens));
    b.run();
    EXPECT_EQ(b.tokens[next], std::vector(all.begin() + long(end) + 1, all.end()));
  }
}

// Who is aborted, or not wanted, leaves nothing behind.
TEST_F(Peers, OnlyWhatEndedAndIsTakenKeepsPages) {
  Side a(model, kSettings[0].groups);
  ASSERT_TRUE(a.open().ok());
  std::vector<kv::Token> prompt = promptOf(70);
  uint64_t id = a.submit({.prompt = prompt, .maxNewTokens = 50, .forPeer = true});
  EXPECT_TRUE(*a.server->advance());
  EXPECT_TRUE(a.server->abort(id));
  a.run();
  a.submit({.prompt = prompt});
  a.run();
  EXPECT_TRUE(a.peer.offered.empty());
  a.peer.takes = false;
  a.submit({.prompt = prompt, .forPeer = true});
  a.run();
  EXPECT_EQ(a.peer.offered.size(), 1u);
  EXPECT_EQ(a.pinned(), 0u);
  EXPECT_EQ(a.server->metrics().pagesUsed, 0u);
  EXPECT_FALSE(a.server->transferDone(a.peer.offered[0].transfer, 70));
}

TEST_F(Peers, TheMemoryIsThereFromAttachToDetach) {
  Side a(model, kSettings[0].groups);
  a.peer.refuses = true;
  EXPECT_EQ(a.open().toString(),
            "Unavailable: the memory of pages could not be attached: the network is away");
  a.peer.refuses = false;
  auto device = std::make_shared<FailingDevice>(a.device);
  a.device = device;
  ASSERT_TRUE(a.open().ok());
  EXPECT_EQ(a.peer.attached, 1);
  ASSERT_TRUE(a.peer.memory);

  // A device that is lost takes its memory, and transfers with it.
  std::vector<kv::Token> prompt = promptOf(70), all = alone(kSettings[0].groups, prompt, 12);
  a.submit({.prompt = prompt, .forPeer = true});
  a.run();
  ASSERT_EQ(a.peer.offered.size(), 1u);
  uint64_t waits = a.submit({.prompt = prompt, .maxNewTokens = 12, .remoteTokens = 64});
  a.run();
  ASSERT_EQ(a.peer.wanted.size(), 1u);
  device->lose();
  uint64_t id = a.submit({.prompt = prompt, .maxNewTokens = 12});
  a.run();
  EXPECT_EQ(a.peer.attached, 2);
  EXPECT_EQ(a.peer.cancelled, 1);
  EXPECT_FALSE(a.server->transferDone(a.peer.offered[0].transfer, 70));
  EXPECT_FALSE(a.server->transferDone(a.peer.wanted[0].transfer, 64));
  EXPECT_EQ(a.tokens[id], all);
  EXPECT_EQ(a.tokens[waits], all) << "computed here";
  ASSERT_TRUE(a.peer.memory);
  a.server.reset();
  EXPECT_FALSE(a.peer.memory);
}

} // namespace
} // namespace llmopt::test

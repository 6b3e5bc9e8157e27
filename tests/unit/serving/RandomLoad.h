// Random loads: whatever happens, each answer is the model's, each position is computed once
// plus what preemption cost, invariants hold after every step, and nobody waits longer than
// the bound of docs/design/scheduler.md.
#pragma once

#include "tests/unit/serving/Story.h"

#include <algorithm>
#include <random>
#include <set>

namespace llmopt::test {

struct Load {
  uint32_t steps = 1, drafts = 0;
  PolicyKind policy = PolicyKind::Fcfs;
  bool swap = false, aborts = false, cache = true, windows = false, tree = false;
  /// Several samples of a prompt; stops, deadlines, filters, failing rows and transfers.
  bool samples = false, events = false;
  /// Cached pages go to host memory, copies end late, and the cache is reset now and then.
  bool secondLevel = false;
  uint32_t requests = UINT32_MAX; ///< as many as there are names, at most
  uint64_t seed = 0;
  std::span<const uint8_t> bytes; ///< of a fuzzer: the first choices
};

/// Choices from the bytes of a fuzzer, as long as there are any, then from a seed.
class Choices {
public:
  explicit Choices(const Load &load) : random(load.seed), bytes(load.bytes) {}
  uint64_t operator()() {
    if (bytes.empty())
      return random();
    uint64_t value = bytes[0];
    bytes = bytes.subspan(1);
    return value;
  }

private:
  std::mt19937_64 random;
  std::span<const uint8_t> bytes;
};

/// Plays one load. What is wrong is a failure of the running test.
class RandomLoad : public TokenFilter, public KvConnector {
public:
  explicit RandomLoad(const Load &load)
      : load(load), random(load), story(optionsOf(load)),
        most(std::min<size_t>(load.requests, kNames.size())) {}

  /// Until all has ended, or `stop` says that enough is known.
  void play(const std::function<bool()> &stop);

  bool prepare(RequestHandle request, std::span<const kv::Token>) override {
    bool ready = upTo(3) > 0;
    masks[request.slot] = ready ? Mask::Ready : Mask::Awaited;
    return ready;
  }
  uint32_t allowedDrafts(RequestHandle, std::span<const kv::Token> drafts) override {
    return uint32_t(drafts.size());
  }
  bool start(const IncomingKv &given) override {
    if (upTo(4) == 0)
      return false;
    peerWrites(given);
    incoming.push_back(given);
    return true;
  }
  /// Some are taken, a few at a time.
  bool offer(const OutgoingKv &given) override {
    if (outgoing.size() == 2 || upTo(3) == 0)
      return false;
    Sent &sent = outgoing.emplace_back();
    sent.transfer = given.transfer;
    for (const TransferPage &page : given.pages)
      sent.pages.emplace_back(page, story.mover.owners.changesOf(page.group, page.page));
    return true;
  }
  void cancel(kv::TransferId transfer) override {
    bool known = std::ranges::any_of(incoming, [&](auto &i) { return i.transfer == transfer; });
    EXPECT_TRUE(known) << "a transfer that was not started is cancelled";
  }

private:
  StoryOptions optionsOf(const Load &load);
  uint64_t waitingBound(uint64_t older) const;
  uint32_t upTo(uint32_t n) { return uint32_t(random() % n); }
  void add();
  void abortSomebody();
  void peerWorks();
  void peerHasRead();
  void copiesEnd();
  void peerWrites(const IncomingKv &given);
  void launch();
  void land();
  void checkEnds();
  bool alive(char name) { return story.scheduler->alive(story.handles[name]); }

  static constexpr std::string_view kNames =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

  Load load;
  Choices random;
  Story story;
  size_t most; ///< requests
  size_t next = 0;
  std::map<char, uint64_t> bornAt, boundOf;
  std::map<char, uint32_t> stopAt;
  std::set<char> cut; ///< ended by an abort, a deadline or a failure
  enum class Mask { Awaited, Ready, Used };
  std::map<uint32_t, Mask> masks; ///< of request slots: for the next token
  std::vector<IncomingKv> incoming;
  struct Sent {
    kv::TransferId transfer;
    std::vector<std::pair<TransferPage, uint64_t>> pages; ///< and how often each had changed
  };
  std::vector<Sent> outgoing;
  std::vector<kv::TransferId> over;
};

} // namespace llmopt::test

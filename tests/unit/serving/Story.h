// A scheduler with a block manager and a simulated device, told step by step. Requests have
// one-letter names; a step reads "A:0+8 B:16+1!": A computes 8 tokens from slot 0 on, B one
// token at slot 16, and "!" marks rows that yield a token ("?" before the count: the row
// follows one in flight, and its base is the least that it can be; "k" drafts as "+1~k").
#pragma once

#include "runtime/engine/SimExecutor.h"
#include "runtime/kv/Pool.h"
#include "runtime/scheduler/Scheduler.h"
#include "tests/unit/serving/PageOwners.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <gtest/gtest.h>
#include <map>

namespace llmopt::test {

using namespace llmopt::runtime;

struct StoryOptions {
  uint32_t pages = 64, pageSize = 4, maxTokens = 4096;
  uint64_t hostPages = 0;
  uint32_t demoteBelow = 0, cacheEvents = 0;
  uint32_t maxSequences = 0; ///< 0: twice what may run
  double acceptance = 0;
  bool cache = true;
  std::vector<kv::GroupSpec> groups; ///< empty: one full group
  SchedulerOptions scheduler;

  StoryOptions() {
    scheduler.tokenBudget = 64;
    scheduler.maxRunning = 8;
    scheduler.maxWaiting = 64;
    scheduler.maxLength = 2048;
    scheduler.growthTokens = 4;
  }
};

/// Copies pages at once, or when the test says so.
class InstantMover : public kv::PageMover {
public:
  kv::EventId copyOut(std::span<const kv::PageMove> moves, kv::StepId) override {
    owners.copyOut(moves);
    return ++events;
  }
  kv::EventId copyIn(std::span<const kv::PageMove> moves, kv::StepId) override {
    owners.copyIn(moves);
    return ++events;
  }
  bool done(kv::EventId event) override { return event <= finished; }
  kv::EventId started() const { return events; }

  kv::EventId finished = UINT64_MAX; ///< the last event that is over
  PageOwners owners;

private:
  kv::EventId events = 0;
};

struct Ask {
  uint32_t prompt = 8, answer = 4, priority = 0, adapter = 0;
  uint32_t stream = UINT32_MAX; ///< prompts with equal streams begin alike; default: its own
  uint64_t seed = 0;
  int64_t deadline = kNoDeadline;
  std::vector<kv::Token> stops = {};
  TokenFilter *filter = nullptr;
  bool logprobs = false, greedy = true;
  uint32_t remote = 0; ///< tokens that a peer has
  bool forPeer = false;
  bool neverInsert = false;
  std::vector<kv::MediaSpan> media = {};
  kv::CacheKey key = {};
  char group = 0; ///< the first of its samples
};

class Story : public RequestListener, public TokenSource {
public:
  explicit Story(StoryOptions wanted = {}) : options(std::move(wanted)) {
    kv::ManagerOptions manager;
    manager.groups = options.groups;
    ModelFacts model = llama8b(options.pageSize);
    if (manager.groups.empty())
      manager.groups = {model.groups[0].group};
    model.groups.resize(manager.groups.size(), model.groups[0]);
    for (size_t g = 0; g < manager.groups.size(); ++g)
      model.groups[g].group = manager.groups[g];
    manager.budgetBytes = kv::ManagerOptions::bytesForPages(manager.groups, options.pages);
    manager.hostBytes = options.hostPages * manager.groups[0].pageBytes();
    manager.maxSequences =
        options.maxSequences ? options.maxSequences : 2 * options.scheduler.maxRunning;
    manager.maxTokens = options.maxTokens;
    manager.maxStepsInFlight = options.scheduler.stepsInFlight;
    manager.maxDraft = options.scheduler.maxDraft();
    manager.cache.enabled = options.cache;
    manager.cache.events = options.cacheEvents;
    manager.demoteBelow = options.demoteBelow;
    auto made = kv::BlockManager::create(manager, &mover);
    EXPECT_TRUE(made.ok()) << made.status().toString();
    blocks = std::move(*made);
    auto created = Scheduler::create(options.scheduler, *blocks, *this);
    EXPECT_TRUE(created.ok()) << created.status().toString();
    scheduler = std::move(*created);
    SimOptions sim;
    sim.stepsInFlight = options.scheduler.stepsInFlight;
    sim.groups = uint32_t(manager.groups.size());
    sim.tableSlots = manager.maxSequences;
    sim.maxDraft = manager.maxDraft;
    sim.acceptance = options.acceptance;
    device = std::make_unique<SimExecutor>(sim, StepCost(model, accelerators()[1], {}), *this);
  }

  static kv::Token promptToken(uint32_t stream, uint32_t i) { return stream * 10000 + i; }
  static kv::Token answerToken(char name, uint32_t i) {
    return 1'000'000u + uint32_t(uint8_t(name)) * 10000 + i;
  }

  /// Samples of one prompt, one for each name.
  Status trySamples(const std::string &samples, const Ask &ask) {
    uint32_t stream = ask.stream == UINT32_MAX ? uint32_t(uint8_t(samples[0])) : ask.stream;
    std::vector<kv::Token> prompt(ask.prompt);
    for (uint32_t i = 0; i < ask.prompt; ++i)
      prompt[i] = promptToken(stream, i);
    RequestParams params;
    params.prompt = prompt;
    params.maxNewTokens = ask.answer;
    params.priority = ask.priority;
    params.adapter = ask.adapter;
    params.samplingSeed = ask.seed;
    params.deadlineNs = ask.deadline;
    params.stopTokens = ask.stops;
    params.filter = ask.filter;
    params.promptLogprobs = ask.logprobs;
    params.greedy = ask.greedy;
    params.remoteTokens = ask.remote;
    params.forPeer = ask.forPeer;
    params.neverInsert = ask.neverInsert;
    params.media = ask.media;
    params.key = ask.key;
    std::vector<RequestHandle> given(samples.size());
    LLMOPT_RETURN_IF_ERROR(scheduler->submit(params, given, now));
    for (size_t i = 0; i < samples.size(); ++i) {
      char name = samples[i];
      names[given[i].slot] = name;
      handles[name] = given[i];
      answers[name].clear();
      asked[name] = ask;
      asked[name].stream = stream;
      asked[name].group = samples[0];
    }
    return {};
  }
  StatusOr<RequestHandle> tryAdd(char name, const Ask &ask) {
    LLMOPT_RETURN_IF_ERROR(trySamples({name}, ask));
    return handles[name];
  }
  void addSamples(const std::string &samples, const Ask &ask) {
    Status status = trySamples(samples, ask);
    ASSERT_TRUE(status.ok()) << status.toString();
  }
  void add(char name, const Ask &ask) {
    auto handle = tryAdd(name, ask);
    ASSERT_TRUE(handle.ok()) << handle.status().toString();
  }
  void abort(char name) { EXPECT_TRUE(scheduler->abort(handles.at(name), now)); }

  /// Launches one step; its rows as text, "" when there is none.
  std::string launch() {
    std::span<const uint8_t> bytes = scheduler->schedule(now);
    if (bytes.empty())
      return "";
    lastBytes.assign(bytes.begin(), bytes.end());
    inFlight.push_back({bytes, lastBytes});
    while (inFlight.size() > scheduler->stepsInFlight())
      inFlight.pop_front(); // lost with their device, or landed by the test itself
    auto input = StepInput::parse(bytes);
    EXPECT_TRUE(input.ok()) << input.status().toString();
    Status taken = device->submit(bytes, now);
    if (taken.code() == StatusCode::Unavailable) { // a fresh device has no tables
      std::vector<uint64_t> tables = scheduler->snapshot();
      Status restored = device->restore(
          {reinterpret_cast<const uint8_t *>(tables.data()), tables.size() * sizeof(uint64_t)});
      EXPECT_TRUE(restored.ok()) << restored.toString();
      taken = device->submit(bytes, now);
    }
    EXPECT_TRUE(taken.ok()) << taken.toString();
    ++steps;
    for (const step::Row &row : input->rows())
      checkRow(*input, row);
    checkOwners(*input);
    EXPECT_EQ(input->references().size(),
              size_t(std::ranges::count_if(input->tokens(),
                                           [](const step::Token &token) { return token.id < 0; })))
        << "each reference is a token's";
    std::string text;
    for (const step::Row &row : input->rows()) {
      text += fmt::format("{}{}:{}{}+{}", text.empty() ? "" : " ", names[row.request],
                          row.predecessorAgo ? "?" : "", row.baseLength,
                          row.tokenCount - row.draftCount);
      if (row.draftCount)
        text += fmt::format("~{}", row.draftCount);
      if (row.flags & step::kSamples)
        text += "!";
    }
    return text;
  }
  /// Takes the oldest step's results.
  void land() {
    auto result = device->wait();
    ASSERT_TRUE(result.ok()) << result.status().toString();
    now = std::max(now, (*result)->finishedNs);
    StepResult taken = **result;
    if (adjust)
      adjust(taken);
    if (!inFlight.empty()) { // else the test has submitted the step by itself
      EXPECT_TRUE(std::equal(inFlight[0].kept.begin(), inFlight[0].kept.end(),
                             inFlight[0].bytes.begin(), inFlight[0].bytes.end()))
          << "the bytes of a step changed while it was in flight";
      inFlight.pop_front();
    }
    Status done = scheduler->complete(taken, now);
    ASSERT_TRUE(done.ok()) << done.toString();
  }
  PageOwner ownerOf(const Ask &ask) const {
    return {ask.adapter, ask.neverInsert ? ask.group : '\0'};
  }
  /// Nobody reads what was written with another adapter, or what was not to be shared.
  void checkOwners(const StepInput &input) {
    for (const step::Copy &copy : input.copies())
      mover.owners.copy(copy.group, copy.from, copy.to);
    for (bool writes : {false, true})
      for (const step::Row &row : input.rows()) {
        const Ask &ask = asked[names[row.request]];
        for (uint32_t g = 0; g < input.header().groupCount; ++g) {
          const kv::GroupSpec &spec = blocks->options().groups[g];
          uint32_t size = spec.pageSize;
          std::span<const int32_t> table = device->tables().table(g, row.tableSlot);
          uint32_t first = writes ? row.baseLength : 0,
                   end = writes ? row.lengthBound : row.baseLength;
          for (uint32_t page = first / size; page * size < end && page < table.size(); ++page) {
            bool gone =
                page * size >= spec.sink && (page + 1) * size <= spec.firstKey(row.baseLength);
            if (writes)
              mover.owners.write(g, table[page], ownerOf(ask));
            else if (!gone)
              EXPECT_TRUE(mover.owners.mayRead(g, table[page], ask.adapter, ask.group))
                  << names[row.request] << " reads page " << page << " of somebody else's";
          }
        }
      }
  }
  /// What the device is told must be right in itself.
  void checkRow(const StepInput &input, const step::Row &row) {
    char name = names[row.request];
    const Ask &ask = asked[name];
    bool behind = row.predecessorAgo != 0;
    // Slots up to the bound have pages.
    for (uint32_t g = 0; g < input.header().groupCount; ++g) {
      uint32_t size = blocks->options().groups[g].pageSize;
      std::span<const int32_t> table = device->tables().table(g, row.tableSlot);
      for (uint32_t page = row.baseLength / size; page * size < row.lengthBound; ++page)
        EXPECT_TRUE(page < table.size() && table[page] >= 0)
            << name << " has no page " << page << " in group " << g;
    }
    // Tokens that the host writes are those of the sequence; behind a row in flight it may not.
    for (uint32_t i = 0; i < (row.phase == step::Phase::Verify ? 1 : row.tokenCount); ++i) {
      int32_t id = input.tokensOf(row)[i].id;
      uint32_t at = row.baseLength + i;
      EXPECT_EQ(id < 0, behind) << name;
      if (id >= 0)
        EXPECT_EQ(kv::Token(id), at < ask.prompt ? promptToken(ask.stream, at)
                                                 : answerToken(name, at - ask.prompt))
            << name << " at " << at;
    }
    for (size_t i = 0; i + 1 < inFlight.size(); ++i) {
      auto earlier = StepInput::parse(inFlight[i].kept);
      for (const step::Row &other : earlier->rows())
        if (other.request == row.request && other.generation == row.generation &&
            (other.flags & step::kSamples))
          EXPECT_TRUE(behind) << name << " has a row in flight";
    }
    for (const step::Token &token : input.tokensOf(row))
      if (token.id < 0)
        EXPECT_LE(input.header().stepId - input.references()[size_t(-1 - token.id)].step,
                  options.scheduler.stepsInFlight)
            << "the device keeps no more steps than may be in flight";
    EXPECT_LE(row.lengthBound, ask.prompt + ask.answer) << name;
    // What keys its random numbers, and ends its answer. Behind a row in flight: at least.
    if (row.flags & step::kSamples) {
      uint32_t last = row.phase == step::Phase::Prefill ? row.tokenCount : 1;
      EXPECT_EQ(row.outputPosition, row.baseLength + last - ask.prompt) << name;
    }
    EXPECT_LT(row.outputPosition, ask.answer) << name;
    EXPECT_EQ(row.outputLimit, ask.answer) << name;
    EXPECT_EQ(row.adapter, ask.adapter) << name;
    EXPECT_EQ((row.flags & step::kGreedy) != 0, ask.greedy) << name;
    EXPECT_EQ((row.flags & step::kFiltered) != 0, ask.filter != nullptr) << name;
    EXPECT_LE(input.tokens().size(), options.scheduler.tokenBudget);
  }
  /// One synchronous step.
  std::string step() {
    std::string text = launch();
    if (!text.empty())
      land();
    checkAll();
    return text;
  }
  void checkAll() {
    Status sound = scheduler->check();
    ASSERT_TRUE(sound.ok()) << sound.toString();
  }
  /// Keeps D steps in flight until nothing is left to do.
  void runOut(bool checking = true, uint64_t most = 100000) {
    for (uint64_t i = 0; i < most; ++i) {
      if (scheduler->stepsInFlight() < options.scheduler.stepsInFlight && !launch().empty())
        continue;
      if (!scheduler->stepsInFlight())
        break;
      land();
      if (checking)
        checkAll();
      if (testing::Test::HasFatalFailure())
        return;
    }
    EXPECT_TRUE(scheduler->idle());
  }
  /// Nothing is held: all pages are free or cached.
  void expectEmpty() {
    const kv::Pool &pool = blocks->pool();
    EXPECT_EQ(pool.count(kv::PageState::Used) + pool.count(kv::PageState::Pending) +
                  pool.count(kv::PageState::Swapping) + pool.count(kv::PageState::Pinned),
              0u);
    checkAll();
  }
  /// The answer is the model's, token for token.
  void expectAnswer(char name, uint32_t tokens) {
    ASSERT_EQ(answers[name].size(), tokens) << name;
    for (uint32_t i = 0; i < tokens; ++i)
      EXPECT_EQ(answers[name][i], answerToken(name, i)) << name << " " << i;
  }
  const Request &at(char name) { return scheduler->request(handles.at(name).slot); }

  void onTokens(RequestHandle request, std::span<const kv::Token> tokens, int64_t) override {
    std::vector<kv::Token> &answer = answers[names[request.slot]];
    answer.insert(answer.end(), tokens.begin(), tokens.end());
  }
  void onFinish(RequestHandle request, FinishReason reason, int64_t) override {
    ends += fmt::format("{}{}:{}", ends.empty() ? "" : " ", names[request.slot], toString(reason));
    endStep[names[request.slot]] = steps;
  }
  kv::Token token(uint32_t request, uint32_t, uint32_t position) override {
    return answerToken(names[request], position);
  }

  StoryOptions options;
  InstantMover mover;
  std::unique_ptr<kv::BlockManager> blocks;
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<SimExecutor> device;
  std::map<uint32_t, char> names; ///< of request slots
  std::map<char, RequestHandle> handles;
  std::map<char, std::vector<kv::Token>> answers;
  std::map<char, Ask> asked;
  std::map<char, uint64_t> endStep;
  std::string ends; ///< "A:length B:stop"
  std::vector<uint8_t> lastBytes;
  std::function<void(StepResult &)> adjust; ///< of results, before they are taken
  struct Bytes {
    std::span<const uint8_t> bytes;
    std::vector<uint8_t> kept;
  };
  std::deque<Bytes> inFlight;
  uint64_t steps = 0;
  int64_t now = 0;
};

} // namespace llmopt::test

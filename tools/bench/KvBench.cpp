// Times of the KV block manager, on one core:
//
//   kv-bench [--benchmark_filter=REGEX] [--benchmark_repetitions=5]
//
// Manual times are of this thread alone and a page, a look-up or an admission each;
// docs/design/kv.md states the bounds. The pools are the production ones with the cache on, after a
// million random calls, so that lists and tree lie scattered in memory.
#include "runtime/kv/BlockManager.h"
#include "tools/bench/ThreadClock.h"

#include <benchmark/benchmark.h>
#include <numeric>
#include <random>

using namespace llmopt::runtime;
using namespace llmopt::runtime::kv;

namespace {

constexpr uint32_t kPageSize = 16;

std::vector<GroupSpec> oneGroup() {
  GroupSpec group;
  group.pageSize = kPageSize;
  group.dataBytes = 4096;
  return {group};
}

double seconds() { return 1e-9 * static_cast<double>(llmopt::bench::threadNs()); }
const double clockSeconds = 1e-9 * static_cast<double>(llmopt::bench::threadClockNs());
/// Since `begin`, without what asking the clock takes.
double secondsSince(double begin) { return std::max(seconds() - begin - clockSeconds, 1e-9); }

/// A pool with its cache and without sequences.
struct PoolAndCache {
  explicit PoolAndCache(uint32_t pages)
      : pool(*layOut(oneGroup(), uint64_t{pages} * 4096), 2), cache({}, pool, nullptr, 8) {
    pool.setCache(&cache);
  }
  /// Caches all pages, as chains of 64 under one root, in a random order of pages.
  void fill(std::mt19937 &random) {
    static uint32_t next = 0;
    std::vector<Frame> frames;
    for (uint32_t i = 0; i < pool.layout().frames(); ++i)
      frames.push_back(pool.take(0));
    std::shuffle(frames.begin(), frames.end(), random);
    Prompt prompt({}, {}, kPageSize);
    NodeId root = cache.rootOf(prompt), at = root;
    cache.hold(root);
    for (size_t i = 0; i < frames.size(); ++i) {
      Token tokens[kPageSize];
      std::fill_n(tokens, kPageSize, next++);
      at = cache.childOf(i % 64 ? at : root, tokens, {});
      cache.attach(at, 0, PageRef::device(frames[i]));
    }
    for (size_t chain = 0; chain < frames.size(); chain += 64)
      for (size_t i = std::min(chain + 64, frames.size()); i-- > chain;)
        pool.dropRef(frames[i], 0);
    cache.drop(root);
  }

  Pool pool;
  PrefixCache cache;
};

void allocateAndFree(benchmark::State &state) {
  PoolAndCache made(static_cast<uint32_t>(state.range(0)));
  Pool &pool = made.pool;
  std::mt19937 random(1);
  std::vector<Frame> held;
  for (uint32_t i = 0; i < pool.layout().frames() * 9 / 10; ++i)
    held.push_back(pool.take(0));
  for (int i = 0; i < 1000000; ++i) {
    size_t at = random() % held.size();
    pool.dropRef(held[at], 0);
    held[at] = pool.take(0);
  }
  // Pages are given back as `finish` does it, the next ones on their way.
  std::vector<uint32_t> order(1 << 16);
  for (uint32_t &at : order)
    at = random() % held.size();
  for (auto _ : state) {
    double begin = seconds();
    for (size_t i = 0; i < order.size(); ++i) {
      pool.fetch(held[order[(i + 8) % order.size()]]);
      pool.dropRef(held[order[i]], 0);
      held[order[i]] = pool.take(0);
    }
    state.SetIterationTime(secondsSince(begin) / static_cast<double>(order.size()));
  }
  state.counters["bytes_per_page"] = static_cast<double>(pool.bytes() + made.cache.bytes()) /
                                     static_cast<double>(pool.layout().frames());
}

void evictAndUnhash(benchmark::State &state) {
  PoolAndCache made(static_cast<uint32_t>(state.range(0)));
  std::mt19937 random(1);
  uint32_t pages = made.pool.layout().frames();
  made.fill(random);
  for (auto _ : state) {
    double begin = seconds();
    for (uint32_t i = 0; i < pages; ++i)
      benchmark::DoNotOptimize(made.pool.take(0));
    state.SetIterationTime(secondsSince(begin) / pages);
    for (Frame f = 0; f < pages; ++f)
      made.pool.dropRef(f, 0);
    made.fill(random);
  }
  if (made.pool.evicted() < pages)
    state.SkipWithError("nothing was evicted");
}

/// A manager whose pool is full of cached pages after a million tokens and more have
/// gone through it, and a prompt of 32k tokens that is wholly cached, tail excepted.
struct Served {
  explicit Served(uint32_t pages) : tokens(32768 + 1) {
    ManagerOptions options;
    options.groups = oneGroup();
    options.budgetBytes = uint64_t{pages} * 4096;
    options.maxSequences = 64;
    options.maxTokens = 40000;
    kv = std::move(*BlockManager::create(options));
    std::mt19937 random(1);
    uint64_t wanted = std::max<uint64_t>(uint64_t{pages} * kPageSize * 2, 1000000);
    for (uint64_t done = 0; done < wanted;) {
      std::vector<Token> other(16 + random() % 2000);
      for (Token &token : other)
        token = random();
      run(other);
      done += other.size();
    }
    for (std::vector<Token> *text : {&second, &tokens}) {
      text->resize(tokens.size());
      for (Token &token : *text)
        token = random();
      run(*text);
    }
  }
  void run(const std::vector<Token> &prompt) {
    Prompt asked(prompt, {}, kPageSize);
    kv->openStep();
    Admission admission = kv->admit(asked, UINT32_MAX);
    StepId step = kv->closeStep().step;
    kv->commit(admission.sequence, step, std::span(prompt).subspan(admission.hit.tokens));
    kv->completeStep(step);
    kv->finish(admission.sequence);
  }

  std::unique_ptr<BlockManager> kv;
  std::vector<Token> tokens, second; ///< of equal length, nothing in common
};

/// `again`: the prompt before was the same one, and its path is compared first. Else it was
/// another.
void lookUp32k(benchmark::State &state, bool cold, bool again) {
  Served served(static_cast<uint32_t>(state.range(0)));
  Prompt prompt(served.tokens, {}, kPageSize), before(served.second, {}, kPageSize);
  std::vector<char> other(cold ? 256 << 20 : 0);
  uint32_t hit = 0;
  for (auto _ : state) {
    if (!again) {
      Prompt fresh = before;
      benchmark::DoNotOptimize(served.kv->match(fresh).tokens);
    }
    for (size_t i = 0; i < other.size(); i += 64)
      other[i] = static_cast<char>(other[i] + 1);
    Prompt fresh = prompt;
    double begin = seconds();
    hit = served.kv->match(fresh).tokens;
    state.SetIterationTime(secondsSince(begin));
  }
  if (hit != 32768)
    state.SkipWithError("the prompt is not cached");
}

/// Look-up, pinning of 2,048 pages, one new page, and its end.
void admit32k(benchmark::State &state) {
  Served served(static_cast<uint32_t>(state.range(0)));
  Prompt prompt(served.tokens, {}, kPageSize);
  for (auto _ : state) {
    Prompt fresh = prompt;
    served.kv->openStep();
    double begin = seconds();
    Admission admission = served.kv->admit(fresh, 64);
    state.SetIterationTime(secondsSince(begin));
    StepId step = served.kv->closeStep().step;
    served.kv->completeStep(step);
    served.kv->finish(admission.sequence);
    if (admission.hit.tokens != 32768)
      state.SkipWithError("the prompt is not cached");
  }
}

/// A prompt that waits for pages asks again after each step.
void retryOfAWaiter(benchmark::State &state) {
  Served served(20000);
  // Others hold all pages but those of the prompt.
  served.kv->openStep();
  std::vector<std::vector<Token>> texts;
  std::mt19937 random(7);
  for (uint32_t left = 20000 - 2048; left > 0;) {
    texts.emplace_back(std::min<uint32_t>(left, 1000) * kPageSize);
    for (Token &token : texts.back())
      token = random();
    Prompt prompt(texts.back(), {}, kPageSize);
    if (served.kv->admit(prompt, UINT32_MAX).reply != Reply::Ok)
      state.SkipWithError("the pool could not be filled");
    left -= static_cast<uint32_t>(texts.back().size()) / kPageSize;
  }
  Prompt waiter(served.tokens, {}, kPageSize);
  served.kv->admit(waiter, 64);
  for (auto _ : state)
    benchmark::DoNotOptimize(served.kv->admit(waiter, 64).reply);
  if (served.kv->admit(waiter, 64).reply != Reply::TemporaryLack)
    state.SkipWithError("the waiter was admitted");
}

/// One step of 256 running sequences with one token each.
void decodeStep256(benchmark::State &state) {
  ManagerOptions options;
  options.groups = oneGroup();
  options.budgetBytes = uint64_t{20000} * 4096;
  options.maxTokens = 8192;
  std::unique_ptr<BlockManager> kv = std::move(*BlockManager::create(options));
  std::vector<SequenceId> ids;
  std::vector<std::vector<Token>> texts;
  auto start = [&](uint32_t i) {
    texts.emplace_back(64 + i % 16);
    std::iota(texts.back().begin(), texts.back().end(), i * 10000);
    Prompt prompt(texts.back(), {}, kPageSize);
    return kv->admit(prompt, UINT32_MAX).sequence;
  };
  kv->openStep();
  for (uint32_t i = 0; i < 256; ++i)
    ids.push_back(start(i));
  StepId step = kv->closeStep().step;
  for (uint32_t i = 0; i < 256; ++i)
    kv->commit(ids[i], step, texts[i]);
  kv->completeStep(step);
  Token token = 1;
  for (auto _ : state) {
    kv->openStep();
    for (SequenceId id : ids)
      benchmark::DoNotOptimize(kv->reserve(id, 1));
    step = kv->closeStep().step;
    for (SequenceId id : ids)
      kv->commit(id, step, {&token, 1});
    kv->completeStep(step);
    ++token;
    if (kv->committedTokens(ids[0]) > 1000) { // begin anew before the pool is full
      state.PauseTiming();
      for (SequenceId &id : ids)
        kv->finish(id);
      texts.clear();
      kv->openStep();
      for (uint32_t i = 0; i < 256; ++i)
        ids[i] = start(token * 1000 + i);
      step = kv->closeStep().step;
      for (uint32_t i = 0; i < 256; ++i)
        kv->commit(ids[i], step, texts[i]);
      kv->completeStep(step);
      state.ResumeTiming();
    }
  }
}

BENCHMARK(allocateAndFree)->Arg(20000)->Arg(1000000)->UseManualTime()->Iterations(100);
BENCHMARK(evictAndUnhash)->Arg(20000)->Arg(1000000)->UseManualTime()->Iterations(3);
BENCHMARK_CAPTURE(lookUp32k, again, false, true)
    ->Arg(20000)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(lookUp32k, warm, false, false)
    ->Arg(20000)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(lookUp32k, cold, true, false)
    ->Arg(1000000)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond)
    ->Iterations(10);
BENCHMARK(admit32k)->Arg(20000)->UseManualTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(retryOfAWaiter);
BENCHMARK(decodeStep256)->Unit(benchmark::kMicrosecond);

} // namespace

BENCHMARK_MAIN();

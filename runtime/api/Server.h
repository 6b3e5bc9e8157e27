// The whole serving runtime behind one object: executor, block manager, prefix cache, scheduler
// and engine. The application gives a model (ModelLayers), the layer groups with their kernels,
// and requests; it gets tokens.
//
//   StatusOr<std::unique_ptr<Server>> server = Server::create(options, source, model);
//   StatusOr<uint64_t> request = (*server)->submit(params);
//   for (StatusOr<bool> busy = true; busy && *busy; busy = (*server)->advance())
//     for (ServerEvent event; (*server)->next(event);)
//       ...
//
// One thread calls it.
#pragma once

#include "runtime/engine/Engine.h"
#include "runtime/executor/ModelExecutor.h"
#include "runtime/scheduler/Scheduler.h"

#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

namespace llmopt::runtime {

struct ServerOptions {
  std::vector<LayerGroup> groups; ///< dataBytes 0: as the layers need
  std::vector<KernelRule> rules;
  uint64_t pages = 1024;  ///< of the first group that keeps all, on the device
  uint64_t hostPages = 0; ///< for preempted requests; 0: they are computed again
  bool prefixCache = true;
  bool secondLevel = true;  ///< host pages also keep cached ones, where a copy is cheaper
  uint64_t cacheSeed = 0;   ///< another one each start
  uint32_t cacheEvents = 0; ///< that are kept until `nextCacheEvent` takes them; 0: none is made
  std::vector<CaptureBucket> captures; ///< steps that are replayed instead of launched
  /// As the executor's; `cascadeLevels` 0: no two requests share items.
  PlanOptions plan = ExecutorOptions().plan;
  SchedulerOptions scheduler;
  kv::CostModel costs;
  EngineOptions engine;
};

struct ServerEvent {
  enum class Kind : uint8_t { Token, Finish };
  uint64_t request = 0;
  Kind kind = Kind::Token;
  kv::Token token = 0;
  FinishReason reason = FinishReason::None;
};

class Server : private RequestListener {
public:
  /// Loads and checks all kernels, allocates all memory. `model` outlives the server.
  static StatusOr<std::unique_ptr<Server>> create(std::shared_ptr<Device> device,
                                                  ServerOptions options, const KernelSource &source,
                                                  ModelLayers &model);
  ~Server() override;

  /// Queues a request; its number names it in events and is never used again. Errors as
  /// Scheduler::submit.
  StatusOr<uint64_t> submit(const RequestParams &params);
  /// Several samples of one prompt, which is computed once (Scheduler::submit). Gives the
  /// number of the first; the others have the numbers behind it. Each ends by itself.
  StatusOr<uint64_t> submit(const RequestParams &params, uint32_t samples);
  /// False when it has ended already.
  bool abort(uint64_t request);
  /// The answer of its TokenFilter is there (RequestParams::filter). False when it has ended.
  bool filterReady(uint64_t request);
  /// The peer of a KvConnector (SchedulerOptions::connector) has ended, and the first `tokens`
  /// tokens of the transfer are there, or nothing of it. False for a note that comes late.
  bool transferDone(kv::TransferId transfer, uint32_t tokens);
  bool transferFailed(kv::TransferId transfer);
  /// Launches a step or takes the results of one; false when there is nothing to do. A request
  /// that waits for its filter or its peer is something to do: true at once, whatever else there
  /// is. A failure is final.
  StatusOr<bool> advance();
  /// The oldest event that was not taken.
  bool next(ServerEvent &event);

  /// The weights have changed: nothing that was computed before is hit any more (Scheduler).
  void resetCache() { scheduler->resetCache(); }
  /// The oldest event of the prefix cache that was not taken, for a router in front.
  bool nextCacheEvent(kv::CacheEvent &event) { return scheduler->nextCacheEvent(event); }
  /// Events that were lost since the last call because nobody took them; a router then asks for
  /// all blocks.
  uint64_t lostCacheEvents() { return scheduler->lostCacheEvents(); }
  /// visit(block, parent) for each block that can be hit.
  template <typename Visit> void forEachCachedBlock(Visit visit) const {
    blocks->cache().forEachBlock(visit);
  }

  /// Of scheduler, block manager and executor. The executor's as of the last step that has run.
  ServingMetrics metrics() const;
  /// Where the pages of a sequence are, for a KvConnector (BlockManager::pageAt).
  const kv::BlockManager &manager() const { return *blocks; }
  kv::Counters pageCounters() const { return blocks->counters(); }
  /// Walks all states and says the first broken invariant. O(requests and pages).
  Status check() const { return scheduler->check(); }
  /// Of the clock that deadlines are measured by.
  int64_t now() { return clock.now(); }

private:
  Server() = default;
  void onTokens(RequestHandle request, std::span<const kv::Token> tokens, int64_t) override;
  void onFinish(RequestHandle request, FinishReason reason, int64_t) override;

  MachineClock clock;
  std::unique_ptr<ModelExecutor> executor;
  std::unique_ptr<kv::BlockManager> blocks;
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<Engine> engine;
  std::vector<uint64_t> numbers; ///< of the requests in the scheduler's slots
  std::unordered_map<uint64_t, RequestHandle> handles;
  std::deque<ServerEvent> events;
  uint64_t submitted = 0;
};

} // namespace llmopt::runtime

// The whole runtime around the tiny model: executor, block manager, scheduler, engine.
#pragma once

#include "Specs.h"

#include "runtime/device/cpu/CpuDevice.h"
#include "runtime/engine/Engine.h"
#include "runtime/executor/ModelExecutor.h"
#include "runtime/scheduler/Scheduler.h"

#include <functional>
#include <gtest/gtest.h>

namespace llmopt::test {

struct ServerOptions {
  SpecOptions spec;
  std::vector<TinyGroup> groups; ///< empty: all layers in one group that keeps all
  uint64_t pages = 256, hostPages = 0;
  uint32_t threads = 2;
  uint32_t maxSequences = 0; ///< 0: twice what may run
  bool cache = true;
  kv::CostModel costs;
  SchedulerOptions scheduler;
  std::shared_ptr<Device> device; ///< empty: the CPU
  uint32_t cascadeLevels = 2;
  std::vector<CaptureBucket> captures;

  ServerOptions() {
    scheduler.tokenBudget = 256;
    scheduler.maxRunning = 16;
    scheduler.maxWaiting = 128;
    scheduler.maxLength = 4608;
    scheduler.growthTokens = 4;
  }
};

struct Outcome {
  std::vector<kv::Token> prompt;
  uint32_t asked = 0;
  bool greedy = true;
  uint64_t seed = 0;
  RequestHandle handle;
  Answer answer;
  FinishReason reason = FinishReason::None;
  bool inFlight = false; ///< it ended while a row of it was in flight
};

class Server : public RequestListener {
public:
  explicit Server(const ServerOptions &options, TinyLayers &layers);

  StatusOr<size_t> add(RequestParams params);
  Status addSamples(RequestParams params, uint32_t samples);
  void abort(size_t index) { scheduler->abort(outcomes[index].handle, clock.now()); }
  /// Until nothing is left. `each` is called after each completed step.
  void runOut(const std::function<void()> &each = {});

  void onTokens(RequestHandle request, std::span<const kv::Token> tokens, int64_t) override;
  void onFinish(RequestHandle request, FinishReason reason, int64_t) override;

  ServerOptions options;
  TinyLayers &layers;
  std::unique_ptr<ModelExecutor> executor;
  std::unique_ptr<kv::BlockManager> blocks;
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<Engine> engine;
  MachineClock clock;
  std::vector<Outcome> outcomes;
  std::map<uint32_t, size_t> indexOf; ///< of request slots
  uint64_t steps = 0;
};

} // namespace llmopt::test

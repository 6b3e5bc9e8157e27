#include "Server.h"

#include "runtime/kv/Pool.h"

#include <stdexcept>

using namespace llmopt;
using namespace llmopt::test;

namespace {

template <typename T> T valueOf(StatusOr<T> value) {
  if (!value)
    throw std::runtime_error(value.status().toString());
  return *std::move(value);
}

} // namespace

Server::Server(const ServerOptions &wanted, TinyLayers &layers) : options(wanted), layers(layers) {
  if (options.groups.empty()) {
    options.groups.resize(1);
    for (uint32_t layer = 0; layer < options.spec.model.layers; ++layer)
      options.groups[0].layers.push_back(layer);
  }
  ExecutorOptions made;
  for (const TinyGroup &group : options.groups) {
    made.groups.push_back(layerGroup(options.spec.model, group));
    made.groups.back().appendKernel = fmt::format("append {}", made.groups.size() - 1);
    made.memory.groups.push_back(made.groups.back().pages);
  }
  kv::ManagerOptions &memory = made.memory;
  memory.budgetBytes = kv::ManagerOptions::bytesForPages(memory.groups, options.pages);
  memory.hostBytes = kv::ManagerOptions::bytesForPages(memory.groups, options.hostPages);
  memory.maxSequences =
      options.maxSequences ? options.maxSequences : 2 * options.scheduler.maxRunning;
  memory.maxDraft = options.scheduler.maxDraft();
  memory.maxTokens = options.scheduler.maxLength + memory.maxDraft;
  memory.maxStepsInFlight = options.scheduler.stepsInFlight;
  memory.cache.enabled = options.cache;
  memory.costs = options.costs;
  memory.reportFrees = true;
  made.maxTokens = options.scheduler.tokenBudget;
  made.prefillTokens = options.scheduler.chunkTokens;
  made.stepsInFlight = options.scheduler.stepsInFlight;
  made.deviceDrafts = uint32_t(options.scheduler.deviceDrafts.size());
  made.draftTrees = options.scheduler.draftTrees();
  made.rules = rulesOf(options.groups, made.maxTokens, memory.maxDraft);
  made.plan.cascadeLevels = options.cascadeLevels;
  made.captures = options.captures;
  made.checks = {.poison = true, .verifySwaps = true};
  std::shared_ptr<Device> device = options.device;
  if (!device)
    device = valueOf(CpuDevice::create(options.threads));
  executor =
      valueOf(ModelExecutor::create(device, made, kernelsOf(options.spec, options.groups), layers));
  blocks = valueOf(kv::BlockManager::create(memory, executor->mover()));
  scheduler = valueOf(Scheduler::create(options.scheduler, *blocks, *this));
  engine = std::make_unique<Engine>(*scheduler, *executor, clock);
}

StatusOr<size_t> Server::add(RequestParams params) {
  LLMOPT_RETURN_IF_ERROR(addSamples(params, 1));
  return outcomes.size() - 1;
}

Status Server::addSamples(RequestParams params, uint32_t samples) {
  std::vector<RequestHandle> handles(samples);
  LLMOPT_RETURN_IF_ERROR(scheduler->submit(params, handles, clock.now()));
  for (RequestHandle handle : handles) {
    Outcome outcome;
    outcome.prompt.assign(params.prompt.begin(), params.prompt.end());
    outcome.asked = params.maxNewTokens;
    outcome.greedy = params.greedy;
    outcome.seed = params.samplingSeed++;
    outcome.handle = handle;
    indexOf[handle.slot] = outcomes.size();
    outcomes.push_back(std::move(outcome));
  }
  return {};
}

void Server::runOut(const std::function<void()> &each) {
  while (true) {
    StatusOr<Engine::Progress> progress = engine->advance();
    ASSERT_TRUE(progress.ok()) << progress.status().toString();
    if (*progress == Engine::Progress::Completed) {
      ++steps;
      if (each)
        each();
    }
    if (*progress == Engine::Progress::Idle) {
      if (scheduler->idle())
        break;
      std::this_thread::yield(); // copies to host memory are all that goes on
    }
  }
  Status sound = scheduler->check();
  ASSERT_TRUE(sound.ok()) << sound.toString();
  const kv::Pool &pool = blocks->pool();
  EXPECT_EQ(pool.count(kv::PageState::Used) + pool.count(kv::PageState::Pending) +
                pool.count(kv::PageState::Swapping) + pool.count(kv::PageState::Pinned),
            0u);
}

void Server::onTokens(RequestHandle request, std::span<const kv::Token> tokens, int64_t) {
  std::vector<kv::Token> &mine = outcomes[indexOf.at(request.slot)].answer.tokens;
  mine.insert(mine.end(), tokens.begin(), tokens.end());
}

void Server::onFinish(RequestHandle request, FinishReason reason, int64_t) {
  Outcome &outcome = outcomes[indexOf.at(request.slot)];
  outcome.reason = reason;
  outcome.inFlight = scheduler->request(request.slot).inFlightRows > 0;
}

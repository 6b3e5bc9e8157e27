#include "runtime/api/Server.h"

#include "runtime/base/Checked.h"

#include <algorithm>
#include <thread>

using namespace llmopt::runtime;

namespace {

ExecutorOptions executorOptions(ServerOptions &options) {
  ExecutorOptions made;
  const SchedulerOptions &scheduler = options.scheduler;
  for (LayerGroup &group : options.groups) {
    if (!group.pages.dataBytes)
      group.pages.dataBytes = productOrMost(group.layerBytes(), group.layers.size());
    made.memory.groups.push_back(group.pages);
  }
  kv::ManagerOptions &memory = made.memory;
  memory.maxSequences = productOrMost(scheduler.maxRunning, options.hostPages ? 2 : 1);
  memory.maxDraft = scheduler.maxDraft();
  memory.maxTokens = sumOrMost(scheduler.maxLength, memory.maxDraft);
  memory.maxStepsInFlight = scheduler.stepsInFlight;
  memory.cache.enabled = options.prefixCache;
  memory.cache.seed = options.cacheSeed;
  memory.cache.events = options.cacheEvents;
  memory.costs = options.costs;
  made.groups = options.groups;
  made.rules = options.rules;
  made.maxTokens = scheduler.tokenBudget;
  made.prefillTokens = scheduler.chunkTokens;
  made.stepsInFlight = scheduler.stepsInFlight;
  made.deviceDrafts = uint32_t(scheduler.deviceDrafts.size());
  made.draftTrees = scheduler.draftTrees();
  made.plan = options.plan;
  made.captures = options.captures;
  made.pageUser = scheduler.connector;
  return made;
}

} // namespace

StatusOr<std::unique_ptr<Server>> Server::create(std::shared_ptr<Device> device,
                                                 ServerOptions options, const KernelSource &source,
                                                 ModelLayers &model) {
  std::unique_ptr<Server> server(new Server());
  ExecutorOptions made = executorOptions(options);
  LLMOPT_RETURN_IF_ERROR(kv::validate(made.memory)); // before the executor takes memory by them
  LLMOPT_RETURN_IF_ERROR(kv::checkPages(options.pages));
  if (options.hostPages)
    LLMOPT_RETURN_IF_ERROR(kv::checkPages(options.hostPages, "host "));
  made.memory.budgetBytes = kv::ManagerOptions::bytesForPages(made.memory.groups, options.pages);
  made.memory.hostBytes =
      options.hostPages ? kv::ManagerOptions::bytesForPages(made.memory.groups, options.hostPages)
                        : 0;
  if (options.secondLevel)
    made.memory.demoteBelow = made.memory.demoteBelowFor(options.scheduler.tokenBudget);
  StatusOr<std::unique_ptr<ModelExecutor>> executor =
      ModelExecutor::create(std::move(device), made, source, model);
  if (!executor)
    return executor.status();
  server->executor = *std::move(executor);
  StatusOr<std::unique_ptr<kv::BlockManager>> blocks =
      kv::BlockManager::create(made.memory, server->executor->mover());
  if (!blocks)
    return blocks.status();
  server->blocks = *std::move(blocks);
  StatusOr<std::unique_ptr<Scheduler>> scheduler =
      Scheduler::create(options.scheduler, *server->blocks, *server);
  if (!scheduler)
    return scheduler.status();
  server->scheduler = *std::move(scheduler);
  server->engine = std::make_unique<Engine>(*server->scheduler, *server->executor, server->clock,
                                            options.engine);
  server->numbers.resize(size_t(options.scheduler.maxWaiting) + options.scheduler.maxRunning);
  return server;
}

Server::~Server() = default;

ServingMetrics Server::metrics() const {
  ServingMetrics all = scheduler->allMetrics();
  executor->addMetrics(all);
  return all;
}

StatusOr<uint64_t> Server::submit(const RequestParams &params) { return submit(params, 1); }

StatusOr<uint64_t> Server::submit(const RequestParams &params, uint32_t samples) {
  std::vector<RequestHandle> given(std::min(samples, scheduler->options().maxRunning + 1));
  LLMOPT_RETURN_IF_ERROR(scheduler->submit(params, given, clock.now()));
  uint64_t first = submitted + 1;
  for (RequestHandle handle : given) {
    numbers[handle.slot] = ++submitted;
    handles[submitted] = handle;
  }
  return first;
}

bool Server::abort(uint64_t request) {
  auto found = handles.find(request);
  return found != handles.end() && scheduler->abort(found->second, clock.now());
}

bool Server::filterReady(uint64_t request) {
  auto found = handles.find(request);
  return found != handles.end() && scheduler->filterReady(found->second);
}

bool Server::transferDone(kv::TransferId transfer, uint32_t tokens) {
  return scheduler->transferDone(transfer, tokens);
}

bool Server::transferFailed(kv::TransferId transfer) { return scheduler->transferFailed(transfer); }

StatusOr<bool> Server::advance() {
  StatusOr<Engine::Progress> progress = engine->advance();
  if (!progress)
    return progress.status();
  if (*progress != Engine::Progress::Idle)
    return true;
  if (scheduler->idle())
    return false;
  std::this_thread::yield(); // copies to host memory, or what others are waited for
  return true;
}

bool Server::next(ServerEvent &event) {
  if (events.empty())
    return false;
  event = events.front();
  events.pop_front();
  return true;
}

void Server::onTokens(RequestHandle request, std::span<const kv::Token> tokens, int64_t) {
  for (kv::Token token : tokens)
    events.push_back({numbers[request.slot], ServerEvent::Kind::Token, token, FinishReason::None});
}

void Server::onFinish(RequestHandle request, FinishReason reason, int64_t) {
  handles.erase(numbers[request.slot]);
  events.push_back({numbers[request.slot], ServerEvent::Kind::Finish, 0, reason});
}

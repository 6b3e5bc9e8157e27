#include "tools/llm-opt/ReplayDevice.h"

#include "codegen/compile/CompileText.h"
#include "runtime/device/Devices.h"
#include "runtime/executor/ModelExecutor.h"
#include "tools/llm-opt/Place.h"
#include "tools/llm-opt/ReplayLayers.h"

#include <fmt/format.h>

using namespace llmopt;
using namespace llmopt::cli;
using namespace llmopt::runtime;

namespace {

/// The executor with the model that it calls.
class OwningExecutor : public Executor {
public:
  explicit OwningExecutor(const ModelFacts &scaled) : model(scaled) {}

  Status submit(std::span<const uint8_t> stepInput, int64_t nowNs) override {
    return inner->submit(stepInput, nowNs);
  }
  Status restore(std::span<const uint8_t> snapshot) override { return inner->restore(snapshot); }
  StatusOr<const StepResult *> wait() override { return inner->wait(); }
  Status reopen() override { return inner->reopen(); }

  ReplayLayers model;
  std::unique_ptr<ModelExecutor> inner; ///< ends before the model
};

std::string maskOf(const kv::GroupSpec &group) {
  switch (group.kind) {
  case kv::GroupKind::Window:
    return group.sink ? fmt::format("causal and (sink<{}> or window<{}>)", group.sink, group.window)
                      : fmt::format("causal and window<{}>", group.window);
  case kv::GroupKind::Chunked:
    return fmt::format("causal and chunked<{}>", group.chunk);
  default:
    return "causal";
  }
}

std::string specOf(const AttentionFacts &facts, bool append) {
  std::string rows = fmt::format("tensor<?x{}x{}xf32>", facts.kvHeads, facts.keyDim);
  std::string cache = fmt::format("!attn.kv_cache<{}x{}xf32, page = {}>", facts.kvHeads,
                                  facts.keyDim, facts.group.pageSize);
  if (append)
    return fmt::format("func.func @append(%k: {0}, %v: {0}, %slots: tensor<?xi64>, %kv: {1}) {{\n"
                       "  attn.append %k, %v, %slots, %kv : {0}, {0}, tensor<?xi64>, {1}\n"
                       "  return\n}}\n",
                       rows, cache);
  std::string query = fmt::format("tensor<?x{}x{}xf32>", facts.queryHeads, facts.keyDim);
  return fmt::format("func.func @attend(%q: {0}, %kv: {1}, %seq: !attn.sequences) -> {0} {{\n"
                     "  %o = attn.attention %q, %kv, %seq mask({2})\n"
                     "       : {0}, {1}, !attn.sequences -> {0}\n"
                     "  return %o : {0}\n}}\n",
                     query, cache, maskOf(facts.group));
}

ExecutorOptions executorOptions(const ModelFacts &scaled, const kv::ManagerOptions &memory,
                                const SchedulerOptions &scheduler) {
  ExecutorOptions options;
  options.memory = memory;
  options.maxTokens = scheduler.tokenBudget;
  options.prefillTokens = scheduler.chunkTokens;
  options.stepsInFlight = scheduler.stepsInFlight;
  options.deviceDrafts = uint32_t(scheduler.deviceDrafts.size());
  for (uint32_t g = 0; g < scaled.groups.size(); ++g) {
    const AttentionFacts &facts = scaled.groups[g];
    LayerGroup &group = options.groups.emplace_back();
    group.pages = facts.group;
    group.layers = {g};
    group.queryHeads = facts.queryHeads;
    group.kvHeads = facts.kvHeads;
    group.keyDim = facts.keyDim;
    group.valueDim = facts.valueDim;
    group.appendKernel = fmt::format("append {}", g);
    std::string attend = fmt::format("attend {}", g);
    options.rules.push_back({g, step::Phase::Prefill, 1, scheduler.tokenBudget, attend});
    options.rules.push_back({g, step::Phase::Decode, 1, 1, attend});
    if (memory.maxDraft)
      options.rules.push_back({g, step::Phase::Verify, 2, 1 + memory.maxDraft, attend});
  }
  return options;
}

} // namespace

StatusOr<ReplayDeviceSource> cli::replayDevice(const std::string &name, const ModelFacts &scaled) {
  StatusOr<std::shared_ptr<Device>> opened = openDevice(name);
  if (!opened)
    return opened.status();
  std::shared_ptr<Device> device = *std::move(opened);
  llvm::Expected<CompileOptions> target = cli::optionsFor(device.get());
  if (!target)
    return invalidArgument("{}", llvm::toString(target.takeError()));
  KernelSource source = [scaled, options = *target](const std::string &kernel) {
    size_t group = size_t(std::stoul(kernel.substr(kernel.rfind(' ') + 1)));
    return compileText(specOf(scaled.groups[group], kernel.starts_with("append")), options);
  };
  return ReplayDeviceSource([=](const kv::ManagerOptions &memory,
                                const SchedulerOptions &scheduler) -> StatusOr<ReplayDevice> {
    auto owner = std::make_unique<OwningExecutor>(scaled);
    StatusOr<std::unique_ptr<ModelExecutor>> made = ModelExecutor::create(
        device, executorOptions(scaled, memory, scheduler), source, owner->model);
    if (!made)
      return made.status();
    owner->inner = *std::move(made);
    ReplayDevice result;
    result.mover = memory.hostBytes ? owner->inner->mover() : nullptr;
    result.executor = std::move(owner);
    return result;
  });
}

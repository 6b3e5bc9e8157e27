#include "runtime/engine/Engine.h"

#include <chrono>

using namespace llmopt::runtime;

namespace {

using Machine = std::chrono::steady_clock;

int64_t since(Machine::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Machine::now() - start).count();
}

} // namespace

Status Engine::lost(const Status &reason) {
  if (++losses == 1)
    firstLoss = reason;
  if (losses > options.maxLosses)
    return firstLoss.withContext(
        fmt::format("the device was lost {} times, which is too often; the first time", losses));
  LLMOPT_RETURN_IF_ERROR(executor.reopen());
  scheduler.deviceLost(options.requeueOnLoss, clock.now());
  return {};
}

Status Engine::launch(std::span<const uint8_t> bytes) {
  Status taken = executor.submit(bytes, clock.now());
  if (taken.code() != StatusCode::Unavailable)
    return taken;
  std::vector<uint64_t> tables = scheduler.snapshot();
  LLMOPT_RETURN_IF_ERROR(executor.restore(
      {reinterpret_cast<const uint8_t *>(tables.data()), tables.size() * sizeof(tables[0])}));
  return executor.submit(bytes, clock.now());
}

StatusOr<Engine::Progress> Engine::advance() {
  int64_t begin = clock.now();
  Machine::time_point start = Machine::now();
  std::span<const uint8_t> bytes = scheduler.schedule(begin);
  int64_t spent = since(start);
  hostNs += spent;
  if (!bytes.empty()) {
    clock.hostWorked(spent);
    if (options.timeline) {
      const auto &head = *reinterpret_cast<const step::Header *>(bytes.data());
      options.timeline->add({Timeline::Track::Host, begin, clock.now(), head.stepId, head.rowCount,
                             head.tokenCount, scheduler.running(), scheduler.waiting()});
    }
    Status taken = launch(bytes);
    if (!taken.ok())
      if (Status reopened = lost(taken); !reopened.ok())
        return reopened;
    return Progress::Launched;
  }
  if (!scheduler.stepsInFlight())
    return Progress::Idle;
  StatusOr<const StepResult *> result = executor.wait();
  if (!result) {
    Status reopened = lost(result.status());
    return reopened.ok() ? StatusOr<Progress>(Progress::Completed) : reopened;
  }
  const StepResult &step = **result;
  clock.reached(step.finishedNs);
  if (options.timeline)
    options.timeline->add({Timeline::Track::Device, step.startedNs, step.finishedNs, step.step,
                           uint32_t(step.rows.size()), 0, 0, 0});
  start = Machine::now();
  LLMOPT_RETURN_IF_ERROR(scheduler.complete(step, clock.now()));
  hostNs += since(start);
  scheduler.metrics().hostTime.record(uint64_t(hostNs));
  hostNs = 0;
  return Progress::Completed;
}

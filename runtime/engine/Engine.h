// The loop between scheduler and executor: keeps up to D steps in flight, takes results in
// order, and restarts from the requests' tokens when the device is lost.
#pragma once

#include "runtime/engine/Executor.h"
#include "runtime/metrics/Timeline.h"
#include "runtime/scheduler/Scheduler.h"

namespace llmopt::runtime {

struct EngineOptions {
  /// After a lost device: begin unfinished requests anew, or end them.
  bool requeueOnLoss = true;
  uint32_t maxLosses = 3; ///< then the engine gives up
  Timeline *timeline = nullptr;
};

class Engine {
public:
  enum class Progress : uint8_t {
    Idle,      ///< nothing to run and nothing in flight
    Launched,  ///< a step more is in flight
    Completed, ///< a step's results were taken
  };

  Engine(Scheduler &scheduler, Executor &executor, Clock &clock, EngineOptions options = {})
      : scheduler(scheduler), executor(executor), clock(clock), options(options) {}

  /// One thing, whichever is next. A failure is final: the device cannot be reopened, or
  /// scheduler and executor disagree.
  StatusOr<Progress> advance();
  uint32_t deviceLosses() const { return losses; }

private:
  Status launch(std::span<const uint8_t> bytes);
  Status lost(const Status &reason);

  Scheduler &scheduler;
  Executor &executor;
  Clock &clock;
  EngineOptions options;
  uint32_t losses = 0;
  Status firstLoss;
  int64_t hostNs = 0; ///< since the last completed step
};

} // namespace llmopt::runtime

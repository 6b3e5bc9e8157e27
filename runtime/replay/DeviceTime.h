// The time of a replay on a device: the machine's, from 0 on, without the gaps in which
// nothing ran.
#pragma once

#include "runtime/engine/Executor.h"

#include <algorithm>

namespace llmopt::runtime {

class DeviceClock : public Clock {
public:
  DeviceClock() : origin(machine.now()) {}
  int64_t now() override { return at(machine.now()); }
  int64_t at(int64_t machineNs) const { return machineNs - origin; }
  /// Nothing runs until then.
  void skipTo(int64_t ns) { origin -= std::max<int64_t>(0, ns - now()); }

private:
  MachineClock machine;
  int64_t origin;
};

/// An executor whose results have the replay's times.
class TimedExecutor : public Executor {
public:
  TimedExecutor(Executor &inner, DeviceClock &clock) : inner(inner), clock(clock) {}

  Status submit(std::span<const uint8_t> stepInput, int64_t nowNs) override {
    return inner.submit(stepInput, nowNs);
  }
  Status restore(std::span<const uint8_t> snapshot) override { return inner.restore(snapshot); }
  StatusOr<const StepResult *> wait() override {
    StatusOr<const StepResult *> result = inner.wait();
    if (!result)
      return result;
    taken = **result;
    busy += taken.finishedNs - taken.startedNs;
    taken.startedNs = clock.at(taken.startedNs);
    taken.finishedNs = clock.at(taken.finishedNs);
    return &taken;
  }
  Status reopen() override { return inner.reopen(); }
  int64_t busyNs() const { return busy; }

private:
  Executor &inner;
  DeviceClock &clock;
  StepResult taken;
  int64_t busy = 0;
};

} // namespace llmopt::runtime

// A trace through scheduler, block manager and prefix cache, in simulated time or on a device.
//
// Each request of the trace is submitted at its arrival (divided by `speed`), runs on a
// SimExecutor, and must give out exactly the trace's tokens. Time is the cost model's;
// the host's part of a step is a constant, so that a replay gives the same report on every
// machine. Only `hostNs` in the metrics is measured.
//
// With `device` steps run there, and time is the machine's; gaps in which nothing runs are
// skipped. The tokens are then the model's own, and their number is the trace's.
#pragma once

#include "runtime/engine/Engine.h"
#include "runtime/engine/StepCost.h"
#include "runtime/scheduler/Scheduler.h"
#include "runtime/trace/Trace.h"

#include <functional>
#include <string>
#include <vector>

namespace llmopt::runtime {

/// Where steps run: an executor, and the copies of its pages.
struct ReplayDevice {
  std::unique_ptr<Executor> executor;
  kv::PageMover *mover = nullptr; ///< null: no host memory
};
using ReplayDeviceSource =
    std::function<StatusOr<ReplayDevice>(const kv::ManagerOptions &, const SchedulerOptions &)>;

struct ReplayOptions {
  ModelFacts model;
  ReplayDeviceSource device; ///< empty: simulated time
  Accelerator accelerator = accelerators()[1];
  StepCostOptions cost;
  uint64_t pages = 20000;     ///< of the group that keeps all
  uint64_t hostBytes = 0;     ///< for swapped pages; 0: preemption always recomputes
  bool secondLevel = true;    ///< host memory also keeps cached pages, where a copy is cheaper
  double hostSeconds = 50e-6; ///< the host's time a step
  double speed = 1;           ///< arrivals come so much faster
  bool oneByOne = false;      ///< a request is submitted when the one before has ended
  bool prefixCache = true;
  double acceptance = 0; ///< of drafts
  uint64_t seed = 0;
  SchedulerOptions scheduler;                    ///< maxLength and maxWaiting 0: as the trace needs
  double firstTokenGoal = 2, perTokenGoal = 0.1; ///< seconds, of goodput
  uint32_t checkEvery = 0;                       ///< steps between checks of all invariants
  Timeline *timeline = nullptr;
  /// Called after the first step and every few thousand with ended and all requests.
  std::function<void(uint64_t, uint64_t)> progress;
};

/// A point of the curves over time.
struct ReplaySample {
  double seconds = 0;
  uint32_t running = 0, waiting = 0;
  double used = 0, cached = 0; ///< shares of the first group's pages
};

struct ReplayGroup {
  std::string kind;
  uint32_t pageSize = 0;
  uint64_t slots = 0;    ///< pages that the group could take at the end, or holds
  uint64_t mostUsed = 0; ///< at once
  uint64_t cachedAtEnd = 0, usedAtEnd = 0;
};

struct ReplayReport {
  TraceFormat format = TraceFormat::Mooncake;
  uint64_t requests = 0, finished = 0, refused = 0;
  bool simulated = true;
  bool hostMemory = false; ///< there was some
  double seconds = 0; ///< simulated, or without idle gaps; from the first arrival to the last token
  double arrivalSeconds = 0; ///< the last arrival
  double drainSeconds = 0;   ///< from then until the queue was empty
  bool saturated = false;    ///< the queue needed more than a tenth of the arrivals' time
  double outputRate = 0, totalRate = 0, requestRate = 0; ///< a second
  double goodput = 0;                                    ///< requests a second that met both goals
  double goodShare = 0;
  double deviceBusy = 0; ///< share of the time
  uint32_t mostRunning = 0, mostWaiting = 0;
  double wallSeconds = 0;   ///< that the replay took
  uint64_t wrongTokens = 0; ///< given out otherwise than the trace says: must be 0
  kv::Counters pages;
  ServingMetrics metrics;
  std::vector<ReplayGroup> groups;
  std::vector<ReplaySample> samples;
  /// Requests by when they came, for goodput over rate: arrivals, good ones and seconds.
  struct Window {
    double rate = 0, goodput = 0;
  };
  std::vector<Window> windows;
};

/// Fails where an option is out of bounds, or when an invariant is broken (Internal).
StatusOr<ReplayReport> replay(const Trace &trace, const ReplayOptions &options);

} // namespace llmopt::runtime

#include "runtime/replay/Replay.h"

#include "runtime/base/Checked.h"
#include "runtime/engine/SimExecutor.h"
#include "runtime/kv/Pool.h"
#include "runtime/replay/DeviceTime.h"
#include "runtime/replay/SimMover.h"

#include <algorithm>
#include <chrono>
#include <thread>

using namespace llmopt::runtime;

namespace {

constexpr uint64_t kSampleSteps = 256, kProgressSteps = 4096;
constexpr size_t kMostSamples = 4096, kWindows = 24;

class SimClock : public Clock {
public:
  explicit SimClock(int64_t hostNs) : hostNs(hostNs) {}
  int64_t now() override { return time; }
  void hostWorked(int64_t) override { time += hostNs; }
  void reached(int64_t ns) override { time = std::max(time, ns); }

private:
  int64_t hostNs, time = 0;
};

class Replayer : public RequestListener, public TokenSource {
public:
  Replayer(const Trace &trace, const ReplayOptions &options)
      : trace(trace), options(options), simClock(int64_t(options.hostSeconds * 1e9)),
        clock(options.device ? static_cast<Clock &>(deviceClock) : simClock) {}

  StatusOr<ReplayReport> run();

  void onTokens(RequestHandle request, std::span<const kv::Token> tokens, int64_t now) override {
    Progress &state = progress[indexOf[request.slot]];
    if (state.given == 0)
      state.firstToken = now;
    for (kv::Token token : tokens) {
      kv::Token wanted = outputToken(indexOf[request.slot], int32_t(state.given++));
      report.wrongTokens += !options.device && token != wanted;
    }
  }
  void onFinish(RequestHandle request, FinishReason reason, int64_t now) override {
    uint64_t index = indexOf[request.slot];
    Progress &state = progress[index];
    report.wrongTokens +=
        reason != FinishReason::Length || state.given != answerOf(trace.requests[index]);
    ++report.finished;
    --alive;
    lastFinish = now;
    double first = double(state.firstToken - arrivalOf(index)) * 1e-9;
    double each =
        state.given > 1 ? double(now - state.firstToken) * 1e-9 / double(state.given - 1) : 0;
    state.good = first <= options.firstTokenGoal && each <= options.perTokenGoal;
  }
  kv::Token token(uint32_t request, uint32_t, uint32_t position) override {
    return outputToken(indexOf[request], int32_t(position));
  }

private:
  struct Progress {
    uint32_t given = 0;
    bool good = false;
    int64_t firstToken = 0;
  };

  /// An answer has at least the token that the prompt's last row yields.
  static uint32_t answerOf(const TraceRequest &request) {
    return uint32_t(std::max(request.outputTokens, 1));
  }
  int64_t arrivalOf(uint64_t index) const {
    return int64_t(double(trace.requests[index].arrivalNs) / options.speed);
  }
  Status prepare();
  void submitDue();
  Status loop(Engine &engine);
  void sample();
  Status finishReport(int64_t busyNs);
  void passTime(int64_t until);
  void fillWindows();

  const Trace &trace;
  const ReplayOptions &options;
  ReplayReport report;
  SimClock simClock;
  DeviceClock deviceClock;
  Clock &clock;
  std::unique_ptr<SimMover> mover;
  ReplayDevice device;
  std::unique_ptr<kv::BlockManager> blocks;
  std::unique_ptr<Scheduler> scheduler;
  std::vector<uint32_t> indexOf; ///< of the trace's request in a scheduler's slot
  std::vector<Progress> progress;
  std::vector<kv::Token> prompt;
  uint64_t next = 0, alive = 0, steps = 0;
  int64_t lastFinish = 0, drained = 0;
  uint64_t sampleEvery = kSampleSteps;
};

/// Numbers that the clock and the cost model can take. NaN is none of them.
Status checkOptions(const ReplayOptions &options) {
  auto within = [](double value, double most) { return value >= 0 && value <= most; };
  constexpr double kMostSpeed = 1e9, kMostSeconds = 1e6;
  constexpr uint32_t kMostAccelerators = 1024;
  if (!(options.speed > 0 && options.speed <= kMostSpeed) || !within(options.acceptance, 1))
    return invalidArgument("speed {:g}, acceptance {:g}; a speed above 0 and up to {:g} and an "
                           "acceptance from 0 to 1 are allowed",
                           options.speed, options.acceptance, kMostSpeed);
  const double times[] = {options.hostSeconds, options.cost.launchSeconds, options.firstTokenGoal,
                          options.perTokenGoal};
  for (double seconds : times)
    if (!within(seconds, kMostSeconds))
      return invalidArgument("host time {:g} s, launch time {:g} s, goals {:g} and {:g} s; each "
                             "may be 0 to {:g} s",
                             times[0], times[1], times[2], times[3], kMostSeconds);
  if (options.cost.accelerators < 1 || options.cost.accelerators > kMostAccelerators)
    return invalidArgument("{} accelerators; 1 to {} are allowed", options.cost.accelerators,
                           kMostAccelerators);
  for (const AttentionFacts &group : options.model.groups)
    if (options.cost.accelerators > group.kvHeads)
      return invalidArgument("{} accelerators share {} KV heads, one each at least; 1 to {} are "
                             "allowed",
                             options.cost.accelerators, group.kvHeads, group.kvHeads);
  if (options.acceptance > 0 && !options.scheduler.maxDraft())
    return invalidArgument("an acceptance of {:g} without drafts; say how many there are",
                           options.acceptance);
  return {};
}

/// Times of arrival, divided by the speed, must stay far from the clock's end.
Status checkArrivals(const Trace &trace, double speed) {
  constexpr double kMostSeconds = 1e9;
  double last = trace.requests.empty() ? 0 : double(trace.requests.back().arrivalNs) * 1e-9 / speed;
  if (last > kMostSeconds)
    return invalidArgument("at speed {:g} the last request comes after {:g} s; up to {:g} s are "
                           "allowed; raise the speed",
                           speed, last, kMostSeconds);
  return {};
}

Status Replayer::prepare() {
  LLMOPT_RETURN_IF_ERROR(checkOptions(options));
  LLMOPT_RETURN_IF_ERROR(checkArrivals(trace, options.speed));
  uint64_t longest = 1;
  for (const TraceRequest &request : trace.requests)
    longest = std::max(longest, uint64_t(request.promptTokens) + answerOf(request));
  SchedulerOptions wanted = options.scheduler;
  if (!wanted.maxLength)
    wanted.maxLength = uint32_t(std::min<uint64_t>(longest, INT32_MAX));
  if (!wanted.maxWaiting)
    wanted.maxWaiting = uint32_t(trace.requests.size());

  StepCost cost(options.model, options.accelerator, options.cost);
  kv::ManagerOptions manager;
  for (const AttentionFacts &group : options.model.groups)
    manager.groups.push_back(group.group);
  LLMOPT_RETURN_IF_ERROR(kv::validate(manager.groups));
  LLMOPT_RETURN_IF_ERROR(kv::checkPages(options.pages));
  manager.budgetBytes = kv::ManagerOptions::bytesForPages(manager.groups, options.pages);
  manager.hostBytes = options.hostBytes;
  manager.maxSequences = productOrMost(wanted.maxRunning, options.hostBytes ? 2 : 1);
  manager.maxDraft = wanted.maxDraft();
  manager.maxTokens = sumOrMost(wanted.maxLength, manager.maxDraft);
  manager.maxStepsInFlight = wanted.stepsInFlight;
  manager.cache.enabled = options.prefixCache;
  manager.cache.seed = options.seed;
  manager.costs = cost.preemptionCosts();
  if (options.secondLevel)
    manager.demoteBelow = manager.demoteBelowFor(wanted.tokenBudget);
  LLMOPT_RETURN_IF_ERROR(kv::validate(manager)); // before a device takes memory by them
  kv::PageMover *copies = nullptr;
  if (options.device) {
    StatusOr<ReplayDevice> opened = options.device(manager, wanted);
    if (!opened)
      return opened.status();
    device = *std::move(opened);
    copies = device.mover;
  } else if (options.hostBytes) {
    mover = std::make_unique<SimMover>(manager.groups, manager.costs.bytesPerSecond,
                                       manager.costs.copyLatency, clock);
    copies = mover.get();
  }
  StatusOr<std::unique_ptr<kv::BlockManager>> made = kv::BlockManager::create(manager, copies);
  if (!made)
    return made.status();
  blocks = std::move(*made);
  StatusOr<std::unique_ptr<Scheduler>> created = Scheduler::create(wanted, *blocks, *this);
  if (!created)
    return created.status();
  scheduler = std::move(*created);
  indexOf.resize(size_t(wanted.maxWaiting) + wanted.maxRunning);
  progress.resize(trace.requests.size());
  report.format = trace.format;
  report.requests = trace.requests.size();
  for (const AttentionFacts &group : options.model.groups)
    report.groups.push_back(
        {std::string(kv::toString(group.group.kind)), group.group.pageSize, 0, 0, 0, 0});
  return {};
}

void Replayer::submitDue() {
  while (next < trace.requests.size() &&
         (options.oneByOne ? alive == 0 : arrivalOf(next) <= clock.now())) {
    const TraceRequest &request = trace.requests[next];
    prompt.resize(size_t(request.promptTokens));
    writePrompt(trace, next, prompt);
    RequestParams params;
    params.prompt = prompt;
    params.maxNewTokens = answerOf(request);
    params.samplingSeed = options.seed + next;
    int64_t arrival = options.oneByOne ? clock.now() : arrivalOf(next);
    StatusOr<RequestHandle> handle = scheduler->submit(params, arrival);
    if (handle) {
      indexOf[handle->slot] = uint32_t(next);
      ++alive;
    } else {
      ++report.refused;
    }
    ++next;
  }
}

void Replayer::sample() {
  const kv::Pool &pool = blocks->pool();
  for (uint32_t g = 0; g < report.groups.size(); ++g) {
    uint64_t used = pool.count(g, kv::PageState::Used) + pool.count(g, kv::PageState::Pending) +
                    pool.count(g, kv::PageState::Swapping);
    report.groups[g].mostUsed = std::max(report.groups[g].mostUsed, used);
  }
  report.mostRunning = std::max(report.mostRunning, scheduler->running());
  report.mostWaiting = std::max(report.mostWaiting, scheduler->waiting());
  if (!drained && next == trace.requests.size() && scheduler->waiting() == 0)
    drained = clock.now();
  if (steps % sampleEvery)
    return;
  const ServingMetrics &metrics = scheduler->metrics();
  double total = double(std::max<uint64_t>(metrics.pagesTotal, 1));
  uint64_t cached = 0;
  for (uint32_t g = 0; g < report.groups.size(); ++g)
    cached = std::max<uint64_t>(cached, pool.count(g, kv::PageState::Cached));
  report.samples.push_back({double(clock.now()) * 1e-9, scheduler->running(), scheduler->waiting(),
                            double(metrics.pagesUsed) / total, double(cached) / total});
  if (report.samples.size() < kMostSamples)
    return;
  // Every second one goes, and half as many come from now on.
  for (size_t i = 0; i < report.samples.size() / 2; ++i)
    report.samples[i] = report.samples[2 * i];
  report.samples.resize(report.samples.size() / 2);
  sampleEvery *= 2;
}

Status Replayer::loop(Engine &engine) {
  while (true) {
    submitDue();
    StatusOr<Engine::Progress> done = engine.advance();
    if (!done)
      return done.status();
    if (*done == Engine::Progress::Launched)
      continue;
    if (*done == Engine::Progress::Completed) {
      ++steps;
      sample();
      if (options.checkEvery && steps % options.checkEvery == 0)
        LLMOPT_RETURN_IF_ERROR(scheduler->check());
      if (options.progress && (steps == 1 || steps % kProgressSteps == 0))
        options.progress(report.finished + report.refused, report.requests);
      continue;
    }
    if (mover && mover->idleFrom() > clock.now()) { // only copies are under way
      clock.reached(mover->idleFrom());
      continue;
    }
    bool copying = blocks->pool().count(kv::PageState::Swapping) > 0;
    if (options.device && (copying || !scheduler->idle())) { // the same
      std::this_thread::yield();
      continue;
    }
    if (next == trace.requests.size()) {
      if (scheduler->idle())
        return {};
      return makeStatus(StatusCode::Internal,
                        "{} requests run, {} wait, and nothing can be scheduled",
                        scheduler->running(), scheduler->waiting());
    }
    passTime(options.oneByOne ? clock.now() : arrivalOf(next));
  }
}

void Replayer::passTime(int64_t until) {
  if (options.device)
    deviceClock.skipTo(until);
  else
    simClock.reached(until);
}

void Replayer::fillWindows() {
  double span = report.arrivalSeconds;
  if (options.oneByOne || span <= 0)
    return;
  std::vector<uint64_t> came(kWindows), good(kWindows);
  for (uint64_t i = 0; i < trace.requests.size(); ++i) {
    size_t window = std::min(kWindows - 1, size_t(double(arrivalOf(i)) * 1e-9 / span * kWindows));
    ++came[window];
    good[window] += progress[i].good;
  }
  for (size_t i = 0; i < kWindows; ++i)
    report.windows.push_back(
        {double(came[i]) * kWindows / span, double(good[i]) * kWindows / span});
}

Status Replayer::finishReport(int64_t busyNs) {
  LLMOPT_RETURN_IF_ERROR(scheduler->check());
  const kv::Pool &pool = blocks->pool();
  for (uint32_t g = 0; g < report.groups.size(); ++g) {
    ReplayGroup &group = report.groups[g];
    group.cachedAtEnd = pool.count(g, kv::PageState::Cached);
    group.usedAtEnd = pool.count(g, kv::PageState::Used) + pool.count(g, kv::PageState::Pending) +
                      pool.count(g, kv::PageState::Swapping) + pool.count(g, kv::PageState::Pinned);
    group.slots = pool.available(g);
    if (group.usedAtEnd)
      return makeStatus(StatusCode::Internal,
                        "{} pages of group {} are held after the last request", group.usedAtEnd, g);
  }
  report.metrics = scheduler->allMetrics();
  report.pages = blocks->counters();
  report.hostMemory = options.hostBytes > 0;
  report.seconds = double(lastFinish) * 1e-9;
  report.arrivalSeconds =
      options.oneByOne ? 0 : double(arrivalOf(trace.requests.size() - 1)) * 1e-9;
  double drainedAt = drained ? double(drained) * 1e-9 : report.seconds;
  report.drainSeconds = std::max(0.0, drainedAt - report.arrivalSeconds);
  report.saturated = !options.oneByOne && report.drainSeconds > 0.1 * report.arrivalSeconds;
  uint64_t good = 0;
  for (const Progress &each : progress)
    good += each.good;
  if (report.seconds > 0) {
    const ServingMetrics &metrics = report.metrics;
    report.outputRate = double(metrics.generationTokensTotal) / report.seconds;
    report.totalRate =
        double(metrics.generationTokensTotal + metrics.promptTokensTotal) / report.seconds;
    report.requestRate = double(report.finished) / report.seconds;
    report.goodput = double(good) / report.seconds;
    report.deviceBusy = double(busyNs) * 1e-9 / report.seconds;
  }
  report.goodShare = double(good) / double(report.requests);
  fillWindows();
  if (report.wrongTokens)
    return makeStatus(StatusCode::Internal, "{} tokens or ends differ from the trace's",
                      report.wrongTokens);
  return {};
}

StatusOr<ReplayReport> Replayer::run() {
  auto start = std::chrono::steady_clock::now();
  LLMOPT_RETURN_IF_ERROR(prepare());
  EngineOptions engineOptions;
  engineOptions.timeline = options.timeline;
  if (options.device) {
    engineOptions.maxLosses = 0; // a device that is lost is the end of a measurement
    deviceClock = DeviceClock(); // kernels are there now
    TimedExecutor executor(*device.executor, deviceClock);
    Engine engine(*scheduler, executor, clock, engineOptions);
    LLMOPT_RETURN_IF_ERROR(loop(engine));
    LLMOPT_RETURN_IF_ERROR(finishReport(executor.busyNs()));
  } else {
    SimOptions sim;
    sim.stepsInFlight = scheduler->options().stepsInFlight;
    sim.groups = uint32_t(options.model.groups.size());
    sim.tableSlots = blocks->options().maxSequences;
    sim.maxRows = scheduler->options().maxRunning;
    sim.maxDraft = scheduler->options().maxDraft();
    sim.acceptance = options.acceptance;
    if (mover)
      sim.copyEnd = [this](kv::EventId event) { return mover->endOf(event); };
    SimExecutor executor(sim, StepCost(options.model, options.accelerator, options.cost), *this);
    Engine engine(*scheduler, executor, clock, engineOptions);
    LLMOPT_RETURN_IF_ERROR(loop(engine));
    LLMOPT_RETURN_IF_ERROR(finishReport(executor.busyNs()));
  }
  report.simulated = !options.device;
  report.wallSeconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

} // namespace

StatusOr<ReplayReport> llmopt::runtime::replay(const Trace &trace, const ReplayOptions &options) {
  return Replayer(trace, options).run();
}

// Options, and what looks at the whole: creation, loss of the device, the check.
#include "runtime/scheduler/Scheduler.h"
#include "runtime/kv/Pool.h"
#include "runtime/scheduler/Mutants.h"

#include <algorithm>

using namespace llmopt::runtime;

#ifdef LLMOPT_SCHEDULER_MUTANTS
SchedulerMutant llmopt::runtime::activeSchedulerMutant = SchedulerMutant::None;
#endif

namespace {

constexpr uint32_t kMaxStepsInFlight = 16, kMaxRunning = 1 << 16, kMaxDraft = 1024;

Status checkDrafts(const SchedulerOptions &options) {
  for (size_t i = 0; i < options.deviceDrafts.size(); ++i)
    if (options.deviceDrafts[i] < -1 || options.deviceDrafts[i] >= int(i))
      return invalidArgument("draft {} has parent {}; -1 or a draft before it is allowed", i,
                             options.deviceDrafts[i]);
  if (options.maxDraft() > kMaxDraft)
    return invalidArgument("{} drafts a row; at most {} are allowed", options.maxDraft(),
                           kMaxDraft);
  return {};
}

Status checkOptions(const SchedulerOptions &options, const kv::ManagerOptions &manager) {
  LLMOPT_RETURN_IF_ERROR(checkDrafts(options));
  if (options.maxRunning < 1 || options.maxRunning > kMaxRunning)
    return invalidArgument("{} running requests; 1 to {} are allowed", options.maxRunning,
                           kMaxRunning);
  uint64_t decodes = uint64_t(options.maxRunning) * (1 + options.maxDraft());
  if (options.tokenBudget <= decodes)
    return invalidArgument("a budget of {} tokens a step; {} running requests with {} drafts each "
                           "need more than {}; raise the budget or lower the number of requests",
                           options.tokenBudget, options.maxRunning, options.maxDraft(), decodes);
  if (options.stepsInFlight < 1 || options.stepsInFlight > kMaxStepsInFlight)
    return invalidArgument("{} steps in flight; 1 to {} are allowed", options.stepsInFlight,
                           kMaxStepsInFlight);
  if (options.lookahead < 1 || options.ageSteps < 1 || options.maxWaiting < 1)
    return invalidArgument("lookahead {}, age {}, queue {}; each is at least 1", options.lookahead,
                           options.ageSteps, options.maxWaiting);
  if (manager.maxStepsInFlight < options.stepsInFlight ||
      manager.maxSequences < options.maxRunning || manager.maxDraft < options.maxDraft() ||
      manager.maxTokens < options.maxLength)
    return invalidArgument(
        "the block manager serves {} steps in flight, {} sequences, {} drafts and {} tokens a "
        "sequence; the scheduler wants {}, {}, {} and {}; create it with at least these",
        manager.maxStepsInFlight, manager.maxSequences, manager.maxDraft, manager.maxTokens,
        options.stepsInFlight, options.maxRunning, options.maxDraft(), options.maxLength);
  return {};
}

StepCapacities capacitiesOf(const SchedulerOptions &options, const kv::ManagerOptions &manager) {
  StepCapacities capacities;
  capacities.rows = options.maxRunning;
  capacities.tokens = options.tokenBudget;
  capacities.maxDraft = options.maxDraft();
  capacities.tableSlots = manager.maxSequences;
  capacities.groups = uint32_t(manager.groups.size());
  // Hits enter a table too: whole prompts.
  uint64_t pages = 0;
  for (const kv::GroupSpec &group : manager.groups)
    pages += 2 * group.pagesFor(options.maxLength) + 2ull * options.maxRunning;
  capacities.pages = uint32_t(std::min<uint64_t>(pages, UINT32_MAX));
  capacities.buffers = options.stepsInFlight + 1;
  return capacities;
}

} // namespace

bool SchedulerOptions::draftTrees() const {
  for (size_t i = 0; i < deviceDrafts.size(); ++i)
    if (deviceDrafts[i] != int(i) - 1)
      return true;
  return draftSource && hostDraftTrees;
}

StatusOr<std::unique_ptr<Scheduler>> Scheduler::create(const SchedulerOptions &options,
                                                       kv::BlockManager &manager,
                                                       RequestListener &listener) {
  LLMOPT_RETURN_IF_ERROR(checkOptions(options, manager.options()));
  return std::unique_ptr<Scheduler>(new Scheduler(options, manager, listener));
}

Scheduler::Scheduler(const SchedulerOptions &options, kv::BlockManager &manager,
                     RequestListener &listener)
    : config(options), blocks(manager), listener(listener), policy(makePolicy(options.policy)),
      requests(size_t(options.maxWaiting) + options.maxRunning),
      newestTokens(manager.options().maxSequences, options.stepsInFlight),
      queue(uint32_t(requests.size()), options.policy == PolicyKind::Fcfs),
      ages(uint32_t(requests.size())), byArrival(options.policy == PolicyKind::Fcfs),
      deadlines(uint32_t(requests.size())), writer(capacitiesOf(options, manager.options())),
      flights(options.stepsInFlight) {
  if (!config.chunkTokens || config.chunkTokens > config.tokenBudget)
    config.chunkTokens = config.tokenBudget;
  freeSlots.reserve(requests.size());
  for (uint32_t slot = uint32_t(requests.size()); slot-- > 0;)
    freeSlots.push_back(slot);
  runningRows.reserve(config.maxRunning);
  oldest.fill(Request::kNone);
  newest.fill(Request::kNone);
  plan.reserve(config.maxRunning);
  prefills.reserve(config.maxRunning);
  unreserved.reserve(2 * size_t(config.maxRunning));
  growing.reserve(config.maxRunning);
  tried.reserve(config.lookahead);
  preempting.reserve(config.maxRunning);
  receivers.reserve(config.maxRunning);
  draftTokens.reserve(config.tokenBudget);
  draftParents.reserve(config.tokenBudget);
  for (Flight &flight : flights)
    flight.single.reserve(config.maxRunning);
  mostDrafts = config.maxDraft();
  const kv::ManagerOptions &memory = manager.options();
  demotes = memory.demoteBelow && memory.hostBytes && memory.cache.enabled;
  gaugeGroup = memory.leadGroup();
  updateGauges();
}

Scheduler::~Scheduler() {
  for (Request &request : requests)
    tokenMemory.give(request.memory, request.memoryTokens());
}

void Scheduler::updateGauges() {
  counts.running = running();
  counts.waiting = waiting();
  counts.swapped = swappedCount;
  const kv::Pool &pool = blocks.pool();
  uint64_t idle = pool.available(gaugeGroup);
  uint64_t used = pool.count(gaugeGroup, kv::PageState::Used) +
                  pool.count(gaugeGroup, kv::PageState::Pending) +
                  pool.count(gaugeGroup, kv::PageState::Swapping) +
                  pool.count(gaugeGroup, kv::PageState::Pinned);
  counts.pagesTotal = idle + used;
  counts.pagesUsed = used;
}

ServingMetrics Scheduler::allMetrics() const {
  ServingMetrics all = counts;
  const kv::Pool &pool = blocks.pool();
  for (uint32_t g = 0; g < pool.groups(); ++g) {
    uint64_t cached = pool.count(g, kv::PageState::Cached);
    uint64_t used = pool.count(g, kv::PageState::Used) + pool.count(g, kv::PageState::Pending) +
                    pool.count(g, kv::PageState::Swapping) + pool.count(g, kv::PageState::Pinned);
    all.groupPages.push_back({pool.available(g) + used, used, cached});
  }
  kv::Counters pages = blocks.counters();
  all.evictions = pages.evicted;
  all.evictionsAfterHit = pages.evictedAfterHit;
  all.pageCopies = pages.copies;
  all.pagesSwappedOut = pages.swappedOutPages;
  all.pagesSwappedIn = pages.swappedInPages;
  all.pagesDemoted = pages.demotedPages;
  all.hostPageHits = pages.hostHitPages;
  return all;
}

void Scheduler::resetCache() {
  blocks.resetCache();
  // Nobody matches anything any more: the queue's order may say otherwise.
  for (uint32_t slot = 0; slot < requests.size(); ++slot) {
    Request &request = requests[slot];
    if (!queue.contains(slot) || !request.matched || request.swapped)
      continue;
    request.matched = 0;
    queue.rekey(slot, keyOf(request));
  }
}

void Scheduler::deviceLost(bool requeue, int64_t nowNs) {
  for (uint32_t i = 0; i < runningRows.size(); ++i)
    if (runningRows.isSteady(i))
      endSteadyAt(i);
  blocks.dropAll();
  flightHead = flightCount = 0;
  preempting.clear();
  for (uint32_t slot = 0; slot < requests.size(); ++slot) {
    Request &request = requests[slot];
    bool held = request.state == RequestState::Running ||
                request.state == RequestState::Preempting || request.swapped;
    if (!held)
      continue;
    stopReceiving(request);
    bool wasWaiting = request.state == RequestState::Waiting;
    swappedCount -= request.swapped;
    request.swapped = false;
    request.inFlightRows = request.inFlightLeast = request.inFlightMost = 0;
    request.samplesInFlight = 0;
    request.sequence = {};
    if (!requeue) {
      endRequest(slot, FinishReason::DeviceFailure, nowNs);
      continue;
    }
    forgetPages(request);
    if (wasWaiting)
      continue;
    leaveRunning(slot);
    enqueue(slot);
  }
  updateGauges();
}

std::vector<uint64_t> Scheduler::snapshot() const {
  std::vector<kv::TableDelta> deltas;
  std::vector<kv::PageId> pages;
  kv::StepTables tables;
  blocks.snapshot(deltas, pages, tables.version);
  tables.deltas = deltas;
  tables.pages = pages;
  StepWriter whole(capacitiesOf(config, blocks.options()));
  whole.begin(launched, step::Kind::Snapshot);
  whole.setTables(tables);
  std::span<const uint8_t> bytes = whole.finish();
  std::vector<uint64_t> copy(bytes.size() / 8);
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<uint8_t *>(copy.data()));
  return copy;
}

Status Scheduler::check() const {
  auto wrong = [](uint32_t slot, const char *rule) {
    return makeStatus(StatusCode::Internal, "request {}: {}", slot, rule);
  };
  uint32_t unused = 0, running = 0, waiting = 0, swapped = 0, forks = 0, reserved = 0;
  for (uint32_t slot = 0; slot < requests.size(); ++slot) {
    const Request &r = requests[slot];
    bool holds = r.state == RequestState::Running || r.state == RequestState::Preempting;
    unused += r.state == RequestState::Unused;
    running += holds;
    waiting += r.state == RequestState::Waiting;
    swapped += r.swapped;
    if (r.state == RequestState::Unused)
      continue;
    bool fork = r.leader != Request::kNone;
    if (fork && (r.state != RequestState::Waiting || r.firstFork != Request::kNone ||
                 requests[r.leader].known() != r.known() || requests[r.leader].given()))
      return wrong(slot, "it waits for the prompt of a request that is not at its prompt");
    forks += fork;
    reserved += holds ? r.forks : 0;
    if (queue.contains(slot) != (r.state == RequestState::Waiting && !r.blocked && !fork) ||
        ages.contains(slot) != (queue.contains(slot) && !byArrival))
      return wrong(slot, "the queue does not have it, or has it wrongly");
    if ((holds || r.swapped) != blocks.alive(r.sequence))
      return wrong(slot, "its sequence is not as its state says");
    if (!holds && r.inFlightRows)
      return wrong(slot, "it waits with rows in flight");
    if (r.receiving && (r.state != RequestState::Running || r.inFlightRows))
      return wrong(slot, "it receives its pages and runs");
    uint32_t position = holds ? runningRows.positionOf(slot) : runningRows.size();
    if (holds != (position < runningRows.size()) ||
        r.steady != (holds && runningRows.isSteady(position)))
      return wrong(slot, "the running ones do not have it, or have it wrongly");
    uint32_t most = r.steady ? nextBase(position) : r.mostLength();
    uint32_t computed = r.steady ? most - uint32_t(flightCount) : r.computed;
    if (holds && (blocks.committedTokens(r.sequence) != computed ||
                  (blocks.boundTokens(r.sequence) != most && !r.receiving)))
      return wrong(slot, "its lengths differ from the block manager's");
    if (r.steady) {
      const step::Row &row = newestRow(position);
      if (!r.plain() || row.request != slot || row.generation != r.generation ||
          row.tableSlot != r.sequence.slot || runningRows.next(position) <= newestStep ||
          runningRows.next(position) > runningRows.end(position) ||
          blocks.unfinishedRows(r.sequence) != flightCount ||
          newestTokens.writtenTo(row.tableSlot) > computed + 1 ||
          newestTokens.writtenTo(row.tableSlot) + newestTokens.most() < computed + 1)
        return wrong(slot, "it is not as steady as it should be");
      // The next step's row begins at `most`.
      auto stepOf = [&](uint32_t base) { return newestStep + 1 + (base - std::min(base, most)); };
      if (runningRows.next(position) > stepOf(blocks.steadyCapacity(row.tableSlot)) ||
          runningRows.block(position) > stepOf(blocks.steadyPlainEnd(row.tableSlot)))
        return wrong(slot, "no step would look at it where it needs a page or ends a block");
    }
    if (!r.steady && r.newest != r.tokens().back())
      return wrong(slot, "its newest token is not its last");
    if (holds && !r.receiving && !r.prefilling() &&
        r.given() + r.samplesInFlight != r.decodePosition())
      return wrong(slot, "a row of it does not yield a token");
    if (r.computed >= r.known() && !r.inFlightRows)
      return wrong(slot, "it has no token left to run");
  }
  if (unused != freeSlots.size() || running != runningRows.size() || waiting != this->waiting() ||
      swapped != swappedCount)
    return makeStatus(
        StatusCode::Internal,
        "{} free, {} running, {} waiting, {} swapped requests; the lists have {}, {}, "
        "{} and {}",
        unused, running, waiting, swapped, freeSlots.size(), runningRows.size(), queue.size(),
        swappedCount);
  if (forks != waitingForks || reserved != reservedForks)
    return makeStatus(StatusCode::Internal,
                      "{} forks wait, {} of them with a place among the running; the counts say {} "
                      "and {}",
                      forks, reserved, waitingForks, reservedForks);
  return blocks.check();
}

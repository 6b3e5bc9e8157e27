// Where a waiting request is admitted.
#include "runtime/scheduler/Scheduler.h"

#include "runtime/scheduler/Mutants.h"

#include <algorithm>

using namespace llmopt::runtime;

/// Begins to load the requests that will most likely be admitted in this step, with what is not yet
/// found of their prompts: they were left alone since they came. As many as in the last one.
void Scheduler::fetchWaiters() const {
  constexpr uint32_t kMost = 2048; // tokens of a prompt
  queue.forFirst(admitted, [&](uint32_t slot) {
    const Request &request = requests[slot];
    request.prompt->fetch();
    fetchTokens(request, request.matched, std::min(request.known() - request.matched, kMost));
  });
}

void Scheduler::admitWaiting(int64_t nowNs) {
  refreshMatches();
  admitted = 0;
  if (queue.empty())
    return;
  promised = outstanding();
  auto room = [&] { return budgetLeft && runningRows.size() + reservedForks < config.maxRunning; };
  // An aged one waits: nobody else.
  for (uint32_t slot; (slot = agedWaiter()) != Request::kNone;)
    if (!room() || !tryAdmit(slot, nowNs))
      return;
  tried.clear();
  while (!queue.empty() && room() && tried.size() < config.lookahead) {
    uint32_t slot = queue.pop();
    if (!tryAdmit(slot, nowNs))
      tried.push_back(slot);
  }
  for (uint32_t slot : tried)
    queue.push(slot, keyOf(requests[slot]), requests[slot].arrival);
}

void Scheduler::refreshMatches() {
  if (!policy->usesMatches())
    return;
  uint32_t count = std::min(config.matchesPerStep, queue.size());
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t slot = queue.slotAt(refreshAt++ % queue.size());
    Request &request = requests[slot];
    if (request.swapped)
      continue;
    uint32_t matched = blocks.match(*request.prompt).tokens;
    if (matched != request.matched) {
      request.matched = matched;
      queue.rekey(slot, keyOf(request));
    }
  }
}

/// What a request of `length` tokens holds at once at most: groups with a window give pages
/// back while a long prompt is being computed.
kv::Demand Scheduler::wholeDemand(kv::Demand asked, uint32_t length) const {
  const std::vector<kv::GroupSpec> &groups = blocks.options().groups;
  for (uint32_t g = 0; g < groups.size(); ++g)
    if (!groups[g].keepsAll())
      asked.take[g] = uint32_t(std::min<uint64_t>(
          asked.take[g], groups[g].pagesHeld(length, std::min(length, config.chunkTokens)) + 1));
  return asked;
}

uint32_t Scheduler::growthPages(uint32_t group) const {
  return uint32_t(blocks.options().groups[group].pagesFor(config.growthTokens));
}

/// Pages that running prefills still need for the rest of their prompts, and those that each
/// running request is to grow by.
kv::Demand Scheduler::outstanding() const {
  kv::Demand sum;
  for (uint32_t slot : prefills)
    sum += restOf(requests[slot]);
  for (uint32_t g = 0; g < blocks.options().groups.size(); ++g)
    sum.take[g] += growthPages(g) * runningRows.size();
  sum += demandOfForks(reservedForks);
  return sum;
}

/// Of forks to come: each copies the last page that it shares, and grows.
kv::Demand Scheduler::demandOfForks(uint32_t forks) const {
  kv::Demand demand;
  for (uint32_t g = 0; g < blocks.options().groups.size(); ++g)
    demand.take[g] = (growthPages(g) + 1) * forks;
  return demand;
}

kv::Demand Scheduler::restOf(const Request &request) const {
  uint32_t reserved = blocks.boundTokens(request.sequence);
  if (reserved >= request.prefillEnd)
    return {};
  return wholeDemand(blocks.demandOf(request.sequence, request.prefillEnd - reserved),
                     request.prefillEnd);
}

bool Scheduler::adapterFits(uint32_t adapter) const {
  if (!config.maxAdapters || !adapter || mutant(SchedulerMutant::AdaptersUnlimited))
    return true;
  uint32_t distinct = 0;
  for (uint32_t i = 0; i < runningRows.size(); ++i) {
    uint32_t other = requests[runningRows[i]].adapter;
    if (other == adapter)
      return true;
    bool seen = !other;
    for (uint32_t j = 0; j < i && !seen; ++j)
      seen = requests[runningRows[j]].adapter == other;
    distinct += !seen;
  }
  return distinct < config.maxAdapters;
}

bool Scheduler::tryAdmit(uint32_t slot, int64_t nowNs) {
  Request &request = requests[slot];
  if (!adapterFits(request.adapter))
    return false;
  if (request.swapped)
    return tryReturn(slot);
  kv::Prompt &prompt = *request.prompt;
  request.matched = blocks.match(prompt).tokens;
  auto roomFor = [&](const kv::Demand &pages) {
    kv::Demand sum = wholeDemand(pages, request.known());
    sum += promised;
    sum += demandOfForks(request.forks);
    return blocks.holds(sum);
  };
  auto fits = [&] {
    uint32_t left = request.known() - request.matched;
    return roomFor(blocks.mostDemandOf(prompt, left)) || roomFor(blocks.demandOf(prompt, left));
  };
  // Who waits for its prompt computes the last token, and has the others from it. Where these
  // are cached there is nothing to wait for.
  // Nor where a pool of which nothing is promised has no room for all of them.
  if (request.matched + 1 == request.known() || (runningRows.empty() && !fits()))
    queueForks(slot);
  if (runningRows.size() + reservedForks + 1 + request.forks > config.maxRunning)
    return false;
  uint32_t end = request.known() - (request.leads ? 1 : 0);
  if (!fits())
    return false;
  if (request.remoteTokens && tryReceive(slot)) {
    startRunning(slot);
    if (request.firstStepNs < 0)
      recordStart(request, nowNs);
    promised += restOf(request);
    return true;
  }
  uint32_t left = end - request.matched;
  kv::Admission admission = blocks.admit(prompt, std::min({left, budgetLeft, config.chunkTokens}));
  if (admission.reply != kv::Reply::Ok)
    return false;
  request.sequence = admission.sequence;
  request.remoteTokens = 0;
  request.computed = admission.hit.tokens;
  request.prefillEnd = end;
  counts.tokensReused += request.computed - std::min(request.computed, request.highestComputed);
  startRunning(slot);
  if (request.firstStepNs < 0)
    recordStart(request, nowNs);
  PlannedRow row;
  row.slot = slot;
  row.tokens = admission.newTokens;
  row.samples = request.computed + row.tokens == request.known();
  budgetLeft -= row.tokens;
  plan.push_back(row);
  promised += restOf(request);
  return true;
}

/// Back from host memory. What it holds comes back whole.
bool Scheduler::tryReturn(uint32_t slot) {
  Request &request = requests[slot];
  kv::Demand demand;
  const std::vector<kv::GroupSpec> &groups = blocks.options().groups;
  for (uint32_t g = 0; g < groups.size(); ++g)
    demand.take[g] = uint32_t(groups[g].pagesFor(request.computed + 1));
  demand = wholeDemand(demand, request.computed + 1);
  demand += promised;
  if (!runningRows.empty() && !blocks.holds(demand))
    return false;
  if (blocks.swapIn(request.sequence) != kv::Reply::Ok)
    return false;
  request.swapped = false;
  swappedCount -= mutant(SchedulerMutant::SwapCountKept) ? 0 : 1;
  ++counts.swapIns;
  startRunning(slot);
  size_t planned = plan.size();
  planRow(slot);
  if (plan.size() > planned &&
      blocks.reserve(request.sequence, plan.back().tokens) != kv::Reply::Ok) {
    budgetLeft += plan.back().tokens;
    plan.pop_back(); // its first row comes with the next step
  }
  promised += restOf(request);
  return true;
}

void Scheduler::recordStart(Request &request, int64_t nowNs) {
  request.firstStepNs = nowNs;
  counts.queueTime.record(uint64_t(nowNs - request.arrivalNs));
  uint32_t page = blocks.options().groups[gaugeGroup].pageSize;
  uint32_t hit = request.computed, known = request.known();
  counts.prefixQueries += known;
  counts.prefixHits += hit;
  // A wholly cached prompt runs its last token all the same.
  counts.prefixPageQueries += known / page;
  counts.prefixPageHits += (hit + 1 == known ? known : hit) / page;
}

void Scheduler::startRunning(uint32_t slot) {
  ++admitted;
  dequeue(slot);
  requests[slot].state = RequestState::Running;
  runningRows.add(slot);
  reservedForks += requests[slot].forks;
  for (uint32_t g = 0; g < blocks.options().groups.size(); ++g)
    promised.take[g] += growthPages(g);
  promised += demandOfForks(requests[slot].forks);
}

/// Freed pages are kept for the oldest waiter from forks and transfers too, until the next
/// step is made.
void Scheduler::keepForOldest() {
  uint32_t slot = agedWaiter();
  if (slot == Request::kNone || requests[slot].swapped)
    return;
  Request &request = requests[slot];
  blocks.setAside(wholeDemand(blocks.demandOf(*request.prompt, request.known() - request.matched),
                              request.known()));
}

// Where a request is preempted: when the planned rows lack pages.
#include "runtime/kv/Pool.h"
#include "runtime/scheduler/Mutants.h"
#include "runtime/scheduler/Scheduler.h"

#include <algorithm>
#include <tuple>

using namespace llmopt::runtime;

kv::Demand Scheduler::plannedDemand() const {
  kv::Demand sum;
  for (const PlannedRow &row : plan)
    if (row.tokens)
      sum += blocks.demandOf(requests[row.slot].sequence, row.tokens);
  for (const Unreserved &row : unreserved)
    if (!row.inPlan())
      sum += blocks.demandOfSteady(row.tableSlot);
  return sum;
}

/// Whether the demand could be had once steps, copies and preemptions under way have ended.
bool Scheduler::onItsWay(const kv::Demand &demand) const {
  kv::Demand coming;
  for (uint32_t slot : preempting)
    coming += blocks.ownPages(requests[slot].sequence);
  const kv::Pool &pool = blocks.pool();
  kv::Demand rest = demand;
  bool any = false;
  for (uint32_t g = 0; g < pool.groups(); ++g) {
    uint32_t pages = coming.take[g] + pool.count(g, kv::PageState::Pending) +
                     pool.count(g, kv::PageState::Swapping);
    any |= pages > 0;
    rest.take[g] -= std::min(rest.take[g], pages);
  }
  return any && blocks.holds(rest);
}

/// More than `rows` rows of `tokens` tokens together can take.
kv::Demand Scheduler::mostDemand(uint32_t tokens, uint32_t rows) const {
  kv::Demand most;
  for (uint32_t g = 0; g < blocks.options().groups.size(); ++g)
    most.take[g] = tokens / blocks.options().groups[g].pageSize + 3 * rows;
  return most;
}

void Scheduler::makeRoom() {
  uint32_t tokens = config.tokenBudget - budgetLeft;
  if (unreserved.empty() || blocks.holds(mostDemand(tokens, uint32_t(unreserved.size()))))
    return; // nearly always
  for (kv::Demand demand = plannedDemand(); !blocks.holds(demand); demand = plannedDemand()) {
    if (onItsWay(demand))
      return;
    uint32_t slot = victim();
    if (slot == Request::kNone)
      return;
    for (PlannedRow &row : plan)
      if (row.slot == slot) {
        budgetLeft += row.tokens;
        row.tokens = 0;
        gaps = true;
      }
    budgetLeft += requests[slot].steady; // a row that is not in the plan
    preempt(slot);
  }
}

uint32_t Scheduler::victim() const {
  uint32_t ward = mutant(SchedulerMutant::WardPreempted) ? Request::kNone : wardSlot();
  uint32_t best = Request::kNone;
  // Preempted twice: last. Then the lowest class, the least computed, the youngest.
  auto rank = [&](uint32_t position) {
    const Request &r = requests[runningRows[position]];
    uint32_t length = r.steady ? nextBase(position) : r.leastLength();
    return std::tuple(r.preemptions >= 2, ~uint32_t(r.priority), length, ~r.arrival);
  };
  for (uint32_t i = 0; i < runningRows.size(); ++i) {
    uint32_t slot = runningRows[i];
    // A peer writes on: taking the pages of a request that receives brings none for now.
    if (requests[slot].state == RequestState::Running && slot != ward &&
        !requests[slot].receiving && (best == Request::kNone || rank(i) < rank(best)))
      best = i;
  }
  return best == Request::kNone ? best : runningRows[best];
}

void Scheduler::preempt(uint32_t slot) {
  endSteady(slot);
  Request &request = requests[slot];
  ++counts.preemptions;
  ++request.preemptions;
  if (request.inFlightRows == 0 || mutant(SchedulerMutant::PreemptedInFlight))
    return finishPreemption(slot);
  // Its rows in flight still count: their tokens are taken when they complete.
  request.state = RequestState::Preempting;
  preempting.push_back(slot);
}

bool Scheduler::swapIsCheaper(const Request &request) const {
  if (swappedCount + config.maxRunning >= blocks.options().maxSequences)
    return false; // who is swapped out keeps its table slot
  kv::Demand own = blocks.ownPages(request.sequence);
  uint64_t bytes = 0;
  for (uint32_t g = 0; g < blocks.options().groups.size(); ++g)
    bytes += own.take[g] * blocks.options().groups[g].pageBytes();
  const kv::CostModel &costs = blocks.options().costs;
  return 2 * costs.copy(bytes) < costs.recompute(request.computed, 0);
}

void Scheduler::finishPreemption(uint32_t slot) {
  Request &request = requests[slot];
  leaveRunning(slot);
  request.lastRow = Request::kNone;
  stopReceiving(request); // what a peer may still write to is not swapped: swapOut refuses
  if (swapIsCheaper(request) && blocks.swapOut(request.sequence) == kv::Reply::Ok) {
    request.swapped = true;
    ++swappedCount;
    ++counts.swapOuts;
  } else {
    blocks.finish(request.sequence);
    forgetPages(request);
  }
  enqueue(slot);
}

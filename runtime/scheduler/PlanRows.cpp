// The rows of the running requests: who gets how many tokens, and their slots.
#include "runtime/scheduler/Scheduler.h"

#include "runtime/scheduler/Mutants.h"

#include <algorithm>
#include <utility>

using namespace llmopt::runtime;

std::span<const uint8_t> Scheduler::schedule(int64_t nowNs) {
  if (flightCount == flights.size())
    return {};
  if (!flightCount)
    blocks.poll(); // no completed step will: copies to host memory may be all that goes on
  stepNs = nowNs;
  endOverdue(nowNs);
  if (runningRows.empty() && queue.empty()) {
    updateGauges(); // copies may have ended
    return {};
  }
  if (blocks.openStep() != kv::Reply::Ok)
    return {};
  blocks.setAside({}); // what runs may grow into what is kept for the oldest waiter
  fetchWaiters();
  planRunning();
  uint64_t preemptions = counts.preemptions;
  makeRoom();
  reserveRows();
  // Who was just preempted, or is about to be, would take its pages back.
  if (counts.preemptions == preemptions && preempting.empty())
    admitWaiting(nowNs);
  keepForOldest();
  closeGaps();
  if (plan.empty() && !runningRows.steadyCount()) {
    blocks.cancelStep();
    updateGauges();
    return {};
  }
  return launch();
}

/// Drafts for a request's next row, as the host knows its lengths: no slot is ever needed
/// past the answer's last token but one.
uint32_t Scheduler::draftsFor(uint32_t slot, uint32_t budget, uint32_t &firstDraft) {
  Request &request = requests[slot];
  uint32_t end = request.promptLength + request.outputLimit - 1;
  uint32_t least = request.given() + request.samplesInFlight;
  if (request.mostLength() + 1 >= end || least + 1 >= request.outputLimit || budget < 2)
    return 0;
  uint32_t room =
      std::min({end - request.mostLength() - 1, request.outputLimit - least - 1, budget - 1});
  if (config.draftSource && request.inFlightRows == 0) {
    room = std::min(room, config.hostDrafts);
    firstDraft = uint32_t(draftTokens.size());
    draftTokens.resize(firstDraft + room);
    draftParents.resize(firstDraft + room);
    uint32_t count = config.draftSource->propose(handleOf(slot), request.tokens(),
                                                 std::span(draftTokens).subspan(firstDraft, room),
                                                 std::span(draftParents).subspan(firstDraft, room));
    count = goodDrafts(firstDraft, std::min(count, room));
    if (request.filter)
      count =
          std::min(count, request.filter->allowedDrafts(
                              handleOf(slot), std::span(draftTokens).subspan(firstDraft, count)));
    draftTokens.resize(firstDraft + count);
    draftParents.resize(firstDraft + count);
    return count;
  }
  // The device keeps what rows yielded for D steps; a filter has not seen its drafts.
  bool reachable = request.lastRow != Request::kNone &&
                   (uint64_t(blocks.currentStep()) - request.lastStep <= config.stepsInFlight ||
                    mutant(SchedulerMutant::OldDrafts));
  return reachable && !request.filter ? std::min(room, uint32_t(config.deviceDrafts.size())) : 0;
}

/// Of `count` proposals from `first` on, those before the first with a parent that it may not
/// have.
uint32_t Scheduler::goodDrafts(uint32_t first, uint32_t count) const {
  for (uint32_t i = 0; i < count; ++i) {
    int before = int(i) - 1, parent = draftParents[first + i];
    bool allowed = config.hostDraftTrees ? parent >= -1 && parent <= before : parent == before;
    if (!allowed)
      return i;
  }
  return count;
}

void Scheduler::planRow(uint32_t slot) {
  Request &request = requests[slot];
  bool blocked = request.blocked && !mutant(SchedulerMutant::FilterIgnored);
  if (request.state != RequestState::Running || blocked || request.receiving || !budgetLeft)
    return;
  PlannedRow row;
  row.slot = slot;
  if (request.prefilling()) {
    uint32_t left = request.prefillEnd - request.leastLength();
    row.tokens = std::min({left, budgetLeft, config.chunkTokens});
    if (mutant(SchedulerMutant::BudgetExceeded))
      row.tokens = std::min(left, budgetLeft + 1);
    row.samples = row.tokens == left && request.prefillEnd == request.known();
    fetchTokens(request, request.leastLength(), row.tokens); // until it is written
  } else {
    if (request.leads && !forkSamples(slot) && !mutant(SchedulerMutant::ForkedLate))
      return;
    // The upper bound may have reached the end of the answer: the results will tell. With a
    // filter the next token waits for the one before.
    bool ended = request.mostLength() + 1 > request.promptLength + request.outputLimit - 1;
    bool unseen = request.filter && request.inFlightRows;
    if (mutant(SchedulerMutant::BeyondTheAnswer))
      ended = request.mostLength() + 1 >= blocks.options().maxTokens;
    else if (!request.wantsRow())
      return;
    if (ended || (unseen && !mutant(SchedulerMutant::FilterRunsAhead)))
      return;
    if (mostDrafts)
      row.drafts = uint16_t(draftsFor(slot, budgetLeft, row.firstDraft));
    row.tokens = 1 + row.drafts;
    row.samples = true;
    row.decode = !row.drafts;
  }
  budgetLeft -= std::min(budgetLeft, row.tokens);
  unreserved.push_back({slot, uint32_t(plan.size())});
  plan.push_back(row);
}

void Scheduler::planRunning() {
  plan.clear();
  prefills.clear();
  unreserved.clear();
  draftTokens.clear();
  draftParents.clear();
  gaps = false;
  budgetLeft = config.tokenBudget;
  // Without drafts a row has one token and yields one: the bounds of the length are exact.
  uint32_t decodes = 0;
  bool single = !mostDrafts && !mutant(SchedulerMutant::BeyondTheAnswer);
  uint32_t step = blocks.currentStep() - mutant(SchedulerMutant::SteadyTooLong);
  for (uint32_t i = 0; i < runningRows.size(); ++i) { // forks come in between
    uint32_t next = runningRows.firstDue(i, step);
    decodes += next - i;
    if (next == runningRows.size())
      break;
    uint32_t slot = runningRows[i = next];
    if (runningRows.isSteady(i)) {
      if (goOnSteady(i)) {
        ++decodes;
        continue;
      }
      endSteadyAt(i);
    }
    const Request &request = requests[slot];
    if (request.prefilling()) {
      prefills.push_back(slot);
    } else if (!single || !request.plain()) {
      budgetLeft -= std::exchange(decodes, 0);
      planRow(slot);
    } else if (request.decodePosition() < request.outputLimit) {
      unreserved.push_back({slot, uint32_t(plan.size())});
      ++decodes;
      plan.push_back({.slot = slot, .tokens = 1, .samples = true, .decode = true});
    }
  }
  plannedInOrder = plan.size();
  budgetLeft -= decodes; // it has a token for each
  // The ward's prefill first: the bound on waiting counts on it.
  uint32_t ward = wardSlot();
  if (ward != Request::kNone && requests[ward].prefilling())
    planRow(ward);
  for (uint32_t slot : prefills)
    if (slot != ward)
      planRow(slot);
}

void Scheduler::reserveRows() {
  auto reserve = [&](const Unreserved &wanted) {
    if (!wanted.inPlan()) {
      if (blocks.reserveSteady(wanted.tableSlot) != kv::Reply::Ok &&
          requests[wanted.request].steady) {
        endSteady(wanted.request);
        ++budgetLeft;
      }
      return;
    }
    PlannedRow &row = plan[wanted.row];
    uint32_t slots =
        mutant(SchedulerMutant::DraftSlotsForgotten) ? row.tokens - row.drafts : row.tokens;
    if (!row.tokens || blocks.reserve(requests[row.slot].sequence, slots) == kv::Reply::Ok)
      return;
    budgetLeft += row.tokens;
    row.tokens = 0; // left out of this step: its pages are on their way
    gaps = true;
  };
  uint32_t ward = wardSlot();
  for (const Unreserved &row : unreserved)
    if (row.request == ward)
      reserve(row);
  // The others, of which steady ones that follow each other get their pages at once.
  auto isSteady = [&](size_t i) { return i < unreserved.size() && !unreserved[i].inPlan(); };
  for (size_t i = 0, end; i < unreserved.size(); i = end) {
    growing.clear();
    for (end = i; isSteady(end) && unreserved[end].request != ward; ++end)
      growing.push_back(unreserved[end].tableSlot);
    if (growing.size() > 1 && blocks.reserveSteady(growing))
      continue;
    for (end = std::max(end, i + 1); i < end; ++i)
      if (unreserved[i].request != ward)
        reserve(unreserved[i]);
  }
}

/// Rows that were given up leave the plan.
void Scheduler::closeGaps() {
  if (!gaps)
    return;
  auto empty = [](const PlannedRow &row) { return row.tokens == 0; };
  plannedInOrder -= size_t(std::count_if(plan.begin(), plan.begin() + long(plannedInOrder), empty));
  std::erase_if(plan, empty);
}

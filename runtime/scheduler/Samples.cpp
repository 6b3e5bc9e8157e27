// Several samples of one prompt: the first, their leader, computes all of it but the last
// token; then the others are forks of its pages, and each computes the last token for itself.
// What cannot be forked (no place among the running, no table slot) waits in the queue like
// any request, and so do the others when the leader ends before.
#include "runtime/scheduler/Mutants.h"
#include "runtime/scheduler/Scheduler.h"

#include <utility>

using namespace llmopt::runtime;

/// At the end of the list: the leader is the oldest of all, which the bound on waiting needs.
void Scheduler::addFork(uint32_t leader, uint32_t slot) {
  Request &first = requests[leader], &fork = requests[slot];
  fork.state = RequestState::Waiting;
  fork.leader = leader;
  uint32_t *link = &first.firstFork;
  while (*link != Request::kNone)
    link = &requests[*link].nextFork;
  *link = slot;
  ++first.forks;
  first.leads = true;
  ++waitingForks;
}

void Scheduler::removeFork(uint32_t slot) {
  Request &fork = requests[slot], &first = requests[fork.leader];
  uint32_t *link = &first.firstFork;
  while (*link != slot)
    link = &requests[*link].nextFork;
  *link = fork.nextFork;
  fork.leader = fork.nextFork = Request::kNone;
  first.leads = --first.forks > 0;
  --waitingForks;
  if (first.state != RequestState::Waiting)
    --reservedForks;
}

/// They become requests like any other.
void Scheduler::queueForks(uint32_t leader) {
  while (requests[leader].leads) {
    uint32_t slot = requests[leader].firstFork;
    removeFork(slot);
    enqueue(slot);
  }
}

/// The leader ends; the oldest of those that wait for it computes the prompt in its place.
void Scheduler::passForks(uint32_t leader) {
  if (!requests[leader].leads || mutant(SchedulerMutant::ForksForgotten))
    return;
  uint32_t next = requests[leader].firstFork;
  removeFork(next);
  Request &first = requests[next];
  first.firstFork = std::exchange(requests[leader].firstFork, Request::kNone);
  first.forks = std::exchange(requests[leader].forks, 0);
  first.leads = first.forks > 0;
  requests[leader].leads = false;
  for (uint32_t slot = first.firstFork; slot != Request::kNone; slot = requests[slot].nextFork)
    requests[slot].leader = next;
  enqueue(next);
}

/// Forks all that wait, once the leader has computed what they share. False while its pages are
/// not ready: then it has no row either.
bool Scheduler::forkSamples(uint32_t leader) {
  if (requests[leader].inFlightRows)
    return false;
  while (requests[leader].leads) {
    kv::SequenceId child;
    uint32_t slot = requests[leader].firstFork;
    kv::Reply reply = runningRows.size() < config.maxRunning
                          ? blocks.fork(requests[leader].sequence, child)
                          : kv::Reply::NoTableSlot;
    if (reply == kv::Reply::InFlight)
      return false;
    removeFork(slot);
    if (reply != kv::Reply::Ok) {
      enqueue(slot);
      continue;
    }
    Request &fork = requests[slot];
    fork.sequence = child;
    fork.computed = fork.prefillEnd = requests[leader].computed;
    fork.state = RequestState::Running;
    runningRows.add(slot);
    ++counts.forks;
    counts.tokensReused += fork.computed;
    fork.firstStepNs = stepNs;
    counts.queueTime.record(uint64_t(stepNs - fork.arrivalNs));
  }
  return true;
}

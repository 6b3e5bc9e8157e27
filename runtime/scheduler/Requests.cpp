// Requests come, wait and end.
#include "runtime/scheduler/Scheduler.h"

#include "runtime/scheduler/Mutants.h"

#include <algorithm>

using namespace llmopt::runtime;

Status Scheduler::refuse(RejectReason reason, Status status) {
  ++counts.rejected[size_t(reason)];
  return status;
}

Status Scheduler::validate(const RequestParams &params, size_t samples, int64_t nowNs) {
  if (params.prompt.empty())
    return refuse(RejectReason::EmptyPrompt,
                  invalidArgument("the prompt is empty; at least one token is needed"));
  uint64_t length = params.prompt.size() + uint64_t(params.maxNewTokens);
  if (length > config.maxLength)
    return refuse(RejectReason::TooLong,
                  invalidArgument("a prompt of {} tokens and an answer of {}; both together may "
                                  "have {}; shorten one of them",
                                  params.prompt.size(), params.maxNewTokens, config.maxLength));
  if (!params.maxNewTokens || params.priority >= kPriorities ||
      params.stopTokens.size() > kMaxStopTokens)
    return refuse(
        RejectReason::Invalid,
        invalidArgument("an answer of {} tokens, priority {}, {} stop tokens; at least 1 "
                        "token, priorities 0 to {} and at most {} stop tokens are allowed",
                        params.maxNewTokens, params.priority, params.stopTokens.size(),
                        kPriorities - 1, kMaxStopTokens));
  if (samples < 1 || samples > config.maxRunning)
    return refuse(RejectReason::Invalid,
                  invalidArgument("{} samples of a prompt; 1 to {}, the most that may run, are "
                                  "allowed",
                                  samples, config.maxRunning));
  // All of them are queued together: more could not be, however long the caller waited.
  if (samples > config.maxWaiting)
    return refuse(RejectReason::Invalid,
                  invalidArgument("{} samples of a prompt; 1 to {}, the most that may wait, are "
                                  "allowed",
                                  samples, config.maxWaiting));
  kv::Token all = 0;
  for (kv::Token token : params.prompt)
    all |= token;
  if (all >> 31)
    return refuse(
        RejectReason::Invalid,
        invalidArgument("the prompt has a token of 2^31 or more; smaller ones are allowed"));
  LLMOPT_RETURN_IF_ERROR(validateMedia(params));
  // The last token of an answer is given out and never computed upon.
  kv::Reply reply = blocks.fits(length - 1, config.chunkTokens);
  if (reply != kv::Reply::Ok)
    return refuse(RejectReason::LargerThanPool,
                  makeStatus(StatusCode::ResourceExhausted,
                             "a prompt of {} tokens and an answer of {} would not fit into the "
                             "empty pool of {} pages; shorten them, or serve with more pages",
                             params.prompt.size(), params.maxNewTokens, counts.pagesTotal));
  if (params.deadlineNs <= nowNs)
    return refuse(
        RejectReason::NoTime,
        invalidArgument("the deadline was {} ns ago; give a later one", nowNs - params.deadlineNs));
  if (waiting() + samples > config.maxWaiting)
    return refuse(RejectReason::QueueFull,
                  makeStatus(StatusCode::ResourceExhausted,
                             "{} requests wait, and {} may; try again later", waiting(),
                             config.maxWaiting));
  return {};
}

Status Scheduler::validateMedia(const RequestParams &params) {
  uint32_t from = 0;
  for (const kv::MediaSpan &medium : params.media) {
    if (medium.begin < from || medium.end <= medium.begin || medium.end > params.prompt.size() ||
        medium.digest.empty())
      return refuse(RejectReason::Invalid,
                    invalidArgument("a medium with a digest of {} bytes stands for tokens {} to {} "
                                    "of {}; each has a digest and tokens of the prompt behind "
                                    "those of the one before",
                                    medium.digest.size(), medium.begin, medium.end,
                                    params.prompt.size()));
    from = medium.end;
  }
  return {};
}

StatusOr<RequestHandle> Scheduler::submit(const RequestParams &params, int64_t nowNs) {
  RequestHandle handle;
  LLMOPT_RETURN_IF_ERROR(submit(params, {&handle, 1}, nowNs));
  return handle;
}

Status Scheduler::submit(const RequestParams &params, std::span<RequestHandle> samples,
                         int64_t nowNs) {
  LLMOPT_RETURN_IF_ERROR(validate(params, samples.size(), nowNs));
  uint32_t leader = Request::kNone;
  for (size_t i = 0; i < samples.size(); ++i) {
    uint32_t slot = addRequest(params, nowNs);
    requests[slot].samplingSeed += i;
    samples[i] = handleOf(slot);
    // A prompt of one token has nothing to share.
    if (i && params.prompt.size() > 1)
      addFork(leader, slot);
    else
      enqueue(leader = slot);
  }
  counts.waiting = waiting();
  return {};
}

uint32_t Scheduler::addRequest(const RequestParams &params, int64_t nowNs) {
  uint32_t slot = freeSlots.back();
  freeSlots.pop_back();
  Request &request = requests[slot];
  uint32_t generation = request.generation;
  tokenMemory.give(request.memory, request.memoryTokens());
  request = Request();
  request.generation = generation;
  request.greedy = params.greedy;
  request.promptLogprobs = params.promptLogprobs;
  request.filter = params.filter;
  request.filtered = params.filter != nullptr;
  request.samplingSeed = params.samplingSeed;
  request.memory = tokenMemory.take(params.prompt.size() + params.maxNewTokens);
  std::copy(params.prompt.begin(), params.prompt.end(), request.memory);
  request.knownTokens = uint32_t(params.prompt.size());
  request.newest = params.prompt.back();
  std::copy(params.stopTokens.begin(), params.stopTokens.end(), request.stopTokens.begin());
  request.stopCount = uint8_t(params.stopTokens.size());
  request.priority = uint8_t(params.priority);
  request.promptLength = uint32_t(params.prompt.size());
  request.outputLimit = params.maxNewTokens;
  request.adapter = params.adapter;
  request.remoteTokens = params.remoteTokens;
  request.forPeer = params.forPeer && config.connector;
  request.peerTag = params.peerTag;
  request.arrival = arrivals++;
  request.submitStep = launched;
  request.arrivalNs = nowNs;
  kv::CacheKey key = params.key;
  key.adapterNumber = mutant(SchedulerMutant::AdaptersShare) ? 0 : params.adapter;
  request.prompt.emplace(request.tokens(), key, blocks.blockSize(), params.media);
  request.prompt->reserve(request.promptLength + request.outputLimit, blocks.blockSize());
  request.prompt->bypassHits = params.promptLogprobs;
  request.prompt->neverInsert = params.neverInsert;
  link(slot);
  if (params.filter)
    request.blocked = !params.filter->prepare(handleOf(slot), request.tokens());
  if (params.deadlineNs != kNoDeadline)
    deadlines.push(slot, uint64_t(params.deadlineNs), request.arrival);
  return slot;
}

bool Scheduler::abort(RequestHandle handle, int64_t nowNs) {
  if (!find(handle))
    return false;
  endRequest(handle.slot, FinishReason::Abort, nowNs);
  updateGauges();
  return true;
}

bool Scheduler::filterReady(RequestHandle handle) {
  Request *request = find(handle);
  if (!request)
    return false;
  bool inQueue = request->state == RequestState::Waiting && request->leader == Request::kNone;
  if (request->blocked && inQueue) {
    --blockedWaiters;
    offer(handle.slot);
  }
  request->blocked = false;
  return true;
}

/// At the end of its class: requests come in the order of arrival and never move.
void Scheduler::link(uint32_t slot) {
  Request &request = requests[slot];
  request.newer = Request::kNone;
  request.older = newest[request.priority];
  (request.older == Request::kNone ? oldest[request.priority] : requests[request.older].newer) =
      slot;
  newest[request.priority] = slot;
}

void Scheduler::unlink(uint32_t slot) {
  Request &request = requests[slot];
  (request.older == Request::kNone ? oldest[request.priority] : requests[request.older].newer) =
      request.newer;
  (request.newer == Request::kNone ? newest[request.priority] : requests[request.newer].older) =
      request.older;
}

uint64_t Scheduler::keyOf(const Request &request) const {
  return policy->key(
      {request.priority, request.known(), request.matched, request.outputLimit - request.given()});
}

void Scheduler::enqueue(uint32_t slot) {
  Request &request = requests[slot];
  request.state = RequestState::Waiting;
  if (request.swapped)
    request.matched = request.computed; // nothing of it is to be computed again
  else // a prompt that has just come is in the first cache; what is found is remembered
    request.matched = blocks.match(*request.prompt).tokens;
  if (request.blocked) // it neither takes a place among those that are tried nor keeps others out
    ++blockedWaiters;
  else
    offer(slot);
}

void Scheduler::offer(uint32_t slot) {
  queue.push(slot, keyOf(requests[slot]), requests[slot].arrival);
  if (!byArrival)
    ages.push(slot, requests[slot].arrival, 0);
}

void Scheduler::dequeue(uint32_t slot) {
  if (requests[slot].leader != Request::kNone)
    return removeFork(slot);
  if (requests[slot].blocked) {
    --blockedWaiters;
    return;
  }
  if (mutant(SchedulerMutant::QueueKept))
    return;
  if (queue.contains(slot)) // a waiter that is being tried is out of it already
    queue.remove(slot);
  if (!byArrival)
    ages.remove(slot);
}

/// What it has computed is gone; its tokens are its prompt now.
void Scheduler::forgetPages(Request &request) {
  request.highestComputed = std::max(request.highestComputed, request.computed);
  request.computed = request.matched = request.plainEnd = 0;
  request.lastRow = Request::kNone;
  if (mutant(SchedulerMutant::GeneratedForgotten)) {
    request.knownTokens = request.promptLength;
    request.newest = request.tokens().back();
  }
  request.prompt->extend(request.tokens(), blocks.blockSize());
}

bool Scheduler::preempt(RequestHandle handle) {
  Request *request = find(handle);
  if (!request || request->state != RequestState::Running)
    return false;
  preempt(handle.slot);
  updateGauges();
  return true;
}

void Scheduler::leaveRunning(uint32_t slot) {
  reservedForks -= requests[slot].forks;
  runningRows.remove(runningRows.positionOf(slot));
}

void Scheduler::endRequest(uint32_t slot, FinishReason reason, int64_t nowNs) {
  endSteady(slot);
  Request &request = requests[slot];
  if (request.state == RequestState::Waiting) {
    dequeue(slot);
    swappedCount -= request.swapped;
  } else {
    leaveRunning(slot);
    if (request.state == RequestState::Preempting)
      preempting.erase(std::find(preempting.begin(), preempting.end(), slot));
    request.state = RequestState::Waiting; // it holds no place among the running any more
  }
  passForks(slot);
  stopReceiving(request);
  if (request.forPeer)
    offerPages(slot, reason);
  // Pages that a row in flight may still touch stay pending in the block manager.
  if (blocks.alive(request.sequence) && !mutant(SchedulerMutant::PagesKept))
    blocks.finish(request.sequence);
  if (deadlines.contains(slot))
    deadlines.remove(slot);
  unlink(slot);
  recordFinish(request, reason, nowNs);
  if (reason != FinishReason::Length || !mutant(SchedulerMutant::FinishUnheard))
    listener.onFinish(handleOf(slot), reason, nowNs);
  // Its memory is given back when the slot is used again: not in a step.
  ++request.generation;
  request.state = RequestState::Unused;
  request.swapped = request.blocked = request.receiving = request.leads = false;
  freeSlots.push_back(slot);
}

void Scheduler::endOverdue(int64_t nowNs) {
  if (mutant(SchedulerMutant::DeadlineForgotten))
    return;
  while (!deadlines.empty() && deadlines.topKey() <= uint64_t(std::max<int64_t>(nowNs, 0)))
    endRequest(deadlines.top(), FinishReason::Deadline, nowNs);
}

// ---- Ageing

uint32_t Scheduler::wardSlot() const {
  uint32_t first = Request::kNone, eldest = Request::kNone;
  for (uint32_t slot : oldest) {
    if (slot == Request::kNone)
      continue;
    if (first == Request::kNone)
      first = slot; // the oldest of the highest class
    if (eldest == Request::kNone || requests[slot].arrival < requests[eldest].arrival)
      eldest = slot;
  }
  return eldest != Request::kNone && aged(requests[eldest]) ? eldest : first;
}

RequestHandle Scheduler::ward() const {
  uint32_t slot = wardSlot();
  return slot == Request::kNone ? RequestHandle() : handleOf(slot);
}

uint32_t Scheduler::agedWaiter() const {
  if (queue.empty() || mutant(SchedulerMutant::AgedPassed))
    return Request::kNone;
  uint32_t slot = byArrival ? queue.top() : ages.top();
  return aged(requests[slot]) ? slot : Request::kNone;
}

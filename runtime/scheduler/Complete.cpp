// What a step's results change: tokens, ends, pages.
#include "runtime/scheduler/Scheduler.h"

#include "runtime/scheduler/Mutants.h"

#include <algorithm>

using namespace llmopt::runtime;

Status Scheduler::checkResult(const Flight &flight, const StepResult &result) const {
  auto wrong = [&](size_t row, const char *rule) {
    return makeStatus(StatusCode::Internal, "result of step {}, row {}: {}", result.step, row,
                      rule);
  };
  if (result.step != flight.step)
    return makeStatus(StatusCode::Internal, "result of step {}; step {} is the oldest in flight",
                      result.step, flight.step);
  if (!result.status.ok())
    return {};
  if (result.rows.size() != flight.rows.size())
    return wrong(result.rows.size(), "the step has another number of rows");
  size_t given = result.tokens.size();
  for (size_t i = 0; i < result.rows.size(); ++i) {
    const RowResult &row = result.rows[i];
    const PlannedRow &expected = flight.rows[i];
    bool plain = expected.decode & (row.request == expected.slot) &
                 (row.generation == expected.generation) & (row.tokenCount == 1) &
                 (row.firstToken < given) & !row.unsettled;
    if (plain) // nearly all
      continue;
    if (row.request != expected.slot || row.generation != expected.generation)
      return wrong(i, "it names another request");
    if (row.failed)
      continue;
    uint32_t most = expected.samples ? 1 + expected.drafts : 0;
    if (row.tokenCount > most || (expected.samples && !row.tokenCount))
      return wrong(i, "it has more or fewer tokens than the row can yield");
    if (row.firstToken > given || row.tokenCount > given - row.firstToken)
      return wrong(i, "its tokens are not in the result");
    if (row.unsettled && row.unsettled >= row.tokenCount)
      return wrong(i, "more drafts are unsettled than were accepted");
  }
  return {};
}

Status Scheduler::complete(const StepResult &result, int64_t nowNs) {
  if (!flightCount)
    return makeStatus(StatusCode::Internal, "result of step {}; no step is in flight", result.step);
  const Flight &flight = flights[flightHead];
  LLMOPT_RETURN_IF_ERROR(checkResult(flight, result));
  kv::Reply reply = kv::Reply::Ok;
  fetchEnds(flight);
  for (size_t i = 0; i < flight.rows.size(); ++i) {
    if (result.status.ok() && (i = completeSteady(flight, i, result, nowNs)) == flight.rows.size())
      break;
    const PlannedRow &row = flight.rows[i];
    bool wanted = find({row.slot, row.generation}); // else it ended while the row was in flight
    wanted |= mutant(SchedulerMutant::EndedRowsCount) &&
              requests[row.slot].state == RequestState::Running;
    bool failed =
        !result.status.ok() || (result.rows[i].failed && !mutant(SchedulerMutant::FailedRowsCount));
    if (wanted)
      endSteady(row.slot);
    if (wanted && !failed) {
      kv::Reply committed = completeRow(row, result.rows[i], result, nowNs);
      reply = committed == kv::Reply::Ok ? reply : committed;
      continue;
    }
    ++counts.discardedRows;
    counts.tokensDiscarded += row.tokens;
    if (wanted)
      endRequest(row.slot, FinishReason::DeviceFailure, nowNs);
  }
  recordGaps();
  queue.forFirst(admitted, [&](uint32_t slot) { fetchAll(&requests[slot], sizeof(Request)); });
  if (kv::Reply done = blocks.completeStep(kv::StepId(flight.step)); done != kv::Reply::Ok)
    reply = done;
  flightHead = (flightHead + 1) % flights.size();
  --flightCount;
  newestTokens.advance();
  for (size_t i = 0; i < preempting.size();) {
    uint32_t slot = preempting[i];
    if (requests[slot].inFlightRows) {
      ++i;
      continue;
    }
    preempting.erase(preempting.begin() + long(i));
    finishPreemption(slot);
  }
  if (demotes)
    blocks.demote(config.demotePages);
  updateGauges();
  if (reply != kv::Reply::Ok)
    return makeStatus(StatusCode::Internal, "step {} could not be committed: {}", result.step,
                      kv::describe(reply));
  return {};
}

/// The part of the answer that is still wanted, and why it ends with it.
FinishReason Scheduler::cutAnswer(const Request &request,
                                  std::span<const kv::Token> &tokens) const {
  uint32_t left = request.outputLimit - request.given();
  FinishReason reason = tokens.size() >= left ? FinishReason::Length : FinishReason::None;
  if (tokens.size() > left)
    tokens = tokens.first(left);
  if (!request.stopCount || mutant(SchedulerMutant::StopIgnored))
    return reason;
  auto stops = std::span(request.stopTokens).first(request.stopCount);
  for (size_t i = 0; i < tokens.size(); ++i)
    if (std::find(stops.begin(), stops.end(), tokens[i]) != stops.end()) {
      tokens = tokens.first(i + 1);
      return FinishReason::Stop;
    }
  return reason;
}

kv::Reply Scheduler::completeRow(const PlannedRow &row, const RowResult &result,
                                 const StepResult &step, int64_t nowNs) {
  Request &request = requests[row.slot];
  --request.inFlightRows;
  request.inFlightLeast -= row.least();
  request.inFlightMost -= row.tokens;
  request.samplesInFlight -= row.samples;
  std::span<const kv::Token> tokens =
      std::span(step.tokens).subspan(result.firstToken, result.tokenCount);
  FinishReason reason = cutAnswer(request, tokens);
  // Valid KV: a chunk; else the row's token and the drafts that were accepted.
  bool whole = row.prefill || mutant(SchedulerMutant::RejectedDraftsCount);
  uint32_t valid =
      whole ? std::min(row.tokens, request.known() + uint32_t(tokens.size()) - request.computed)
            : uint32_t(tokens.size());
  if (request.computed < request.highestComputed)
    counts.tokensRecomputed += std::min(valid, request.highestComputed - request.computed);
  counts.tokensRejected += row.tokens - valid;
  if (row.drafts) {
    counts.draftsProposed += row.drafts;
    counts.draftsAccepted += result.tokenCount - 1;
  }
  for (kv::Token token : tokens)
    request.append(token);
  uint32_t unsettled = std::min(result.unsettled, valid ? valid - 1 : 0);
  kv::Reply reply = blocks.commit(request.sequence, kv::StepId(step.step),
                                  request.tokens().subspan(request.computed, valid), unsettled);
  request.computed += valid;
  if (!tokens.empty())
    giveTokens(row.slot, tokens, nowNs);
  if (reason != FinishReason::None)
    endRequest(row.slot, reason, nowNs);
  else if (request.filter && !tokens.empty())
    request.blocked = !request.filter->prepare(handleOf(row.slot), request.tokens());
  return reply;
}

void Scheduler::recordGaps() {
  if (gapCount)
    counts.interToken.record(gapNs, gapCount);
  gapCount = 0;
}

void Scheduler::giveTokens(uint32_t slot, std::span<const kv::Token> tokens, int64_t nowNs) {
  Request &request = requests[slot];
  counts.generationTokensTotal += tokens.size();
  if (request.lastTokenNs < 0) {
    request.firstTokenNs = nowNs;
    counts.timeToFirstToken.record(uint64_t(nowNs - request.arrivalNs));
    counts.prefillTime.record(uint64_t(nowNs - request.firstStepNs));
    counts.promptTokensTotal += request.promptLength;
    if (tokens.size() > 1)
      counts.interToken.record(0, tokens.size() - 1);
  } else {
    uint64_t since = uint64_t(nowNs - request.lastTokenNs);
    recordGap(tokens.size() == 1 ? since : since / tokens.size(), tokens.size());
  }
  request.lastTokenNs = nowNs;
  request.updatePlainEnd();
  listener.onTokens(handleOf(slot), tokens, nowNs);
}

void Scheduler::recordFinish(const Request &request, FinishReason reason, int64_t nowNs) {
  ++counts.finished[size_t(reason)];
  if (reason != FinishReason::Length && reason != FinishReason::Stop)
    return;
  counts.requestLatency.record(uint64_t(nowNs - request.arrivalNs));
  counts.decodeTime.record(uint64_t(request.lastTokenNs - request.firstTokenNs));
  counts.promptTokens.record(request.promptLength);
  counts.generationTokens.record(request.given());
  if (request.given() > 1)
    counts.timePerOutputToken.record(uint64_t(request.lastTokenNs - request.firstTokenNs) /
                                     (request.given() - 1));
}

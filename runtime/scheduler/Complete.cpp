// What a step's results change: tokens, ends, pages.
#include "runtime/scheduler/Scheduler.h"

#include "runtime/scheduler/Mutants.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

using namespace llmopt::runtime;

/// Whether each of the rows has yielded one token, as those of steady requests do.
static bool allPlain(const step::Row *rows, const RowResult *results, size_t count, size_t given) {
  // Two neighbours at once.
  auto pair = [](const uint32_t &first) {
    uint64_t both;
    std::memcpy(&both, &first, sizeof(both));
    return both;
  };
  static_assert(offsetof(step::Row, generation) == offsetof(step::Row, request) + 4 &&
                offsetof(RowResult, generation) == offsetof(RowResult, request) + 4 &&
                offsetof(RowResult, unsettled) == offsetof(RowResult, tokenCount) + 4);
  const uint32_t one[2] = {1, 0};
  uint64_t odd = 0, plain = pair(one[0]);
  uint32_t last = 0;
  for (size_t i = 0; i < count; ++i) {
    const RowResult &result = results[i];
    odd |= (pair(result.request) ^ pair(rows[i].request)) | (pair(result.tokenCount) ^ plain) |
           uint64_t(result.failed);
    last = std::max(last, result.firstToken);
  }
  return !odd && last < given;
}

/// `failures`: some of its rows have failed.
Status Scheduler::checkResult(const Flight &flight, const StepResult &result,
                              bool &failures) const {
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
  auto check = [&](size_t i) -> const char * {
    const RowResult &row = result.rows[i];
    const step::Row &expected = flight.rows[i];
    if (row.request != expected.request || row.generation != expected.generation)
      return "it names another request";
    failures |= row.failed;
    if (row.failed)
      return nullptr;
    bool samples = expected.flags & step::kSamples;
    uint32_t most = samples ? 1 + expected.draftCount : 0;
    if (row.tokenCount > most || (samples && !row.tokenCount))
      return "it has more or fewer tokens than the row can yield";
    if (row.firstToken > given || row.tokenCount > given - row.firstToken)
      return "its tokens are not in the result";
    if (row.unsettled && row.unsettled >= row.tokenCount)
      return "more drafts are unsettled than were accepted";
    return nullptr;
  };
  for (size_t i = 0, k = 0; i < flight.rows.size();) {
    size_t next = k < flight.single.size() ? flight.single[k++] : flight.rows.size();
    bool plain = allPlain(&flight.rows[i], &result.rows[i], next - i, given);
    for (i = plain ? next : i; i <= next && i < flight.rows.size(); ++i)
      if (const char *rule = check(i))
        return wrong(i, rule);
  }
  return {};
}

Status Scheduler::complete(const StepResult &result, int64_t nowNs) {
  if (!flightCount)
    return makeStatus(StatusCode::Internal, "result of step {}; no step is in flight", result.step);
  Flight &flight = flights[flightHead];
  bool failures = false;
  LLMOPT_RETURN_IF_ERROR(checkResult(flight, result, failures));
  kv::Reply reply = kv::Reply::Ok;
  bool lost = !result.status.ok();
  for (uint32_t i = 0; (failures || lost) && i < flight.rows.size(); ++i)
    if (lost || result.rows[i].failed)
      flight.addSingle(i);
  blocks.fetchSpares();
  for (size_t k = 0; k < std::min(kEndsAhead, flight.single.size()); ++k)
    fetchEnd(flight.rows[flight.single[k]]);
  // Of a steady request, that has the table slot as long as this step is not completed: the row
  // ends a block; or was not steady yet when it was written.
  auto isSteady = [&](size_t i) {
    return newestTokens.writtenTo(flight.rows[i].tableSlot) && !lost && !result.rows[i].failed;
  };
  auto completeSingle = [&](size_t i) {
    const step::Row &row = flight.rows[i];
    // Else it ended while the row was in flight.
    bool wanted = find({row.request, row.generation});
    wanted |= mutant(SchedulerMutant::EndedRowsCount) &&
              requests[row.request].state == RequestState::Running;
    bool failed = lost || (result.rows[i].failed && !mutant(SchedulerMutant::FailedRowsCount));
    if (wanted)
      endSteady(row.request);
    if (wanted && !failed) {
      kv::Reply committed = completeRow(row, result.rows[i], result, nowNs);
      reply = committed == kv::Reply::Ok ? reply : committed;
      return;
    }
    ++counts.discardedRows;
    counts.tokensDiscarded += row.tokenCount;
    if (wanted)
      endRequest(row.request, FinishReason::DeviceFailure, nowNs);
  };
  size_t from = 0;
  for (size_t k = 0; k < flight.single.size(); ++k) {
    size_t i = flight.single[k];
    if (k + kEndsAhead < flight.single.size())
      fetchEnd(flight.rows[flight.single[k + kEndsAhead]]);
    bool steady = isSteady(i);
    completeSteady(flight, from, i + steady, result, nowNs);
    steady ? completeEnd(flight.rows[i]) : completeSingle(i);
    from = i + 1;
  }
  completeSteady(flight, from, flight.rows.size(), result, nowNs);
  recordGaps();
  completedNs = nowNs;
  queue.forFirst(admitted, [&](uint32_t slot) { fetchAll(&requests[slot], sizeof(Request)); });
  if (kv::Reply done = blocks.completeStep(kv::StepId(flight.step)); done != kv::Reply::Ok)
    reply = done;
  flightHead = (flightHead + 1) % flights.size();
  --flightCount;
  newestTokens.advance();
  fetchDue();
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

kv::Reply Scheduler::completeRow(const step::Row &row, const RowResult &result,
                                 const StepResult &step, int64_t nowNs) {
  uint32_t slot = row.request;
  Request &request = requests[slot];
  --request.inFlightRows;
  request.inFlightLeast -= leastOf(row);
  request.inFlightMost -= row.tokenCount;
  request.samplesInFlight -= (row.flags & step::kSamples) != 0;
  std::span<const kv::Token> tokens =
      std::span(step.tokens).subspan(result.firstToken, result.tokenCount);
  FinishReason reason = cutAnswer(request, tokens);
  // Valid KV: a chunk; else the row's token and the drafts that were accepted.
  bool whole = row.phase == step::Phase::Prefill || mutant(SchedulerMutant::RejectedDraftsCount);
  uint32_t valid =
      whole ? std::min(row.tokenCount, request.known() + uint32_t(tokens.size()) - request.computed)
            : uint32_t(tokens.size());
  if (request.computed < request.highestComputed)
    counts.tokensRecomputed += std::min(valid, request.highestComputed - request.computed);
  counts.tokensRejected += row.tokenCount - valid;
  if (row.draftCount) {
    counts.draftsProposed += row.draftCount;
    counts.draftsAccepted += result.tokenCount - 1;
  }
  kv::Token input = request.newest;
  for (kv::Token token : tokens)
    request.append(token);
  uint32_t unsettled = std::min(result.unsettled, valid ? valid - 1 : 0);
  // Of a row that decodes, the one that was the newest: the request's memory need not be near.
  auto computed = valid == 1 && row.phase == step::Phase::Decode
                      ? std::span<const kv::Token>(&input, 1)
                      : request.tokens().subspan(request.computed, valid);
  kv::Reply reply = blocks.commit(request.sequence, kv::StepId(step.step), computed, unsettled);
  request.computed += valid;
  if (!tokens.empty())
    giveTokens(slot, tokens, nowNs);
  if (reason != FinishReason::None)
    endRequest(slot, reason, nowNs);
  else if (request.filter && !tokens.empty())
    request.blocked = !request.filter->prepare(handleOf(slot), request.tokens());
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

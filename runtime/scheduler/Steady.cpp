// Requests that decode and do nothing else: most rows of most steps.
//
// Such a row follows from the one before by counting, so what it needs stays together from step to
// step (SteadyRow), and the block manager knows of it that it goes on (BlockManager::beginSteady).
// Whatever else is to happen to the request ends that first: endSteady.
#include "runtime/scheduler/Scheduler.h"

#include "runtime/scheduler/Mutants.h"

using namespace llmopt::runtime;

/// After its row of the newest step was written. Nothing happens where it cannot be.
void Scheduler::beginSteady(uint32_t slot) {
  Request &request = requests[slot];
  uint32_t rows = request.inFlightRows, base = request.leastLength();
  // A row of one token in each step in flight, each of which yields one; no drafts anywhere.
  if (mostDrafts || !request.plain() || rows != flightCount + 1 ||
      request.samplesInFlight != rows || request.inFlightLeast != rows ||
      request.inFlightMost != rows || base >= request.plainEnd)
    return;
  // All tokens that it yields are kept: those of its rows until the end, and of those in flight.
  uint32_t kept = base + newestTokens.most() - uint32_t(flights.size());
  uint32_t end = std::min({blocks.beginSteady(request.sequence), request.plainEnd, kept});
  if (!end)
    return;
  SteadyRow &row = steady[slot];
  row = {.samplingSeed = request.samplingSeed,
         .tokens = request.memory.get(),
         .lastTokenNs = request.lastTokenNs,
         .generation = request.generation,
         .tableSlot = request.sequence.slot,
         .base = base,
         .end = end,
         .written = request.known(),
         .promptLength = request.promptLength,
         .outputLimit = request.outputLimit,
         .adapter = request.adapter,
         .lastRow = request.lastRow,
         .flags = uint8_t(step::kSamples | (request.greedy ? step::kGreedy : 0)),
         .steady = true};
}

/// All of it is in the request and in the sequence again. Nothing where it is not steady.
void Scheduler::endSteady(uint32_t slot) {
  SteadyRow &row = steady[slot];
  if (!row.steady)
    return;
  row.steady = false;
  Request &request = requests[slot];
  uint32_t before = request.computed, rows = uint32_t(flightCount);
  request.computed = row.base - rows;
  if (mutant(SchedulerMutant::SteadyRowsForgotten))
    rows = 0;
  request.inFlightRows = request.inFlightLeast = request.inFlightMost = rows;
  request.samplesInFlight = rows;
  request.knownTokens = request.computed + 1;
  for (uint32_t left = request.knownTokens - row.written; left-- > 0; ++row.written)
    row.tokens[row.written] = newestTokens.of(left)[row.tableSlot];
  request.newest = row.tokens[request.computed];
  request.lastTokenNs = row.lastTokenNs;
  request.lastStep = newestStep;
  request.lastRow = row.lastRow;
  blocks.endSteady(request.sequence, request.tokens().subspan(before, request.computed - before));
}

/// Its next row will not be steady: what is looked at then was left alone for some steps.
void Scheduler::fetchUnsteady(const SteadyRow &row, uint32_t slot) const {
  const char *request = reinterpret_cast<const char *>(&requests[slot]);
  __builtin_prefetch(request, 1);
  __builtin_prefetch(request + 64, 1);
  __builtin_prefetch(row.tokens + row.base, 1);
  blocks.fetchRow(row.tableSlot, row.base);
}

/// Of rows that something happens to when they complete: blocks and answers that end.
void Scheduler::fetchEnds(const Flight &flight) const {
  for (uint32_t slot : flight.unsteady) {
    const Request &request = requests[slot];
    if (request.state != RequestState::Running)
      continue;
    blocks.fetchCommit(request.sequence.slot);
    if (request.given() + 1 >= request.outputLimit)
      fetchAll(&request, sizeof(request));
  }
}

uint32_t Scheduler::computedOf(uint32_t slot) const {
  return steady[slot].steady ? steady[slot].base - uint32_t(flightCount) : requests[slot].computed;
}

/// Results from `begin` on, as long as their requests are steady. Gives the first that is not.
size_t Scheduler::completeSteady(const Flight &flight, size_t begin, const StepResult &result,
                                 int64_t nowNs) {
  const PlannedRow *rows = flight.rows.data();
  const RowResult *results = result.rows.data();
  const kv::Token *tokens = result.tokens.data();
  SteadyRow *table = steady.data();
  kv::Token *kept = newestTokens.next();
  size_t i = begin, count = flight.rows.size(), last = count - 1;
  uint64_t gap = 0;
  size_t gapBegin = begin;
  for (; i < count; ++i) {
    __builtin_prefetch(&table[rows[std::min(i + kAhead, last)].slot], 1);
    SteadyRow &row = table[rows[i].slot];
    // It is the row's request: another one in its place would have no row in this step.
    if (!row.steady || results[i].failed)
      break;
    const kv::Token &token = tokens[results[i].firstToken];
    kept[row.tableSlot] = token;
    uint64_t since = uint64_t(nowNs - row.lastTokenNs);
    if (since != gap) {
      recordGap(gap, i - gapBegin);
      gap = since;
      gapBegin = i;
    }
    row.lastTokenNs = nowNs;
    if (row.base >= row.end)
      fetchUnsteady(row, rows[i].slot);
    listener.onTokens({rows[i].slot, row.generation}, {&token, 1}, nowNs);
  }
  recordGap(gap, i - gapBegin);
  counts.generationTokensTotal += i - begin;
  return i;
}

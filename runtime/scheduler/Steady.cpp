// Requests that decode and do nothing else: most rows of most steps.
//
// Such a row follows from the one before by counting: what it was is read from the bytes of the
// newest step (RunningRows says where), and the block manager knows of the request that it goes on
// (BlockManager::beginSteady). Whatever else is to happen to it ends that first: endSteady. When
// that will be is known to the step, and a step looks at no other one by itself.
#include "runtime/scheduler/Scheduler.h"

#include "runtime/scheduler/Mutants.h"

#include <algorithm>

using namespace llmopt::runtime;

void Scheduler::Flight::addSingle(uint32_t row) {
  auto at = std::lower_bound(single.begin(), single.end(), row);
  if (at == single.end() || *at != row)
    single.insert(at, row);
}

/// KV slots before the next row of a steady request.
uint32_t Scheduler::nextBase(uint32_t position) const { return newestRow(position).baseLength + 1; }

/// After its row of the step that is being made was written. False where it cannot be.
bool Scheduler::beginSteady(uint32_t position) {
  Request &request = requests[runningRows[position]];
  uint32_t rows = request.inFlightRows, base = request.leastLength();
  // A row of one token in each step in flight, each of which yields one; no drafts anywhere; and
  // its last token came with the last step.
  if (mostDrafts || !request.plain() || rows != flightCount + 1 ||
      request.samplesInFlight != rows || request.inFlightLeast != rows ||
      request.inFlightMost != rows || base >= request.plainEnd ||
      request.lastTokenNs != completedNs)
    return false;
  // All tokens that it yields are kept: those of its rows until the next look at it, and of those
  // in flight.
  uint32_t kept = base + newestTokens.most() - 1 - uint32_t(flights.size());
  uint32_t end = std::min({blocks.beginSteady(request.sequence), request.plainEnd, kept});
  if (!end)
    return false;
  request.steady = true;
  uint32_t next = uint32_t(request.lastStep) + 1, steps = end - std::min(base, end);
  runningRows.beginSteady(position, next + (request.plainEnd - base), request.lastRow);
  runningRows.setNext(position, next + steps, next + steps);
  newestTokens.begin(request.sequence.slot, request.memory, request.knownTokens);
  return true;
}

/// In the plan of a step with a row of it that needs a page, or when its tokens have to be written;
/// where several steps may be in flight, also if the row ends a block or lets a page go. False
/// where it cannot stay steady: its answer may end; or steps are in flight, and nobody knows what
/// the block manager will want when they have completed.
bool Scheduler::goOnSteady(uint32_t position) {
  uint32_t step = blocks.currentStep(), end = runningRows.end(position);
  if (flightCount || end <= step - mutant(SchedulerMutant::SteadyTooLong))
    return false;
  const step::Row &row = newestRow(position);
  uint32_t slot = row.tableSlot, base = row.baseLength + 1, most = newestTokens.most();
  uint32_t unwritten = base + 1 - newestTokens.writtenTo(slot);
  if (unwritten >= most) {
    blocks.keepSteady(slot, newestTokens.write(slot, base + 1));
    unwritten = 0;
  }
  uint32_t pages = blocks.steadyCapacity(slot), plain = blocks.steadyPlainEnd(slot);
  if (base >= pages)
    unreserved.push_back({.request = row.request, .tableSlot = slot});
  uint32_t has = base < pages ? pages : blocks.steadyCapacityBehind(slot);
  uint32_t next = step + std::min({has - base, most - unwritten, end - step});
  uint32_t block = step + std::min(plain - std::min(base, plain), end - step);
  // A row that ends a block is looked at when it is written and when it completes, and what follows
  // from it in the plan of the next step.
  runningRows.setNext(position, flights.size() > 1 ? std::min(next, block) : next, block);
  return true;
}

/// Of a steady request, after completeSteady: where the row ends a block, or lets a page go.
void Scheduler::completeEnd(const step::Row &row) {
  uint32_t slot = row.tableSlot;
  if (row.baseLength >= blocks.steadyPlainEnd(slot))
    blocks.commitSteady(slot, newestTokens.write(slot, row.baseLength + 2, true));
}

/// All of it is in the request and in the sequence again.
void Scheduler::endSteadyAt(uint32_t position) {
  Request &request = requests[runningRows[position]];
  uint32_t rows = uint32_t(flightCount), slot = request.sequence.slot;
  request.computed = nextBase(position) - rows;
  if (mutant(SchedulerMutant::SteadyRowsForgotten))
    rows = 0;
  request.inFlightRows = request.inFlightLeast = request.inFlightMost = rows;
  request.samplesInFlight = rows;
  request.knownTokens = request.computed + 1;
  std::span<const kv::Token> computed = newestTokens.write(slot, request.knownTokens);
  request.newest = newestTokens.lastWritten(slot);
  request.lastTokenNs = completedNs;
  request.lastStep = newestStep;
  request.lastRow = runningRows.row(position);
  // Its rows in flight: each names the one before.
  for (size_t i = flightCount, row = request.lastRow; i-- > 0;) {
    Flight &flight = flights[(flightHead + i) % flights.size()];
    flight.addSingle(uint32_t(row));
    row = flight.rows[row].predecessorRow;
  }
  request.steady = false;
  runningRows.endSteady(position);
  newestTokens.end(slot);
  blocks.endSteady(request.sequence, computed);
}

/// Of those that the next step looks at: what it looks at was left alone for some steps.
void Scheduler::fetchDue() const {
  uint32_t step = uint32_t(newestStep) + 1;
  for (uint32_t i = 0; (i = runningRows.firstDue(i, step)) < runningRows.size(); ++i) {
    if (!runningRows.isSteady(i))
      continue;
    const step::Row &row = newestRow(i);
    blocks.fetchRow(row.tableSlot, row.baseLength + 1);
    if (runningRows.end(i) > step)
      continue;
    const char *request = reinterpret_cast<const char *>(&requests[runningRows[i]]);
    __builtin_prefetch(request, 1);
    __builtin_prefetch(request + 64, 1);
    newestTokens.fetch(row.tableSlot);
  }
}

/// Of a row that something happens to when it completes: a block or an answer ends.
void Scheduler::fetchEnd(const step::Row &row) const {
  if (row.phase != step::Phase::Decode)
    return;
  blocks.fetchCommit(row.tableSlot);
  newestTokens.fetch(row.tableSlot);
  if (row.outputPosition + 1 >= row.outputLimit)
    fetchAll(&requests[row.request], sizeof(Request));
}

/// Results [begin, end), whose requests are steady.
void Scheduler::completeSteady(const Flight &flight, size_t begin, size_t end,
                               const StepResult &result, int64_t nowNs) {
  const step::Row *rows = flight.rows.data();
  const RowResult *results = result.rows.data();
  const kv::Token *tokens = result.tokens.data();
  kv::Token *kept = newestTokens.next();
  for (size_t i = begin; i < end; ++i) {
    const kv::Token &token = tokens[results[i].firstToken];
    kept[rows[i].tableSlot] = token;
    listener.onTokens({rows[i].request, rows[i].generation}, {&token, 1}, nowNs);
  }
  recordGap(uint64_t(nowNs - completedNs), end - begin);
  counts.generationTokensTotal += end - begin;
}

// From planned rows to the bytes of a step.
#include "runtime/scheduler/Mutants.h"
#include "runtime/scheduler/Scheduler.h"

#include <cstddef>
#include <cstring>
#include <vector>

using namespace llmopt::runtime;

void Scheduler::writeDrafts(const Request &request, const PlannedRow &planned) {
  bool fromHost = planned.firstDraft != Request::kNone;
  for (uint32_t i = 0; i < planned.drafts; ++i) {
    int16_t parent = fromHost ? draftParents[planned.firstDraft + i] : config.deviceDrafts[i];
    uint16_t depth = parent < 0 ? 1 : uint16_t(writer.draftDepth(uint32_t(parent)) + 1);
    writer.addDraft({parent, depth});
    if (fromHost)
      writer.addLiteral(draftTokens[planned.firstDraft + i]);
    else
      writer.addReference({request.lastStep, request.lastRow, 1 + i});
  }
}

void Scheduler::writeRow(const PlannedRow &planned, Flight &flight) {
  Request &request = requests[planned.slot];
  bool prefill = request.prefilling();
  bool predecessor = request.samplesInFlight > 0;
  step::Row &row = writer.addRow();
  uint32_t index = writer.rowCount() - 1;
  row.samplingSeed = request.samplingSeed;
  row.tableSlot = request.sequence.slot;
  row.request = planned.slot;
  row.generation = request.generation;
  row.baseLength = request.leastLength();
  row.lengthBound = request.mostLength() + planned.tokens;
  row.outputPosition = request.given() + request.samplesInFlight;
  if (mutant(SchedulerMutant::PositionRestarts) && request.preemptions)
    row.outputPosition -= std::min(row.outputPosition, request.prefillEnd - request.promptLength);
  row.outputLimit = request.outputLimit;
  row.adapter = request.adapter;
  row.phase = prefill          ? step::Phase::Prefill
              : planned.drafts ? step::Phase::Verify
                               : step::Phase::Decode;
  row.flags =
      uint8_t((planned.samples ? step::kSamples : 0) | (request.greedy ? step::kGreedy : 0) |
              (request.promptLogprobs && prefill ? step::kPromptLogprobs : 0) |
              (request.filtered ? step::kFiltered : 0));
  if (predecessor) {
    row.predecessorAgo = uint32_t(flight.step - request.lastStep);
    row.predecessorRow = request.lastRow;
  }
  bool allLogits = row.flags & step::kPromptLogprobs;
  if (prefill) {
    writer.addTokens(request.tokens().subspan(request.leastLength(), planned.tokens));
  } else {
    if (predecessor && !mutant(SchedulerMutant::StaleToken))
      writer.addReference({request.lastStep, request.lastRow, 0});
    else
      writer.addLiteral(request.newest);
    if (planned.drafts)
      writeDrafts(request, planned);
  }
  if (planned.samples)
    writer.wantLogits(prefill && !allLogits ? 1 : planned.tokens);
  else if (allLogits)
    writer.wantLogits(planned.tokens);

  ++request.inFlightRows;
  request.inFlightLeast += leastOf(row);
  request.inFlightMost += planned.tokens;
  if (planned.samples) {
    ++request.samplesInFlight;
    request.lastStep = flight.step;
    request.lastRow = index;
  }
  flight.single.push_back(index);
}

/// What a steady request's row is behind `old`, a token later. Four numbers at a time: written one
/// by one, each would be read again from where it was just stored.
static void followRow(step::Row &row, const step::Row &old, uint32_t ago, uint32_t predecessor,
                      uint32_t firstToken) {
  using Four = uint32_t __attribute__((vector_size(16)));
  static_assert(offsetof(step::Row, predecessorAgo) == 8 &&
                offsetof(step::Row, predecessorRow) == 12 &&
                offsetof(step::Row, firstToken) == 28 && offsetof(step::Row, tokenCount) == 32 &&
                offsetof(step::Row, baseLength) == 36 && offsetof(step::Row, lengthBound) == 40 &&
                offsetof(step::Row, outputPosition) == 44);
  Four part[4];
  std::memcpy(part, &old, sizeof(part));
  part[0][2] = ago;
  part[0][3] = predecessor;
  part[1][3] = firstToken;
  part[2] += Four{0, 1, 1, 1};
  std::memcpy(&row, part, sizeof(part));
}

/// Rows of steady requests: what they were in the newest step, a token later. `kBehind`: that step
/// is in flight, so the tokens are what it yields.
template <bool kBehind>
void Scheduler::writeSteady(uint32_t begin, uint32_t end, StepWriter::Decodes &decodes) {
  step::Row *out = decodes.nextRow();
  step::Token *token = decodes.nextTokens();
  step::Reference *reference = decodes.nextReferences();
  uint32_t firstToken = decodes.tokenIndex(), index = writer.rowCount() + decodes.rowsWritten();
  int32_t nextReference = decodes.referenceIndex();
  const kv::Token *newest = newestTokens.last();
  const step::Row *before = newestRows;
  const uint64_t behind = newestStep;
  for (uint32_t i = begin; i < end; ++i) {
    uint32_t last = runningRows.row(i), done = i - begin;
    const step::Row &old = before[last];
    uint32_t slot = old.tableSlot;
    followRow(out[done], old, kBehind, kBehind ? last : step::kNone, firstToken + done);
    if (kBehind)
      reference[done] = {behind, last, 0};
    token[done] = {kBehind ? -1 - nextReference - int32_t(done) : int32_t(newest[slot])};
  }
  runningRows.setRows(begin, end, index);
  decodes.advance(end - begin, kBehind ? end - begin : 0);
}

/// As writeRow, where the row has one token and yields one. The request may be steady from then on.
void Scheduler::writeDecode(uint32_t position, Flight &flight, StepWriter::Decodes &decodes) {
  uint32_t slot = runningRows[position], index = writer.rowCount() + decodes.rowsWritten();
  Request &request = requests[slot];
  bool predecessor = request.samplesInFlight > 0;
  step::Row &row = predecessor ? decodes.add(step::Reference{request.lastStep, request.lastRow, 0})
                               : decodes.add(request.newest);
  row.samplingSeed = request.samplingSeed;
  row.predecessorAgo = predecessor ? uint32_t(flight.step - request.lastStep) : 0;
  row.predecessorRow = predecessor ? request.lastRow : step::kNone;
  row.tableSlot = request.sequence.slot;
  row.request = slot;
  row.generation = request.generation;
  row.baseLength = request.leastLength();
  row.lengthBound = request.mostLength() + 1;
  row.outputPosition = request.decodePosition();
  row.outputLimit = request.outputLimit;
  row.adapter = request.adapter;
  row.flags = uint8_t(step::kSamples | (request.greedy ? step::kGreedy : 0) |
                      (request.filtered ? step::kFiltered : 0));
  ++request.inFlightRows;
  ++request.inFlightLeast;
  ++request.inFlightMost;
  ++request.samplesInFlight;
  request.lastStep = flight.step;
  request.lastRow = index;
  if (!beginSteady(position))
    flight.single.push_back(index);
}

/// Those of running requests that decode, in the order of admission; then the other ones.
void Scheduler::writeRows(Flight &flight) {
  // These mistakes are in writeRow.
  bool damaged = mutant(SchedulerMutant::PositionRestarts) || mutant(SchedulerMutant::StaleToken);
  uint32_t left = runningRows.steadyCount() + uint32_t(plannedInOrder);
  StepWriter::Decodes decodes = writer.beginDecodes(left);
  size_t planned = 0;
  auto writeRun = [&](uint32_t begin, uint32_t end) {
    if (begin < end)
      flightCount ? writeSteady<true>(begin, end, decodes)
                  : writeSteady<false>(begin, end, decodes);
  };
  for (uint32_t i = 0, run = 0; run < runningRows.size(); ++i) {
    i = runningRows.firstBlock(i, uint32_t(flight.step));
    if (i < runningRows.size() && runningRows.isSteady(i)) { // its block ends, or a page may go
      flight.single.push_back(writer.rowCount() + decodes.rowsWritten() + (i - run));
      runningRows.setNext(i, uint32_t(flight.step) + 1, uint32_t(flight.step) + 1);
      blocks.fetchSequence(newestRow(i).tableSlot);
      continue;
    }
    writeRun(run, i);
    run = i + 1;
    if (i == runningRows.size())
      break;
    if (planned == plannedInOrder || plan[planned].slot != runningRows[i])
      continue;
    const PlannedRow &row = plan[planned++];
    if (row.decode && !damaged) {
      writeDecode(i, flight, decodes);
      continue;
    }
    left -= decodes.rowsWritten() + 1;
    writer.end(decodes);
    writeRow(row, flight);
    decodes = writer.beginDecodes(left);
  }
  writer.end(decodes);
  for (; planned < plan.size(); ++planned)
    writeRow(plan[planned], flight);
}

/// A mistake: the bytes of each step where those of the one before were.
static std::span<const uint8_t> stagedInOne(std::span<const uint8_t> bytes) {
  static std::vector<uint64_t> only(1 << 18);
  std::memcpy(only.data(), bytes.data(), std::min(bytes.size(), only.size() * sizeof(uint64_t)));
  return {reinterpret_cast<const uint8_t *>(only.data()), bytes.size()};
}

std::span<const uint8_t> Scheduler::launch() {
  const kv::StepTables &tables = blocks.closeStep();
  Flight &flight = flights[(flightHead + flightCount) % flights.size()];
  flight.step = tables.step;
  flight.single.clear();
  writer.begin(flight.step, step::Kind::Step, runningRows.steadyCount() + uint32_t(plan.size()));
  writer.setTables(tables);
  writeRows(flight);
  std::span<const uint8_t> bytes = writer.finish();
  flight.rows = writer.finishedRows();
  newestStep = flight.step;
  newestRows = flight.rows.data();
  ++flightCount;
  ++launched;
  ++counts.steps;
  counts.stepTokens.record(writer.tokenCount());
  counts.tokensComputed += writer.tokenCount();
  updateGauges();
  return mutant(SchedulerMutant::StagingRingOfOne) ? stagedInOne(bytes) : bytes;
}

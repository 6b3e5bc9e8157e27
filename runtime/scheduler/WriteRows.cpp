// From planned rows to the bytes of a step.
#include "runtime/scheduler/Mutants.h"
#include "runtime/scheduler/Scheduler.h"

using namespace llmopt::runtime;

void Scheduler::writeDrafts(const Request &request, const PlannedRow &planned) {
  bool fromHost = planned.firstDraft != Request::kNone;
  for (uint32_t i = 0; i < planned.drafts; ++i) {
    int16_t parent = fromHost ? draftParents[planned.firstDraft + i] : config.deviceDrafts[i];
    uint16_t depth = parent < 0 ? 1 : uint16_t(writer.draftDepth(uint32_t(parent)) + 1);
    writer.addDraft({parent, depth});
    if (fromHost)
      writer.addLiteral(draftTokens[planned.firstDraft + i], depth);
    else
      writer.addReference({request.lastStep, request.lastRow, 1 + i}, depth);
  }
}

void Scheduler::writeRow(PlannedRow &planned, uint64_t step) {
  Request &request = requests[planned.slot];
  bool prefill = planned.prefill = request.prefilling();
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
    row.predecessorStep = request.lastStep;
    row.predecessorRow = request.lastRow;
  }
  bool allLogits = row.flags & step::kPromptLogprobs;
  if (prefill) {
    writer.addTokens(request.tokens().subspan(request.leastLength(), planned.tokens));
  } else {
    if (predecessor && !mutant(SchedulerMutant::StaleToken))
      writer.addReference({request.lastStep, request.lastRow, 0}, 0);
    else
      writer.addLiteral(request.newest, 0);
    if (planned.drafts)
      writeDrafts(request, planned);
  }
  if (planned.samples)
    writer.wantLogits(prefill && !allLogits ? 1 : planned.tokens);
  else if (allLogits)
    writer.wantLogits(planned.tokens);

  planned.decode = !prefill && planned.tokens == 1;
  ++request.inFlightRows;
  request.inFlightLeast += planned.least();
  request.inFlightMost += planned.tokens;
  if (planned.samples) {
    ++request.samplesInFlight;
    request.lastStep = step;
    request.lastRow = index;
  }
}

/// As writeDecodes, up to the first who is not steady, which it gives. `kBehind`: other steps are
/// in flight, so the tokens are what the newest one yields.
template <bool kBehind>
size_t Scheduler::writeSteady(size_t begin, size_t end, StepWriter::Decodes &decodes) {
  step::Row *out = decodes.nextRow();
  step::Token *token = decodes.nextTokens();
  step::Reference *reference = decodes.nextReferences();
  uint32_t firstToken = decodes.tokenIndex(), firstDraft = decodes.draftIndex();
  int32_t nextReference = decodes.referenceIndex();
  uint32_t index = writer.rowCount() + decodes.rowsWritten(); // of the first one
  const kv::Token *newest = newestTokens.of();
  const uint64_t behind = newestStep;
  SteadyRow *table = steady.data();
  const PlannedRow *rows = plan.data();
  size_t i = begin;
  for (; i < end; ++i, ++out, ++token) {
    if (i + kAhead < end)
      __builtin_prefetch(&table[rows[i + kAhead].slot], 1);
    uint32_t slot = rows[i].slot, done = uint32_t(i - begin);
    SteadyRow &known = table[slot];
    if (!known.steady)
      break;
    uint32_t base = known.base++;
    *out = {.samplingSeed = known.samplingSeed,
            .predecessorStep = kBehind ? behind : step::kNoStep,
            .predecessorRow = kBehind ? known.lastRow : step::kNone,
            .tableSlot = known.tableSlot,
            .request = slot,
            .generation = known.generation,
            .firstToken = firstToken + done,
            .tokenCount = 1,
            .baseLength = base,
            .lengthBound = base + 1,
            .outputPosition = base + 1 - known.promptLength,
            .outputLimit = known.outputLimit,
            .adapter = known.adapter,
            .firstDraft = firstDraft,
            .draftCount = 0,
            .phase = step::Phase::Decode,
            .flags = known.flags,
            .reserved = 0};
    if (kBehind)
      reference[done] = {behind, known.lastRow, 0};
    *token = {kBehind ? -1 - nextReference - int32_t(done) : int32_t(newest[known.tableSlot]), 0};
    known.lastRow = index + done;
  }
  decodes.advance(uint32_t(i - begin), kBehind ? uint32_t(i - begin) : 0);
  return i;
}

/// As writeRow, for rows [begin, end) of the plan, which have one token each and yield one. Who is
/// steady needs its own record and nothing else; others may become so.
void Scheduler::writeDecodes(size_t begin, size_t end, Flight &flight) {
  uint64_t step = flight.step;
  StepWriter::Decodes decodes = writer.beginDecodes(uint32_t(end - begin));
  uint32_t first = writer.rowCount();
  for (size_t i = begin;; ++i) {
    i = flightCount ? writeSteady<true>(i, end, decodes) : writeSteady<false>(i, end, decodes);
    if (i == end)
      break;
    uint32_t slot = plan[i].slot;
    Request &request = requests[slot];
    bool predecessor = request.samplesInFlight > 0;
    step::Row &row = predecessor
                         ? decodes.add(step::Reference{request.lastStep, request.lastRow, 0})
                         : decodes.add(request.newest);
    row.samplingSeed = request.samplingSeed;
    row.predecessorStep = predecessor ? request.lastStep : step::kNoStep;
    row.predecessorRow = predecessor ? request.lastRow : step::kNone;
    row.tableSlot = request.sequence.slot;
    row.request = slot;
    row.generation = plan[i].generation;
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
    request.lastStep = step;
    request.lastRow = first + uint32_t(i - begin);
    beginSteady(slot);
    if (!steady[slot].steady)
      flight.unsteady.push_back(slot);
  }
  writer.end(decodes);
}

std::span<const uint8_t> Scheduler::launch() {
  const kv::StepTables &tables = blocks.closeStep();
  Flight &flight = flights[(flightHead + flightCount) % flights.size()];
  flight.step = tables.step;
  flight.unsteady.clear();
  writer.begin(flight.step, step::Kind::Step, uint32_t(plan.size()));
  writer.setTables(tables);
  // Runs of rows that decode, and the others one by one.
  bool damaged = mutant(SchedulerMutant::PositionRestarts) || mutant(SchedulerMutant::StaleToken);
  for (size_t i = 0, end; i < plan.size(); i = end) {
    for (end = i; end < plan.size() && plan[end].decode && !damaged;)
      ++end;
    writeDecodes(i, end, flight);
    if (end < plan.size())
      writeRow(plan[end++], flight.step);
  }
  flight.rows.swap(plan);
  newestStep = flight.step;
  ++flightCount;
  ++launched;
  ++counts.steps;
  counts.stepTokens.record(writer.tokenCount());
  counts.tokensComputed += writer.tokenCount();
  updateGauges();
  return writer.finish();
}

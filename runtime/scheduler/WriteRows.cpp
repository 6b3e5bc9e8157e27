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

/// As writeRow, for rows [begin, end) of the plan, which have one token each and yield one. Who is
/// steady needs its own record and nothing else; others may become so.
void Scheduler::writeDecodes(size_t begin, size_t end, Flight &flight) {
  uint64_t step = flight.step;
  StepWriter::Decodes decodes = writer.beginDecodes(uint32_t(end - begin));
  uint32_t index = writer.rowCount();
  const kv::Token *newest = newestTokens.of();
  SteadyRow *table = steady.data();
  const PlannedRow *rows = plan.data();
  for (size_t i = begin; i < end; ++i) {
    __builtin_prefetch(&table[rows[std::min(i + kAhead, end - 1)].slot], 1);
    uint32_t slot = rows[i].slot;
    if (SteadyRow &known = table[slot]; known.steady) {
      step::Row &row = flightCount ? decodes.add(step::Reference{newestStep, known.lastRow, 0})
                                   : decodes.add(newest[known.tableSlot]);
      row.samplingSeed = known.samplingSeed;
      row.predecessorStep = flightCount ? newestStep : step::kNoStep;
      row.predecessorRow = flightCount ? known.lastRow : step::kNone;
      row.tableSlot = known.tableSlot;
      row.request = slot;
      row.generation = known.generation;
      row.baseLength = known.base;
      row.lengthBound = ++known.base;
      row.outputPosition = known.base - known.promptLength;
      row.outputLimit = known.outputLimit;
      row.adapter = known.adapter;
      row.flags = known.flags;
      known.lastRow = index++;
      continue;
    }
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
    request.lastRow = index++;
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

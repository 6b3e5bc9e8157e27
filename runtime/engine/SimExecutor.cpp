#include "runtime/engine/SimExecutor.h"

#include <algorithm>

using namespace llmopt::runtime;

double llmopt::runtime::randomAt(uint64_t seed, uint64_t position, uint64_t stream) {
  uint64_t x = seed + 0x9e3779b97f4a7c15ull * (2 * position + 1) + 0xd1342543de82ef95ull * stream;
  for (int round = 0; round < 2; ++round) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    x ^= x >> 31;
  }
  return double(x >> 11) * 0x1p-53;
}

SimExecutor::SimExecutor(const SimOptions &options, const StepCost &cost, TokenSource &source)
    : options(options), cost(cost), source(source), mirror(options.groups, options.tableSlots),
      ring(options.stepsInFlight + 1), lasts(options.tableSlots) {
  for (Slot &slot : ring) {
    slot.rows.reserve(options.maxRows);
    slot.result.rows.reserve(options.maxRows);
    slot.result.tokens.reserve(size_t(options.maxRows) * (1 + options.maxDraft));
  }
}

Status SimExecutor::reopen() {
  mirror = TableMirror(options.groups, options.tableSlots);
  std::fill(lasts.begin(), lasts.end(), Last());
  submitted = taken = 0;
  return {};
}

Status SimExecutor::restore(std::span<const uint8_t> snapshot) {
  StatusOr<StepInput> input = StepInput::parse(snapshot);
  if (!input)
    return input.status();
  for (Last &last : lasts)
    last.length = kUnknown;
  return mirror.apply(*input);
}

StatusOr<SimExecutor::RowState> SimExecutor::baseOf(const StepInput &input,
                                                    const step::Row &row) const {
  RowState base{row.baseLength, row.outputPosition};
  if (row.predecessorAgo) {
    uint64_t step = input.predecessorStep(row);
    const Slot *before = nullptr;
    for (const Slot &slot : ring)
      if (slot.result.step == step)
        before = &slot;
    if (!before || row.predecessorRow >= before->rows.size())
      return makeStatus(StatusCode::Internal,
                        "step {}: row {} of step {} is named as a predecessor and is not there any "
                        "more",
                        input.header().stepId, row.predecessorRow, step);
    base = before->rows[row.predecessorRow];
  }
  const Last &last = lasts[row.tableSlot];
  // A prompt that is begun anew, or a fork, has the slot of a sequence that has ended.
  bool continues = row.phase != step::Phase::Prefill && last.length != kUnknown &&
                   last.request == row.request && last.generation == row.generation;
  if ((continues && last.length != base.length) || base.length < row.baseLength ||
      base.length + row.tokenCount > row.lengthBound)
    return makeStatus(StatusCode::Internal,
                      "step {}: a row of table slot {} begins at {}; its last row ended at {}, the "
                      "bounds are {} and {}",
                      input.header().stepId, row.tableSlot, base.length, last.length,
                      row.baseLength, row.lengthBound);
  return base;
}

uint32_t SimExecutor::accept(const StepInput &input, const step::Row &row, uint32_t position,
                             uint32_t &unsettled) const {
  std::span<const step::Draft> drafts = input.draftsOf(row);
  uint32_t accepted = 0;
  unsettled = 0;
  // Down the tree: the first child of the accepted node that the model agrees with.
  for (int at = -1, child = 0; child < int(drafts.size()); ++child) {
    if (drafts[size_t(child)].parent != at ||
        randomAt(row.samplingSeed, position + accepted, uint64_t(child) + 1) >= options.acceptance)
      continue;
    if (child != int(accepted) || unsettled)
      ++unsettled;
    at = child;
    ++accepted;
  }
  return accepted;
}

Status SimExecutor::run(const StepInput &input, Slot &slot, StepCost::Work &total) {
  StepResult &result = slot.result;
  result.rows.clear();
  result.tokens.clear();
  result.status = {};
  result.step = 0; // rows of this ring place are void from here on
  slot.rows.clear();
  for (const step::Row &row : input.rows()) {
    StatusOr<RowState> base = baseOf(input, row);
    if (!base)
      return base.status();
    RowResult out{row.request, row.generation, uint32_t(result.tokens.size()), 0, 0, false};
    uint32_t accepted = 0;
    if (row.phase == step::Phase::Verify)
      accepted = accept(input, row, base->outputPosition, out.unsettled);
    if (row.flags & step::kSamples) {
      uint32_t left = row.outputLimit - std::min(row.outputLimit, base->outputPosition);
      out.tokenCount = std::max(1u, std::min(1 + accepted, left));
      accepted = out.tokenCount - 1;
      out.unsettled = std::min(out.unsettled, accepted);
      for (uint32_t i = 0; i < out.tokenCount; ++i)
        result.tokens.push_back(
            source.token(row.request, row.generation, base->outputPosition + i));
    }
    RowState after = *base;
    after.length += row.phase == step::Phase::Prefill ? row.tokenCount : 1 + accepted;
    after.outputPosition += out.tokenCount;
    lasts[row.tableSlot] = {after.length, row.request, row.generation};
    slot.rows.push_back(after);
    result.rows.push_back(out);
    cost.addRow(total, base->length, row.tokenCount);
  }
  total.logits = double(input.logits().size());
  result.step = input.header().stepId;
  result.statusHash = statusHashOf(input, result.tokens);
  return {};
}

Status SimExecutor::submit(std::span<const uint8_t> stepInput, int64_t nowNs) {
  if (submitted - taken == options.stepsInFlight)
    return makeStatus(StatusCode::Internal, "{} steps are in flight, which is the limit",
                      options.stepsInFlight);
  StatusOr<StepInput> input = StepInput::parse(stepInput);
  if (!input)
    return input.status();
  LLMOPT_RETURN_IF_ERROR(mirror.apply(*input));
  Slot &slot = ring[submitted % ring.size()];
  cost.begin(work);
  LLMOPT_RETURN_IF_ERROR(run(*input, slot, work));
  slot.result.startedNs = std::max(nowNs, deviceFree);
  if (options.copyEnd)
    for (uint64_t event : input->waits())
      slot.result.startedNs = std::max(slot.result.startedNs, options.copyEnd(event));
  int64_t duration = int64_t(cost.seconds(work) * 1e9);
  slot.result.finishedNs = deviceFree = slot.result.startedNs + duration;
  busy += duration;
  ++submitted;
  return {};
}

StatusOr<const StepResult *> SimExecutor::wait() {
  if (taken == submitted)
    return makeStatus(StatusCode::Internal, "no step is in flight");
  return &ring[taken++ % ring.size()].result;
}

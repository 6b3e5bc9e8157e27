#include "runtime/executor/StepRows.h"

#include <algorithm>

using namespace llmopt::runtime;

namespace {

Status lost(const StepInput &input, uint64_t step, uint32_t row) {
  return makeStatus(StatusCode::Internal,
                    "step {} refers to row {} of step {}, which is not there any more",
                    input.header().stepId, row, step);
}

} // namespace

Status StepRows::addRow(const StepInput &input, const step::Row &row, const RowState &before,
                        const std::function<const StepRecord *(uint64_t)> &find) {
  uint32_t base = before.length;
  if (base < row.baseLength || uint64_t(base) + row.tokenCount > row.lengthBound)
    return makeStatus(StatusCode::Internal,
                      "step {}: a row of {} tokens begins at {}; its bounds are {} and {}",
                      input.header().stepId, row.tokenCount, base, row.baseLength, row.lengthBound);
  for (uint32_t i = 0; i < row.draftCount; ++i)
    if (input.draftsOf(row)[i].parent != int(i) - 1)
      return makeStatus(StatusCode::Unsupported,
                        "step {} has a tree of drafts; kernels have no mask for trees yet, give "
                        "each draft the one before it as its parent",
                        input.header().stepId);
  place.push_back(uint32_t(rows.size()));
  rows.push_back({&row, uint32_t(ids.size()), row.tokenCount, base, before.outputPosition});
  for (const step::Token &token : input.tokensOf(row)) {
    kv::Token id = kv::Token(token.id);
    if (token.id < 0) {
      const step::Reference &from = input.references()[size_t(-1 - int64_t(token.id))];
      const StepRecord *record = find(from.step);
      if (!record || from.row >= record->rows.size())
        return lost(input, from.step, from.row);
      size_t drafts = record->drafts.size() / record->rows.size();
      if (from.index > drafts)
        return makeStatus(StatusCode::Internal,
                          "step {} refers to draft {} of a row; the device makes {}; tell the "
                          "executor how many drafts the scheduler wants",
                          input.header().stepId, from.index - 1, drafts);
      id = from.index == 0 ? record->rows[from.row].last
                           : record->drafts[from.row * drafts + from.index - 1];
    }
    ids.push_back(id);
    positions.push_back(base + token.depth);
  }
  return {};
}

Status StepRows::resolve(const StepInput &input,
                         const std::function<const StepRecord *(uint64_t)> &find) {
  ids.clear();
  positions.clear();
  logits.clear();
  place.clear();
  rows.clear();
  rows.reserve(input.rows().size());
  size_t nextLogit = 0;
  for (const step::Row &row : input.rows()) {
    RowState base{row.baseLength, row.outputPosition, 0, false};
    if (row.predecessorStep != step::kNoStep) {
      const StepRecord *before = find(row.predecessorStep);
      if (!before || row.predecessorRow >= before->rows.size())
        return lost(input, row.predecessorStep, row.predecessorRow);
      base = before->rows[row.predecessorRow];
    }
    uint32_t shift = row.firstToken - uint32_t(ids.size()); // tokens of failed rows before it
    if (base.failed)
      place.push_back(kFailed);
    else
      LLMOPT_RETURN_IF_ERROR(addRow(input, row, base, find));
    std::span<const uint32_t> wanted = input.logits();
    for (; nextLogit < wanted.size() && wanted[nextLogit] < row.firstToken + row.tokenCount;
         ++nextLogit)
      if (!base.failed)
        logits.push_back(wanted[nextLogit] - shift);
  }
  return {};
}

namespace {

/// Tokens of one row: what the model says after each token, as long as it agrees with the
/// draft that comes next.
Status sampleRow(const ModelBatch &batch, const ModelRow &row, uint32_t logit, ModelLayers &model,
                 RowState &state, RowResult &result, std::vector<kv::Token> &tokens) {
  const step::Row &from = *row.row;
  uint32_t left = from.outputLimit - std::min(from.outputLimit, state.outputPosition);
  uint32_t most = std::max(1u, std::min(1u + from.draftCount, left));
  for (uint32_t i = 0; i < most; ++i) {
    StatusOr<kv::Token> token = model.sample({&row, logit + i, state.outputPosition});
    if (!token)
      return token.status();
    tokens.push_back(*token);
    state.last = *token;
    ++state.outputPosition;
    ++result.tokenCount;
    if (i < from.draftCount && batch.ids[row.firstToken + i + 1] != *token)
      break;
  }
  if (from.phase != step::Phase::Prefill)
    state.length = row.base + result.tokenCount;
  return {};
}

} // namespace

Status llmopt::runtime::sampleRows(const StepInput &input, const StepRows &rows, ModelLayers &model,
                                   uint32_t drafts, StepRecord &record) {
  ModelBatch batch = rows.batch();
  record.rows.assign(input.rows().size(), {});
  record.drafts.assign(input.rows().size() * drafts, 0);
  record.result.rows.clear();
  record.result.tokens.clear();
  size_t nextLogit = 0;
  for (size_t i = 0; i < input.rows().size(); ++i) {
    const step::Row &row = input.rows()[i];
    RowState &state = record.rows[i];
    RowResult result{row.request, row.generation, uint32_t(record.result.tokens.size()), 0,
                     0,           false};
    uint32_t at = rows.places()[i];
    if (at == StepRows::kFailed) {
      state.failed = result.failed = true;
      record.result.rows.push_back(result);
      continue;
    }
    const ModelRow &modelRow = batch.rows[at];
    state.length = modelRow.base + modelRow.tokenCount;
    state.outputPosition = modelRow.outputPosition;
    size_t first = nextLogit;
    while (nextLogit < batch.logits.size() &&
           batch.logits[nextLogit] < modelRow.firstToken + modelRow.tokenCount)
      ++nextLogit;
    if (row.flags & step::kSamples) {
      size_t wanted = row.phase == step::Phase::Prefill ? 1 : row.tokenCount;
      if (nextLogit - first < wanted)
        return makeStatus(StatusCode::Internal, "step {}: row {} samples and wants no logits",
                          input.header().stepId, i);
      LLMOPT_RETURN_IF_ERROR(sampleRow(batch, modelRow, uint32_t(nextLogit - wanted), model, state,
                                       result, record.result.tokens));
      if (drafts && row.outputLimit > state.outputPosition)
        LLMOPT_RETURN_IF_ERROR(model.draft(modelRow, state.last, state.outputPosition - 1,
                                           std::span(record.drafts).subspan(i * drafts, drafts)));
    }
    record.result.rows.push_back(result);
  }
  return {};
}

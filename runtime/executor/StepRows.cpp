#include "runtime/executor/StepRows.h"

#include <algorithm>

using namespace llmopt::runtime;

namespace {

bool isChain(std::span<const step::Draft> drafts) {
  for (size_t i = 0; i < drafts.size(); ++i)
    if (drafts[i].parent != int(i) - 1)
      return false;
  return true;
}

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
  place.push_back(uint32_t(rows.size()));
  rows.push_back({&row, uint32_t(ids.size()), row.tokenCount, base, before.outputPosition});
  for (uint32_t i = 0; const step::Token &token : input.tokensOf(row)) {
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
    positions.push_back(base + input.depthOf(row, i++));
  }
  addSets(input.draftsOf(row), row.tokenCount);
  return {};
}

/// What each token of a row sees of the row: itself and its ancestors.
void StepRows::addSets(std::span<const step::Draft> drafts, uint32_t tokens) {
  size_t first = sets.size();
  if (isChain(drafts)) {
    sets.resize(first + tokens, ~uint64_t(0));
    return;
  }
  sets.push_back(1);
  for (size_t i = 0; i < drafts.size(); ++i)
    sets.push_back(sets[first + size_t(drafts[i].parent + 1)] | uint64_t(2) << i);
}

Status StepRows::resolve(const StepInput &input, bool trees,
                         const std::function<const StepRecord *(uint64_t)> &find) {
  ids.clear();
  sets.clear();
  positions.clear();
  logits.clear();
  place.clear();
  rows.clear();
  rows.reserve(input.rows().size());
  size_t nextLogit = 0;
  for (const step::Row &row : input.rows()) {
    RowState base{row.baseLength, row.outputPosition, 0, false};
    if (!trees && !isChain(input.draftsOf(row)))
      return makeStatus(StatusCode::Unsupported,
                        "step {} has a tree of drafts; the executor was made for chains: set "
                        "ExecutorOptions::draftTrees, with kernels whose mask has a tree",
                        input.header().stepId);
    if (row.predecessorAgo) {
      uint64_t step = input.predecessorStep(row);
      const StepRecord *before = find(step);
      if (!before || row.predecessorRow >= before->rows.size())
        return lost(input, step, row.predecessorRow);
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

/// The child of token `at` of a row that holds `token`, as an index among the row's tokens; 0
/// where there is none. Of equal children the first counts.
uint32_t childWith(std::span<const step::Draft> drafts, std::span<const kv::Token> ids, uint32_t at,
                   kv::Token token) {
  for (uint32_t i = at; i < drafts.size(); ++i)
    if (drafts[i].parent == int(at) - 1 && ids[i + 1] == token)
      return i + 1;
  return 0;
}

/// Tokens of one row: what the model says after each token, down the tree as long as it agrees
/// with a draft that comes next. Accepted drafts move together.
Status sampleRow(const StepInput &input, const ModelBatch &batch, const ModelRow &row,
                 uint32_t logit, ModelLayers &model, RowState &state, RowResult &result,
                 StepRecord &record) {
  const step::Row &from = *row.row;
  std::span<const step::Draft> drafts = input.draftsOf(from);
  std::span<const kv::Token> ids = batch.ids.subspan(row.firstToken, row.tokenCount);
  uint32_t left = from.outputLimit - std::min(from.outputLimit, state.outputPosition);
  uint32_t most = std::max(1u, std::min(1u + from.draftCount, left));
  for (uint32_t at = 0;;) {
    StatusOr<kv::Token> token = model.sample({&row, logit + at, state.outputPosition});
    if (!token)
      return token.status();
    record.result.tokens.push_back(*token);
    state.last = *token;
    ++state.outputPosition;
    if (++result.tokenCount == most)
      break;
    at = childWith(drafts, ids, at, *token);
    if (!at)
      break;
    if (at != result.tokenCount)
      record.moves.push_back({from.tableSlot, row.base + at, row.base + result.tokenCount});
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
  record.moves.clear();
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
      LLMOPT_RETURN_IF_ERROR(sampleRow(input, batch, modelRow, uint32_t(nextLogit - wanted), model,
                                       state, result, record));
      if (drafts && row.outputLimit > state.outputPosition)
        LLMOPT_RETURN_IF_ERROR(model.draft(modelRow, state.last, state.outputPosition - 1,
                                           std::span(record.drafts).subspan(i * drafts, drafts)));
    }
    record.result.rows.push_back(result);
  }
  return {};
}

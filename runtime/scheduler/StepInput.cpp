#include "runtime/scheduler/StepInput.h"

using namespace llmopt::runtime;

bool StepInput::cut(std::span<const uint8_t> bytes) {
  all = bytes;
  head = reinterpret_cast<const step::Header *>(bytes.data());
  // 64-bit sums of 32-bit counts times small sizes cannot wrap.
  uint64_t at = sizeof(step::Header);
  bool inside = true;
  auto take = [&]<typename T>(std::span<const T> &array, uint32_t count) {
    uint64_t end = at + uint64_t(count) * sizeof(T);
    inside = inside && end <= bytes.size();
    if (inside)
      array = {reinterpret_cast<const T *>(bytes.data() + at), count};
    at = (end + 7) & ~uint64_t(7);
  };
  take(rowArray, head->rowCount);
  take(tokenArray, head->tokenCount);
  take(referenceArray, head->referenceCount);
  take(logitArray, head->logitCount);
  take(draftArray, head->draftCount);
  take(deltaArray, head->deltaCount);
  take(pageArray, head->pageCount);
  take(copyArray, head->copyCount);
  take(freeArray, head->freeCount);
  take(waitArray, head->waitCount);
  return inside && at == head->totalBytes && at == bytes.size();
}

StatusOr<StepInput> StepInput::parse(std::span<const uint8_t> bytes) {
  if (reinterpret_cast<uintptr_t>(bytes.data()) % 8)
    return invalidArgument("step bytes lie at an odd address; a multiple of 8 is wanted");
  if (bytes.size() < sizeof(step::Header))
    return dataLoss("step of {} bytes; a header alone has {}", bytes.size(), sizeof(step::Header));
  StepInput input;
  const auto *head = reinterpret_cast<const step::Header *>(bytes.data());
  if (head->magic != step::kMagic || head->version != step::kVersion)
    return dataLoss("step bytes begin with {:#x} version {}; {:#x} version {} is expected",
                    head->magic, head->version, step::kMagic, step::kVersion);
  if (!input.cut(bytes))
    return dataLoss("step of {} bytes says that it has {}, and its arrays do not fill them",
                    bytes.size(), head->totalBytes);
  if (uint64_t sum = stepChecksum(bytes); sum != head->checksum)
    return dataLoss("step {} has checksum {:#x}, its bytes give {:#x}", head->stepId,
                    head->checksum, sum);
  LLMOPT_RETURN_IF_ERROR(input.check());
  return input;
}

Status StepInput::checkRow(uint32_t index, uint32_t &nextToken, uint32_t &nextDraft) const {
  const step::Row &row = rowArray[index];
  auto wrong = [&](const char *rule) {
    return dataLoss("row {} of step {}: {}", index, head->stepId, rule);
  };
  if (row.firstToken != nextToken || row.tokenCount == 0 ||
      row.tokenCount > tokenArray.size() - nextToken)
    return wrong("its tokens do not follow those of the row before");
  nextToken += row.tokenCount;
  if (row.firstDraft != nextDraft || row.draftCount > draftArray.size() - nextDraft)
    return wrong("its drafts do not follow those of the row before");
  nextDraft += row.draftCount;
  if (row.phase > step::Phase::Verify || row.tableSlot >= head->tableSlots)
    return wrong("phase or table slot is out of range");
  bool verify = row.phase == step::Phase::Verify;
  if (verify != (row.draftCount > 0) || row.draftCount > head->maxDraft ||
      (row.phase != step::Phase::Prefill && row.tokenCount != 1u + row.draftCount))
    return wrong("a decode row has one token, a verify row one and its drafts");
  if ((row.predecessorAgo == 0) != (row.predecessorRow == step::kNone) ||
      row.predecessorAgo > head->stepId)
    return wrong("its predecessor is no row of an earlier step");
  if (uint64_t(row.baseLength) + row.tokenCount > row.lengthBound)
    return wrong("its length bound is below its base length and tokens");
  std::span<const step::Token> tokens = tokensOf(row);
  for (uint32_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].id < 0 && uint64_t(-1 - int64_t(tokens[i].id)) >= referenceArray.size())
      return wrong("a token refers to no reference");
    if (!verify || i == 0)
      continue;
    step::Draft draft = draftsOf(row)[i - 1];
    int parent = draft.parent;
    if (parent < -1 || parent >= int(i) - 1)
      return wrong("a draft's parent does not stand before it");
    if (draft.depth != (parent < 0 ? 1 : draftsOf(row)[size_t(parent)].depth + 1u))
      return wrong("a draft is not one deeper than its parent");
  }
  return {};
}

Status StepInput::check() const {
  if (head->kind > step::Kind::Snapshot || (head->kind == step::Kind::Snapshot && head->rowCount))
    return dataLoss("step {} is neither a step nor a snapshot without rows", head->stepId);
  uint32_t nextToken = 0, nextDraft = 0;
  for (uint32_t i = 0; i < rowArray.size(); ++i)
    LLMOPT_RETURN_IF_ERROR(checkRow(i, nextToken, nextDraft));
  if (nextToken != tokenArray.size() || nextDraft != draftArray.size())
    return dataLoss("step {} has tokens or drafts of no row", head->stepId);
  for (const step::Reference &reference : referenceArray)
    if (reference.step >= head->stepId || reference.index > head->maxDraft)
      return dataLoss("step {} refers to token {} of step {}; an earlier step and at most {} are "
                      "allowed",
                      head->stepId, reference.index, reference.step, head->maxDraft);
  for (size_t i = 0; i < logitArray.size(); ++i)
    if (logitArray[i] >= tokenArray.size() || (i && logitArray[i] <= logitArray[i - 1]))
      return dataLoss("step {} wants logits of token {}, out of order or range", head->stepId,
                      logitArray[i]);
  uint64_t nextPage = 0;
  for (const step::Delta &delta : deltaArray) {
    if (delta.group >= head->groupCount || delta.tableSlot >= head->tableSlots ||
        delta.first != nextPage || delta.count > pageArray.size() - nextPage)
      return dataLoss("step {}: a table change of group {}, slot {} is out of range", head->stepId,
                      delta.group, delta.tableSlot);
    nextPage += delta.count;
  }
  if (nextPage != pageArray.size())
    return dataLoss("step {} has pages of no table change", head->stepId);
  for (int32_t page : pageArray)
    if (page < -1)
      return dataLoss("step {}: a table entry is {}; pages are 0 or more, -1 for none",
                      head->stepId, page);
  for (const step::Copy &copy : copyArray)
    if (copy.group >= head->groupCount || copy.from < 0 || copy.to < 0 || copy.from == copy.to)
      return dataLoss("step {}: a copy of group {} from page {} to {} is not allowed", head->stepId,
                      copy.group, copy.from, copy.to);
  for (const step::Free &page : freeArray)
    if (page.group >= head->groupCount || page.page < 0)
      return dataLoss("step {}: a freed page of group {} is out of range", head->stepId,
                      page.group);
  return {};
}

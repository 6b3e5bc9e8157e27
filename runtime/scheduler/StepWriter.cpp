#include "runtime/scheduler/StepWriter.h"

#include <algorithm>
#include <cstring>
#include <numeric>

using namespace llmopt::runtime;

StepWriter::StepWriter(const StepCapacities &capacities) : capacities(capacities) {
  uint64_t draftTokens = uint64_t(capacities.rows) * capacities.maxDraft;
  references.reserve(capacities.tokens);
  logits.reserve(capacities.rows + draftTokens);
  drafts.reserve(draftTokens);
  deltas.reserve(size_t(capacities.rows) * capacities.groups);
  pages.reserve(capacities.pages);
  copies.reserve(size_t(capacities.rows) * capacities.groups);
  waits.reserve(capacities.rows);
  frees.reserve(capacities.pages);
  size_t most =
      (sizeof(step::Header) + 64 + capacities.rows * sizeof(step::Row) +
       capacities.tokens * (sizeof(step::Token) + sizeof(step::Reference)) + logits.capacity() * 4 +
       drafts.capacity() * sizeof(step::Draft) + deltas.capacity() * sizeof(step::Delta) +
       pages.capacity() * 4 + copies.capacity() * sizeof(step::Copy) +
       frees.capacity() * sizeof(step::Free) + waits.capacity() * 8);
  ring.resize(capacities.buffers);
  for (Buffer &buffer : ring)
    buffer.grow(most, 0);
}

void StepWriter::Buffer::grow(size_t wanted, size_t kept) {
  kv::LargeArray<uint8_t> larger(kFront + wanted);
  if (kept)
    std::copy_n(bytes(), kept, larger.data() + kFront);
  memory = std::move(larger);
  room = wanted;
}

void StepWriter::begin(uint64_t stepId, step::Kind kind, uint32_t rows) {
  head = {};
  head.kind = kind;
  head.stepId = stepId;
  rowRoom = rows ? rows : capacities.rows;
  tokenUsed = 0;
  if (rowsEnd(rowRoom) > ring[nextBuffer].room)
    ring[nextBuffer].grow(rowsEnd(rowRoom), 0);
  references.clear();
  logits.clear();
  drafts.clear();
  deltas.clear();
  pages.clear();
  copies.clear();
  frees.clear();
  waits.clear();
}

void StepWriter::moveTokens(uint32_t rows) {
  Buffer &buffer = ring[nextBuffer];
  size_t bytes = tokensEnd(tokenUsed) - rowsEnd(rowRoom), wanted = rowsEnd(rows) + bytes;
  if (wanted > buffer.room)
    buffer.grow(2 * wanted, tokensEnd(tokenUsed));
  std::memmove(buffer.bytes() + rowsEnd(rows), tokenAt(0), bytes);
  rowRoom = rows;
}

StepWriter::Decodes StepWriter::beginDecodes(uint32_t count) {
  if (head.rowCount + count > rowRoom)
    moveTokens(head.rowCount + count);
  Decodes decodes;
  decodes.nextToken = decodes.tokenBegin = tokenUsed;
  decodes.token = newTokens(count); // may move the rows
  decodes.row = rowAt(head.rowCount);
  decodes.nextReference = int32_t(references.size());
  decodes.firstDraft = uint32_t(drafts.size());
  decodes.reference = references.extend(count);
  return decodes;
}

void StepWriter::end(Decodes decodes) {
  uint32_t added = uint32_t(decodes.row - rowAt(head.rowCount));
  head.rowCount += added;
  tokenUsed = decodes.nextToken;
  references.cut(size_t(decodes.nextReference));
  uint32_t *logit = logits.extend(added);
  std::iota(logit, logit + added, tokenUsed - added);
}

void StepWriter::addTokens(std::span<const kv::Token> ids) {
  static_assert(sizeof(kv::Token) == sizeof(step::Token));
  lastRow().tokenCount += uint32_t(ids.size());
  void *out = newTokens(uint32_t(ids.size()));
  std::memcpy(out, ids.data(), ids.size_bytes());
}

void StepWriter::setTables(const kv::StepTables &tables) {
  head.tableBase = tables.baseVersion;
  head.tableVersion = tables.version;
  for (const kv::TableDelta &delta : tables.deltas) {
    deltas.push_back(
        {delta.group, delta.tableSlot, delta.index, delta.count, uint32_t(pages.size())});
    std::copy_n(tables.pages.begin() + delta.first, delta.count, pages.extend(delta.count));
  }
  for (const kv::PageCopy &copy : tables.copies)
    copies.push_back({copy.group, copy.from, copy.to});
  for (const kv::FreedPage &page : tables.freed)
    frees.push_back({page.group, page.page});
  std::copy_n(tables.waits.begin(), tables.waits.size(), waits.extend(tables.waits.size()));
}

std::span<const uint8_t> StepWriter::finish() {
  if (head.rowCount < rowRoom)
    moveTokens(head.rowCount);
  head.groupCount = uint8_t(capacities.groups);
  head.maxDraft = capacities.maxDraft;
  head.tableSlots = capacities.tableSlots;
  head.tokenCount = tokenUsed;
  size_t written = tokensEnd(tokenUsed);
  if (tokenUsed % 2)
    tokenAt(0)[tokenUsed] = {};
  uint64_t total = written;
  auto count = [&](auto &array, uint32_t &field) {
    field = uint32_t(array.size());
    total += (array.size() * sizeof(array[0]) + 7) & ~size_t(7);
  };
  count(references, head.referenceCount);
  count(logits, head.logitCount);
  count(drafts, head.draftCount);
  count(deltas, head.deltaCount);
  count(pages, head.pageCount);
  count(copies, head.copyCount);
  count(frees, head.freeCount);
  count(waits, head.waitCount);
  head.totalBytes = total;
  Buffer &buffer = ring[nextBuffer];
  nextBuffer = (nextBuffer + 1) % ring.size();
  if (total > buffer.room)
    buffer.grow(total, written);
  uint8_t *out = buffer.bytes();
  std::memcpy(out, &head, sizeof(head));
  uint8_t *at = out + written;
  auto put = [&](const auto &array) {
    size_t size = array.size() * sizeof(array[0]);
    if (size)
      std::memcpy(at, array.data(), size);
    size_t padded = (size + 7) & ~size_t(7);
    std::memset(at + size, 0, padded - size);
    at += padded;
  };
  put(references);
  put(logits);
  put(drafts);
  put(deltas);
  put(pages);
  put(copies);
  put(frees);
  put(waits);
  std::span<const uint8_t> bytes(out, total);
  uint64_t sum = stepChecksum(bytes);
  std::memcpy(out + offsetof(step::Header, checksum), &sum, sizeof(sum));
  return bytes;
}

Status TableMirror::apply(const StepInput &input) {
  const step::Header &head = input.header();
  bool snapshot = head.kind == step::Kind::Snapshot;
  if (!snapshot && head.tableVersion <= snapshotVersion)
    return {}; // its changes were in the snapshot
  if (!snapshot && head.tableBase != at)
    return makeStatus(StatusCode::Unavailable,
                      "step {} changes block tables of version {}, here they have {}; ask for a "
                      "snapshot",
                      head.stepId, head.tableBase, at);
  if (snapshot) {
    snapshotVersion = head.tableVersion;
    for (std::vector<int32_t> &table : tables)
      table.clear();
  }
  for (const step::Delta &delta : input.deltas()) {
    if (delta.tableSlot >= slots || size_t(delta.group) * slots >= tables.size())
      return dataLoss("step {}: table slot {} of group {}; there are {} slots", head.stepId,
                      delta.tableSlot, delta.group, slots);
    std::vector<int32_t> &table = tables[size_t(delta.group) * slots + delta.tableSlot];
    uint64_t end = uint64_t(delta.index) + delta.count;
    if (end > kMaxEntries)
      return dataLoss("step {}: a block table of {} entries; at most {} are allowed", head.stepId,
                      end, kMaxEntries);
    if (table.size() < end)
      table.resize(end, kv::kNoPage); // a window's first pages may never have been there
    std::span<const int32_t> entries = input.pages().subspan(delta.first, delta.count);
    std::copy(entries.begin(), entries.end(), table.begin() + delta.index);
  }
  at = head.tableVersion;
  return {};
}

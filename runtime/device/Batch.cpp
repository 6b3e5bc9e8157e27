#include "runtime/device/Batch.h"

#include "runtime/bundle/Address.h"
#include "runtime/bundle/BoundsEval.h"
#include "runtime/device/Dimensions.h"
#include "runtime/plan/Planner.h"

#include <algorithm>

namespace llmopt::runtime {

using bundle::BufferRole;
using bundle::KvForm;
using bundle::Program;
using bundle::QueryForm;
using bundle::TableForm;

namespace {

/// One call's program and arrays, with short ways to ask for them.
struct Call {
  const Program &program;
  const BoundArrays &arrays;

  const ArrayRef *get(BufferRole role) const { return arrayOf(program, arrays, role); }
  const std::string &name(BufferRole role) const {
    for (const bundle::Buffer &buffer : program.buffers)
      if (buffer.role == role)
        return buffer.name;
    return program.name;
  }
  int64_t extent(Dimension dimension) const {
    return extentOf(program, arrays, dimension).value_or(0);
  }
};

/// Offsets of all sequences: ascending from 0 to at most `limit`.
Status checkOffsets(const Call &call, BufferRole role, int64_t limit) {
  const ArrayRef &offsets = *call.get(role);
  if (int64_t first = offsets.shape[0] ? readInteger(offsets, 0) : 0; first != 0)
    return invalidArgument("array '{}' begins with {}; offsets must ascend from 0", call.name(role),
                           first);
  int64_t before = 0;
  for (int64_t i = 0; i < offsets.shape[0]; ++i) {
    int64_t offset = readInteger(offsets, i);
    if (offset < before)
      return invalidArgument("array '{}' has {} after {} at entry {}; offsets must "
                             "ascend from 0",
                             call.name(role), offset, before, i);
    before = offset;
  }
  if (before > limit)
    return invalidArgument("array '{}' ends at {}; the array that it divides has {} "
                           "entries",
                           call.name(role), before, limit);
  return {};
}

int64_t batchSize(const Call &call) {
  if (std::optional<int64_t> batch = extentOf(call.program, call.arrays, Dimension::Batch))
    return *batch;
  // Ragged queries without offsets: one query for each sequence.
  return call.extent(Dimension::QueryToken);
}

Status addQueries(const Call &call, BatchShape &batch) {
  auto count = static_cast<int64_t>(batch.sequences.size());
  bool ragged = call.program.facts.queryForm == QueryForm::Ragged;
  const ArrayRef *offsets = call.get(BufferRole::CuSeqlensQ);
  if (ragged && offsets) {
    int64_t tokens = call.extent(Dimension::QueryToken);
    LLMOPT_RETURN_IF_ERROR(checkOffsets(call, BufferRole::CuSeqlensQ, tokens));
  } else if (ragged && call.extent(Dimension::QueryToken) != count) {
    return invalidArgument("array '{}' has {} query tokens for {} sequences; without "
                           "query offsets one for each is allowed",
                           call.name(BufferRole::Query), call.extent(Dimension::QueryToken), count);
  }
  for (int64_t s = 0; s < count; ++s) {
    SequenceShape &sequence = batch.sequences[s];
    sequence.batch = s;
    if (!ragged) {
      sequence.queryLen = call.extent(Dimension::Query);
    } else if (offsets) {
      sequence.queryBase = readInteger(*offsets, s);
      sequence.queryLen = readInteger(*offsets, s + 1) - sequence.queryBase;
    } else {
      sequence.queryBase = s;
      sequence.queryLen = 1;
    }
  }
  return {};
}

/// Lengths of dense and ragged keys, before `kv_len` shortens them.
Status addKeys(const Call &call, BatchShape &batch) {
  if (call.program.facts.kvForm == KvForm::Dense) {
    for (SequenceShape &sequence : batch.sequences)
      sequence.keyLen = call.extent(Dimension::Key);
    return {};
  }
  // Self-attention over ragged tokens may share the offsets of the queries.
  BufferRole role =
      call.get(BufferRole::CuSeqlensKv) ? BufferRole::CuSeqlensKv : BufferRole::CuSeqlensQ;
  const ArrayRef *offsets = call.get(role);
  if (!offsets)
    return invalidArgument("program '{}' has ragged keys and was given no offsets; an "
                           "array of key offsets is needed",
                           call.program.name);
  LLMOPT_RETURN_IF_ERROR(checkOffsets(call, role, call.extent(Dimension::KeyToken)));
  for (size_t s = 0; s < batch.sequences.size(); ++s) {
    auto index = static_cast<int64_t>(s);
    batch.sequences[s].keyBase = readInteger(*offsets, index);
    batch.sequences[s].keyLen = readInteger(*offsets, index + 1) - batch.sequences[s].keyBase;
  }
  return {};
}

/// Applies `kv_len`, which must lie within what there is.
Status applyKeyLengths(const Call &call, BatchShape &batch) {
  const ArrayRef *lengths = call.get(BufferRole::KvLen);
  bool paged = call.program.facts.kvForm == KvForm::Paged;
  if (!lengths && paged)
    return invalidArgument("program '{}' reads pages and was given no key lengths; an "
                           "array of key lengths is needed",
                           call.program.name);
  for (size_t s = 0; lengths && s < batch.sequences.size(); ++s) {
    SequenceShape &sequence = batch.sequences[s];
    int64_t length = readInteger(*lengths, static_cast<int64_t>(s));
    if (length < 0 || (!paged && length > sequence.keyLen))
      return invalidArgument("array '{}' gives sequence {} a length of {}; 0 to {} keys "
                             "are there",
                             call.name(BufferRole::KvLen), s, length,
                             paged ? std::numeric_limits<int32_t>::max() : sequence.keyLen);
    sequence.keyLen = length;
  }
  return {};
}

Status addTable(const Call &call, BatchShape &batch) {
  const ArrayRef *table = call.get(BufferRole::BlockTable);
  if (!table)
    return invalidArgument("program '{}' reads pages and was given no page table",
                           call.program.name);
  if (table->shape.back() > 1 && table->strides.back() != 1)
    return invalidArgument("array '{}' has stride {} between pages; 1 is allowed; make "
                           "it contiguous",
                           call.name(BufferRole::BlockTable), table->strides.back());
  std::vector<int64_t> columns;
  if (call.program.facts.tableForm == TableForm::Indptr) {
    const ArrayRef *offsets = call.get(BufferRole::TableIndptr);
    if (!offsets)
      return invalidArgument("program '{}' reads a flat page table and was given no "
                             "offsets into it",
                             call.program.name);
    LLMOPT_RETURN_IF_ERROR(checkOffsets(call, BufferRole::TableIndptr, table->shape[0]));
    for (size_t s = 0; s < batch.sequences.size(); ++s) {
      auto index = static_cast<int64_t>(s);
      batch.sequences[s].tableBase = readInteger(*offsets, index);
      columns.push_back(readInteger(*offsets, index + 1) - batch.sequences[s].tableBase);
    }
  } else {
    columns.assign(batch.sequences.size(), table->shape[1]);
    for (size_t s = 0; s < batch.sequences.size(); ++s)
      batch.sequences[s].tableBase = static_cast<int64_t>(s) * table->strides[0];
  }
  return checkTable(batch, call.program.facts.pageSize, columns);
}

/// Biases and masks must reach as far as the batch does, or be broadcast.
Status checkMasks(const Call &call, const BatchShape &batch) {
  int64_t queries = 0, keys = 0;
  for (const SequenceShape &sequence : batch.sequences) {
    queries = std::max(queries, sequence.queryLen);
    keys = std::max(keys, sequence.keyLen);
  }
  const int64_t needed[4] = {static_cast<int64_t>(batch.sequences.size()),
                             call.program.facts.queryHeads, queries, keys};
  for (size_t i = 0; i < call.program.buffers.size(); ++i) {
    const bundle::Buffer &buffer = call.program.buffers[i];
    bool mask = buffer.role == BufferRole::Bias || buffer.role == BufferRole::DenseMask;
    if (!mask || !call.arrays[i] || call.arrays[i]->shape.size() != 4)
      continue;
    for (size_t dim = 0; dim < 4; ++dim) {
      int64_t extent = call.arrays[i]->shape[dim];
      if (extent != 1 && extent < needed[dim])
        return invalidArgument("array '{}' has extent {} in dimension {}; the batch "
                               "needs {}, or 1 to use it for all",
                               buffer.name, extent, dim, needed[dim]);
    }
  }
  return {};
}

} // namespace

StatusOr<BatchShape> buildBatch(const Program &program, const BoundArrays &arrays) {
  Call call{program, arrays};
  BatchShape batch;
  batch.sequences.resize(static_cast<size_t>(batchSize(call)));
  LLMOPT_RETURN_IF_ERROR(addQueries(call, batch));
  bool paged = program.facts.kvForm == KvForm::Paged;
  if (!paged)
    LLMOPT_RETURN_IF_ERROR(addKeys(call, batch));
  LLMOPT_RETURN_IF_ERROR(applyKeyLengths(call, batch));
  if (paged)
    LLMOPT_RETURN_IF_ERROR(addTable(call, batch));
  LLMOPT_RETURN_IF_ERROR(checkMasks(call, batch));
  return batch;
}

Status checkSlotMapping(const Program &program, const BoundArrays &arrays) {
  Call call{program, arrays};
  const ArrayRef *slots = call.get(BufferRole::SlotMapping);
  std::optional<int64_t> pages = extentOf(program, arrays, Dimension::Page);
  if (!slots || !pages || program.facts.pageSize == 0)
    return {};
  for (int64_t token = 0; token < slots->shape[0]; ++token) {
    int64_t slot = readInteger(*slots, token);
    if (slot < -1 || slot / program.facts.pageSize >= *pages)
      return invalidArgument("array '{}' sends token {} to slot {}; the pool has {} "
                             "pages of {} slots, and -1 skips a token",
                             call.name(BufferRole::SlotMapping), token, slot, *pages,
                             program.facts.pageSize);
  }
  return {};
}

Status checkPages(const Program &program, const BoundArrays &arrays, const BatchShape &batch,
                  const ScalarValues &scalars) {
  Call call{program, arrays};
  const ArrayRef *table = call.get(BufferRole::BlockTable);
  if (!table || program.facts.kvForm != KvForm::Paged)
    return {};
  int64_t pages = call.extent(Dimension::Page), pageSize = program.facts.pageSize;
  ArrayRef flat{table->data, table->type, {}, {1}, table->host};
  for (size_t s = 0; s < batch.sequences.size(); ++s) {
    const SequenceShape &sequence = batch.sequences[s];
    bundle::KeySet visible;
    if (sequence.queryLen > 0)
      visible = bundle::evaluate(
          program.facts.may, {.queryLo = positionOf(program.facts, sequence, 0),
                              .queryHi = positionOf(program.facts, sequence, sequence.queryLen - 1),
                              .queryLen = sequence.queryLen,
                              .keyLen = sequence.keyLen,
                              .scalars = scalars.values,
                              .perHeadMin = scalars.perHeadMin,
                              .perHeadMax = scalars.perHeadMax});
    for (int64_t page = 0; page < bundle::pagesFor(sequence.keyLen, pageSize); ++page) {
      int64_t id = readInteger(flat, sequence.tableBase + page);
      bool seen = visible.intersects(page * pageSize, (page + 1) * pageSize);
      if (id < (seen ? 0 : -1) || id >= pages)
        return invalidArgument("array '{}' gives page {} of sequence {} the id {}; the "
                               "pool has {} pages{}",
                               call.name(BufferRole::BlockTable), page, s, id, pages,
                               seen ? ", and a query may see this one" : "");
    }
  }
  return {};
}

void findCommonPages(const Program &program, const BoundArrays &arrays, BatchShape &batch) {
  const ArrayRef *table = Call{program, arrays}.get(BufferRole::BlockTable);
  if (!table || program.facts.kvForm != KvForm::Paged || batch.sequences.size() < 2)
    return;
  ArrayRef flat{table->data, table->type, {}, {1}, table->host};
  const SequenceShape &first = batch.sequences.front();
  int64_t pageSize = program.facts.pageSize, pages = first.keyLen / pageSize;
  for (const SequenceShape &sequence : batch.sequences) {
    pages = std::min(pages, sequence.keyLen / pageSize);
    for (int64_t page = 0; page < pages; ++page)
      if (readInteger(flat, sequence.tableBase + page) != readInteger(flat, first.tableBase + page))
        pages = page;
  }
  if (pages == 0)
    return;
  batch.prefixes = {{kNoPrefix, static_cast<uint32_t>(pages * pageSize)}};
  for (SequenceShape &sequence : batch.sequences)
    sequence.prefix = 0;
}

} // namespace llmopt::runtime

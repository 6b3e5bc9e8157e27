// Kernels written by hand, as plain as can be, to test everything around
// kernels: argument binding, planner, parameter block, merge. One score at a
// time, all f32. The slots are those of attentionSlots() in CallTestUtil.h, in
// the same order.
#include "runtime/bundle/WorkItem.h"

using namespace llmopt::bundle;

extern "C" {
float expf(float);
float logf(float);
}

namespace {

struct Params {
  ParamHeader header;
  const float *query;
  int64_t queryToken, queryHead;
  const float *key;
  int64_t keyOuter, keyToken, keyHead; // outer: sequence or page
  const float *value;
  int64_t valueOuter, valueToken, valueHead;
  float *output;
  int64_t outputToken, outputHead;
  float *lse;
  int64_t lseToken;
  int64_t queryHeads, kvHeads, dQk, dV;
  const int32_t *table; // null when not paged
  int64_t pageSize;
  const uint32_t *itemOffsets;
  const WorkItem *items;
  const RowEntry *rows;
  const SequenceRecord *sequences;
  const uint64_t *scalars; // scale (f32), window (i64)
  float *partialOut, *partialLse;
  const uint32_t *mergeOffsets;
  const MergeItem *merges;
  const int64_t *slotMapping;
  const float *newKey;
  int64_t newKeyToken, newKeyHead;
  const float *newValue;
  int64_t newValueToken, newValueHead;
  uint64_t *counters;
};

const float kInfinity = __builtin_inff();

float scaleOf(const Params &p) {
  float scale;
  __builtin_memcpy(&scale, &p.scalars[0], sizeof(scale));
  return scale;
}

int64_t groupOf(const Params &p) { return p.queryHeads / p.kvHeads; }

/// Where token `index` of a sequence starts in K or V.
int64_t tokenOffset(const Params &p, const SequenceRecord &sequence, int64_t index, int64_t outer,
                    int64_t token) {
  if (!p.table)
    return sequence.batch * outer + (sequence.keyBase + index) * token;
  int64_t page = p.table[sequence.tableBase + index / p.pageSize];
  return page * outer + index % p.pageSize * token;
}

struct Row {
  const SequenceRecord *sequence;
  int64_t token, head, position;
};

Row rowOf(const Params &p, uint32_t packed, uint32_t kvHead, uint32_t sequence) {
  int64_t group = groupOf(p);
  const RowEntry &entry = p.rows[packed / group];
  const SequenceRecord &record = p.sequences[sequence];
  return {&record, record.queryBase + entry.query, kvHead * group + packed % group, entry.position};
}

/// softmax(q k) v of one row over [begin, end); normalised; returns the LSE.
float attendRow(const Params &p, const Row &row, uint32_t kvHead, int64_t begin, int64_t end,
                float *out) {
  const float *query = p.query + row.token * p.queryToken + row.head * p.queryHead;
  int64_t window = static_cast<int64_t>(p.scalars[1]);
  float largest = -kInfinity, sum = 0;
  for (int64_t d = 0; d < p.dV; ++d)
    out[d] = 0;
  for (int64_t k = begin; k < end; ++k) {
    if (k > row.position || k <= row.position - window)
      continue;
    const float *key =
        p.key + kvHead * p.keyHead + tokenOffset(p, *row.sequence, k, p.keyOuter, p.keyToken);
    float score = 0;
    for (int64_t d = 0; d < p.dQk; ++d)
      score += query[d] * key[d];
    score *= scaleOf(p);
    float top = score > largest ? score : largest;
    float keep = largest == -kInfinity ? 0 : expf(largest - top);
    float weight = expf(score - top);
    largest = top;
    sum = sum * keep + weight;
    const float *value = p.value + kvHead * p.valueHead +
                         tokenOffset(p, *row.sequence, k, p.valueOuter, p.valueToken);
    for (int64_t d = 0; d < p.dV; ++d)
      out[d] = out[d] * keep + weight * value[d];
  }
  if (sum == 0)
    return -kInfinity;
  for (int64_t d = 0; d < p.dV; ++d)
    out[d] /= sum;
  return largest + logf(sum);
}

void store(const Params &p, const Row &row, const float *out, float lse) {
  float *to = p.output + row.token * p.outputToken + row.head * p.outputHead;
  for (int64_t d = 0; d < p.dV; ++d)
    to[d] = out[d];
  if (p.lse)
    p.lse[row.token * p.lseToken + row.head] = lse;
}

} // namespace

extern "C" {

/// Uses the scratch memory for the row that it accumulates.
int attend(const void *params, uint32_t worker, void *scratch) {
  const Params &p = *static_cast<const Params *>(params);
  float *out = static_cast<float *>(scratch);
  for (uint32_t i = p.itemOffsets[worker]; i < p.itemOffsets[worker + 1]; ++i) {
    const WorkItem &item = p.items[i];
    for (uint32_t r = 0; r < item.rowCount; ++r) {
      Row row = rowOf(p, item.firstRow + r, item.kvHead, item.sequence);
      int64_t end = row.sequence->keyLen < item.keyEnd ? row.sequence->keyLen : item.keyEnd;
      float lse = attendRow(p, row, item.kvHead, item.keyBegin, end, out);
      if (item.partialSlot < 0) {
        store(p, row, out, lse);
        continue;
      }
      int64_t slot = int64_t{item.partialSlot} + r;
      for (int64_t d = 0; d < p.dV; ++d)
        p.partialOut[slot * p.dV + d] = out[d];
      p.partialLse[slot] = lse;
    }
    if (p.counters)
      p.counters[2 * worker] += item.rowCount;
  }
  return 0;
}

int merge(const void *params, uint32_t worker, void *scratch) {
  const Params &p = *static_cast<const Params *>(params);
  float *out = static_cast<float *>(scratch);
  for (uint32_t i = p.mergeOffsets[worker]; i < p.mergeOffsets[worker + 1]; ++i) {
    const MergeItem &item = p.merges[i];
    Row row = rowOf(p, item.row, item.kvHead, item.sequence);
    float largest = -kInfinity, sum = 0;
    for (uint32_t k = 0; k < item.count; ++k) {
      float lse = p.partialLse[item.firstPartial + int64_t{k} * item.stride];
      largest = lse > largest ? lse : largest;
    }
    for (int64_t d = 0; d < p.dV; ++d)
      out[d] = 0;
    for (uint32_t k = 0; k < item.count && largest > -kInfinity; ++k) {
      int64_t slot = item.firstPartial + int64_t{k} * item.stride;
      float weight = expf(p.partialLse[slot] - largest);
      sum += weight;
      for (int64_t d = 0; d < p.dV; ++d)
        out[d] += weight * p.partialOut[slot * p.dV + d];
    }
    for (int64_t d = 0; d < p.dV && sum > 0; ++d)
      out[d] /= sum;
    store(p, row, out, sum > 0 ? largest + logf(sum) : -kInfinity);
  }
  return 0;
}

int append(const void *params, uint32_t worker, void *) {
  const Params &p = *static_cast<const Params *>(params);
  auto *keys = const_cast<float *>(p.key), *values = const_cast<float *>(p.value);
  for (int64_t t = p.itemOffsets[worker]; t < p.itemOffsets[worker + 1]; ++t) {
    int64_t slot = p.slotMapping[t];
    if (slot < 0)
      continue;
    int64_t page = slot / p.pageSize, token = slot % p.pageSize;
    for (int64_t h = 0; h < p.kvHeads; ++h) {
      for (int64_t d = 0; d < p.dQk; ++d)
        keys[page * p.keyOuter + token * p.keyToken + h * p.keyHead + d] =
            p.newKey[t * p.newKeyToken + h * p.newKeyHead + d];
      for (int64_t d = 0; d < p.dV; ++d)
        values[page * p.valueOuter + token * p.valueToken + h * p.valueHead + d] =
            p.newValue[t * p.newValueToken + h * p.newValueHead + d];
    }
  }
  return 0;
}

int failing(const void *, uint32_t worker, void *) { return worker == 1 ? -7 : 0; }
}

// The records of a plan: plain data that the planner writes and every kernel reads,
// on every target. Little endian, no pointers, sizes fixed by static_assert.
//
// Vocabulary. A *row* of a work item is one (query token, query head) pair of one KV
// head's group: packed row r stands for entry r / group of the row list and query
// head kvHead * group + r % group. A kernel variant handles at most `tileRows` packed
// rows an item. Keys are counted from the start of the sequence (slot = position).
#pragma once

#include <cstdint>

namespace llmopt::bundle {

/// Version of the records below and of the parameter block. A bundle names the one
/// it was compiled against; the runtime refuses any other by name.
inline constexpr uint32_t kAbiVersion = 2;

/// Limits of a plan: keys or queries of a sequence, and packed rows of a batch. The planner refuses
/// more. Kernels count rows, keys and positions in 32 bits: the sum of two, and some tiles beyond
/// the end, fit.
inline constexpr int64_t kMaxLength = (int64_t{1} << 29) - 1;
inline constexpr int64_t kMaxRows = (int64_t{1} << 29) - 1;

/// WorkItem::flags: rows of several sequences, which share the item's keys. Their entries count
/// queries from the start of the ragged array, in no order of positions; the item's sequence
/// record stands for their common keys.
inline constexpr uint32_t kMixedSequences = 1;

/// One rectangle of scores: up to tileRows packed rows against keys [keyBegin, keyEnd), as far as
/// the sequence has them: the end of a sequence's last item lies at the end of a key tile, so
/// that a sequence may grow to there without a change of the item.
///
/// A kernel with Kernel::itemHeads H > 1 takes H items at a time, a *tuple*: those of KV heads h,
/// h + 1, ... h + H - 1 in this order, h a multiple of H, that differ in kvHead and partialSlot
/// alone (either none of them has a partial, or each has its own). A worker's list holds whole
/// tuples.
struct WorkItem {
  uint32_t firstRow; ///< first packed row: rowListIndex * group + headInGroup
  uint32_t rowCount; ///< packed rows; 0 marks padding, which writes nothing
  uint32_t kvHead;
  uint32_t sequence;   ///< index of a SequenceRecord
  uint32_t keyBegin;   ///< first key, inclusive
  uint32_t keyEnd;     ///< last key, exclusive; SequenceRecord::keyLen bounds it
  int32_t partialSlot; ///< first row of partials written, or -1: writes output and LSE
  uint32_t flags;      ///< kMixedSequences, or 0
};
static_assert(sizeof(WorkItem) == 32);

/// One entry of the row list: a query token of the item's sequence.
struct RowEntry {
  uint32_t query;   ///< index of the query inside its sequence; see kMixedSequences
  int32_t position; ///< its position among the keys: query + kvLen - qLen by default;
                    ///< negative when the sequence has more queries than keys
};
static_assert(sizeof(RowEntry) == 8);

/// What a kernel needs to know of one sequence. Offsets are in tokens, not elements.
struct SequenceRecord {
  int64_t queryBase; ///< first token in a ragged Q and O (cu_seqlens_q[s]); 0 when dense
  int64_t keyBase;   ///< first token in ragged K and V (cu_seqlens_kv[s]); 0 otherwise
  int64_t queryLen;
  int64_t keyLen;
  int64_t tableBase; ///< index of the sequence's first entry in the page table array
  int64_t batch;     ///< index in the batch dimension of dense tensors and of biases
  int64_t reserved[2];
};
static_assert(sizeof(SequenceRecord) == 64);

/// Combines `count` consecutive partial rows' splits into one packed row of the output.
/// Split k of the row lies at partial row firstPartial + k * stride.
struct MergeItem {
  uint32_t row; ///< packed row, as WorkItem::firstRow
  uint32_t kvHead;
  uint32_t sequence;
  uint32_t firstPartial; ///< partial row of split 0
  uint32_t count;        ///< number of splits, >= 0; 0 writes 0 and -inf
  uint32_t stride;       ///< partial rows from one split to the next
  uint32_t reserved[2];
};
static_assert(sizeof(MergeItem) == 32);

/// Head of every parameter block. `slots` 8-byte slots follow; the bundle says what
/// each means (pointer, stride, extent).
struct ParamHeader {
  uint32_t abiVersion;
  uint32_t slots;
  uint64_t reserved[7];
};
static_assert(sizeof(ParamHeader) == 64);

/// Entry point of a CPU kernel. `worker` selects items [off[worker], off[worker + 1]);
/// `scratch` is 64-byte aligned and as large as the bundle says. Returns 0.
using CpuEntry = int (*)(const void *params, uint32_t worker, void *scratch);

} // namespace llmopt::bundle

// Reads the lengths of a batch from the caller's arrays and checks everything
// that a kernel would otherwise trust: offsets, lengths, page tables, slots.
#pragma once

#include "runtime/device/Arguments.h"

namespace llmopt::runtime {

/// The sequences of a call. Refuses offsets that do not ascend or leave their
/// array, lengths beyond the keys or the page table, and masks too small for
/// the batch.
StatusOr<BatchShape> buildBatch(const bundle::Program &program, const BoundArrays &arrays);

/// Slots to append to must be -1 (skipped) or lie in the pool.
Status checkSlotMapping(const bundle::Program &program, const BoundArrays &arrays);

/// Pages that hold a key which some query may see must lie in the pool; others
/// may also be -1. Reads the whole table.
Status checkPages(const bundle::Program &program, const BoundArrays &arrays,
                  const BatchShape &batch, const ScalarValues &scalars);

/// Gives the batch one prefix node of the pages with which the tables of all sequences begin,
/// where there are such. For tables that the host can read; reads them as far as they agree.
void findCommonPages(const bundle::Program &program, const BoundArrays &arrays, BatchShape &batch);

} // namespace llmopt::runtime

// Turns the lengths of a batch into balanced work items, on the host, without
// looking at any device memory.
//
//   StatusOr<Plan> plan = makePlan(program, batch, scalars, {.workers = 64});
//
// Promises, held by property tests: each packed row of each KV head is covered
// exactly once over the keys it may see; a sequence without keys still owns one
// item for each row tile, so that 0 and -inf get written; a sequence without
// queries owns none; 1 <= splits <= visible key tiles; partial rows stay within
// `workspaceBound`.
#pragma once

#include "runtime/base/Status.h"
#include "runtime/bundle/Program.h"
#include "runtime/plan/Plan.h"

#include <span>

namespace llmopt::runtime {

/// `program` must be valid (bundle::validate) and have an Attend kernel.
StatusOr<Plan> makePlan(const bundle::Program &program, const BatchShape &batch,
                        const ScalarValues &scalars, const PlanOptions &options);

/// Position among the keys of query `query` of a sequence.
int64_t positionOf(const bundle::AttentionFacts &facts, const SequenceShape &sequence,
                   int64_t query);

/// Most partial rows that `makePlan` asks for with any batch within the
/// capacities.
uint64_t workspaceBound(const bundle::Program &program, const PlanOptions &options,
                        const PlanCapacities &capacities);

/// Refuses a sequence that is longer than its part of the page table can hold:
/// the kernel would read past it. `columns` has one entry for each sequence, or
/// one for all.
Status checkTable(const BatchShape &batch, uint32_t pageSize, std::span<const int64_t> columns);

} // namespace llmopt::runtime

// Turns the lengths of a batch into balanced work items, on the host, without
// looking at any device memory and, once it is made, without allocating.
//
//   StatusOr<Planner> planner = Planner::create(program, {.workers = 132}, limits);
//   Plan plan = makeRoom(program, planner->room());
//   StatusOr<PlanChange> change = planner->plan(batch, scalars, plan);
//
// Promises, held by property tests: each packed row of each KV head is covered
// exactly once over the keys it may see; a sequence without keys still owns one
// item for each row tile, so that 0 and -inf get written; a sequence without
// queries owns none; 1 <= splits <= visible key tiles; no array outgrows `room`.
//
// The largest load is at most 1.05 x the mean and one key tile (Auto), or the mean and the
// largest item (policies that do not cut where the load wants it). Row tiles of
// kShortTiles key tiles or fewer are not cut.
#pragma once

#include "runtime/base/Status.h"
#include "runtime/bundle/Program.h"
#include "runtime/plan/Capacity.h"
#include "runtime/plan/Plan.h"
#include "runtime/plan/cascade/Cascade.h"

#include <array>
#include <memory>
#include <span>

namespace llmopt::runtime {

/// What a plan changed in the arrays it was given.
enum class PlanChange : uint8_t {
  All,
  Lengths, ///< rows and sequences: items and merges are those of the plan before
};

/// What a planner has decided so far.
struct PlanCounters {
  uint64_t plans = 0, lengthsOnly = 0;
  std::array<uint64_t, kCascadeAnswers> cascades = {}; ///< by CascadeAnswer
  uint64_t sharedTiles = 0;                            ///< of all heads
  uint64_t splitsRefused = 0; ///< cuts that were left out, or plans with fewer splits: no room
};

class Planner {
public:
  /// `program` must be valid (bundle::validate), have an Attend kernel, and stay.
  static StatusOr<Planner> create(const bundle::Program &program, const PlanOptions &options,
                                  const PlanLimits &limits);
  Planner(Planner &&) noexcept;
  Planner &operator=(Planner &&) noexcept;
  ~Planner();

  /// What makeRoom and an arena need for any batch within the limits.
  const PlanCounts &room() const;

  /// With `itemsStay` the kernels still have the items of the last plan; where the batch needs
  /// the same ones (it grew within key tiles), only rows and sequences are written.
  /// ResourceExhausted for a batch beyond the limits, InvalidArgument for a bad one; the plan is
  /// then void.
  StatusOr<PlanChange> plan(const BatchShape &batch, const ScalarValues &scalars, Plan &plan,
                            bool itemsStay = false);

  CascadeAnswer lastCascade() const;
  const PlanCounters &counters() const;

private:
  class State;
  explicit Planner(std::unique_ptr<State> state);
  std::unique_ptr<State> state;
};

/// A plan of one batch with room of its own.
StatusOr<Plan> makePlan(const bundle::Program &program, const BatchShape &batch,
                        const ScalarValues &scalars, const PlanOptions &options);

/// Position among the keys of query `query` of a sequence.
inline int64_t positionOf(const bundle::AttentionFacts &facts, const SequenceShape &sequence,
                          int64_t query) {
  return facts.topLeft ? query : query + sequence.keyLen - sequence.queryLen;
}

/// Refuses a sequence that is longer than its part of the page table can hold:
/// the kernel would read past it. `columns` has one entry for each sequence, or
/// one for all.
Status checkTable(const BatchShape &batch, uint32_t pageSize, std::span<const int64_t> columns);

} // namespace llmopt::runtime

// A device without hardware: takes steps as bytes, follows them as a device would (lengths,
// positions, accepted drafts out of the rows before), and says how long they would take.
#pragma once

#include "runtime/engine/Executor.h"
#include "runtime/engine/StepCost.h"
#include "runtime/scheduler/StepWriter.h"

#include <functional>

namespace llmopt::runtime {

/// What the model would say.
class TokenSource {
public:
  virtual ~TokenSource() = default;
  /// Token `position` of the answer to a request.
  virtual kv::Token token(uint32_t request, uint32_t generation, uint32_t position) = 0;
};

struct SimOptions {
  uint32_t stepsInFlight = 1;
  uint32_t groups = 1, tableSlots = 256;
  uint32_t maxRows = 256, maxDraft = 0;
  double acceptance = 0; ///< probability that a draft is accepted, each for itself
  /// When a copy from host memory, for which a step may wait, has ended. Empty: at once.
  std::function<int64_t(kv::EventId)> copyEnd;
};

class SimExecutor : public Executor {
public:
  SimExecutor(const SimOptions &options, const StepCost &cost, TokenSource &source);

  Status submit(std::span<const uint8_t> stepInput, int64_t nowNs) override;
  Status restore(std::span<const uint8_t> snapshot) override;
  StatusOr<const StepResult *> wait() override;
  Status reopen() override;

  int64_t busyNs() const { return busy; }
  const TableMirror &tables() const { return mirror; }

private:
  /// What a row leaves for its successor.
  struct RowState {
    uint32_t length = 0, outputPosition = 0;
  };
  struct Slot {
    StepResult result;
    std::vector<RowState> rows;
  };

  Status run(const StepInput &input, Slot &slot, StepCost::Work &work);
  StatusOr<RowState> baseOf(const StepInput &input, const step::Row &row) const;
  /// Accepted drafts, and of them those beyond their linear slots.
  uint32_t accept(const StepInput &input, const step::Row &row, uint32_t position,
                  uint32_t &unsettled) const;

  static constexpr uint32_t kUnknown = UINT32_MAX; ///< after a snapshot, which has no lengths

  SimOptions options;
  StepCost cost;
  TokenSource &source;
  TableMirror mirror;
  std::vector<Slot> ring; ///< of D + 1: the last result stays valid
  uint64_t submitted = 0, taken = 0;
  /// Of each table slot, as its last row left it.
  struct Last {
    uint32_t length = 0, request = UINT32_MAX, generation = 0;
  };
  std::vector<Last> lasts;
  StepCost::Work work;
  int64_t deviceFree = 0, busy = 0;
};

/// A number in [0, 1) from a request's seed and a position: sampling that preemption,
/// speculation and batch cannot change.
double randomAt(uint64_t seed, uint64_t position, uint64_t stream = 0);

} // namespace llmopt::runtime

// Several executors that run the same steps, each with its part of the model: tensor
// parallelism as the engine sees it. All get the same bytes; their results must agree.
#pragma once

#include "runtime/engine/Executor.h"

#include <vector>

namespace llmopt::runtime {

class Ranks : public Executor {
public:
  /// At least one; they outlive this.
  explicit Ranks(std::vector<Executor *> ranks)
      : ranks(std::move(ranks)), behind(this->ranks.size()) {}

  /// Unavailable while a rank lacks the tables (it was restarted); the others have the step.
  Status submit(std::span<const uint8_t> stepInput, int64_t nowNs) override;
  /// Goes to the ranks that lack the tables.
  Status restore(std::span<const uint8_t> snapshot) override;
  /// The first rank's result, with the latest rank's times. Internal when the status hashes
  /// of a step differ: the ranks have diverged.
  StatusOr<const StepResult *> wait() override;
  Status reopen() override;

private:
  std::vector<Executor *> ranks;
  std::vector<bool> behind; ///< ranks that have not taken the step yet
  bool resuming = false;
  StepResult result;
};

} // namespace llmopt::runtime

// What comes back from a step.
#pragma once

#include "runtime/base/Status.h"
#include "runtime/kv/Prompt.h"

#include <cstdint>
#include <vector>

namespace llmopt::runtime {

struct RowResult {
  uint32_t request = 0, generation = 0;    ///< as in the row
  uint32_t firstToken = 0, tokenCount = 0; ///< accepted drafts and the one sampled after them
  /// Of the accepted drafts, those that do not lie in their linear slots yet (a branch of a
  /// tree that the request's next row moves).
  uint32_t unsettled = 0;
  bool failed = false; ///< the row yielded nothing; its request ends
};

struct StepResult {
  uint64_t step = 0;
  Status status;               ///< a failure here fails all rows
  std::vector<RowResult> rows; ///< in the order of the step's rows
  std::vector<kv::Token> tokens;
  /// Hash of the step's bytes and the accepted tokens. Ranks that disagree have diverged.
  uint64_t statusHash = 0;
  int64_t startedNs = 0, finishedNs = 0; ///< on the engine's clock
};

} // namespace llmopt::runtime

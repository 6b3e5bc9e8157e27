#include "runtime/engine/Ranks.h"

#include <algorithm>

using namespace llmopt::runtime;

Status Ranks::submit(std::span<const uint8_t> stepInput, int64_t nowNs) {
  if (!resuming)
    behind.assign(ranks.size(), true);
  resuming = false;
  Status lacking;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (!behind[i])
      continue;
    Status taken = ranks[i]->submit(stepInput, nowNs);
    behind[i] = !taken.ok();
    if (taken.code() == StatusCode::Unavailable)
      lacking = taken.withContext(fmt::format("rank {}", i));
    else if (!taken.ok())
      return taken.withContext(fmt::format("rank {}", i));
  }
  resuming = !lacking.ok();
  return lacking;
}

Status Ranks::restore(std::span<const uint8_t> snapshot) {
  for (size_t i = 0; i < ranks.size(); ++i)
    if (behind[i])
      LLMOPT_RETURN_IF_ERROR(ranks[i]->restore(snapshot));
  return {};
}

StatusOr<const StepResult *> Ranks::wait() {
  for (size_t i = 0; i < ranks.size(); ++i) {
    StatusOr<const StepResult *> taken = ranks[i]->wait();
    if (!taken)
      return taken.status().withContext(fmt::format("rank {}", i));
    const StepResult &theirs = **taken;
    if (i == 0) {
      result = theirs;
      continue;
    }
    if (theirs.step != result.step || theirs.statusHash != result.statusHash)
      return makeStatus(StatusCode::Internal,
                        "rank {} has status {:#x} after step {}, rank 0 has {:#x} after step {}; "
                        "their tokens differ",
                        i, theirs.statusHash, theirs.step, result.statusHash, result.step);
    if (result.status.ok())
      result.status = theirs.status;
    result.startedNs = std::min(result.startedNs, theirs.startedNs);
    result.finishedNs = std::max(result.finishedNs, theirs.finishedNs);
  }
  return &result;
}

Status Ranks::reopen() {
  resuming = false;
  for (Executor *rank : ranks)
    LLMOPT_RETURN_IF_ERROR(rank->reopen());
  return {};
}

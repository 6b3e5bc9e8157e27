// Passes of the attn dialect, and the facts about their result that codegen needs.
#pragma once

#include "passes/attn/Schedule.h"
#include "passes/attn/Signature.h"

#include "mlir/Pass/Pass.h"

namespace llmopt {

#define GEN_PASS_DECL
#include "passes/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "passes/Passes.h.inc"

/// What the schedule of a spec's attention depends on, without the target.
ScheduleRequest scheduleRequest(const Signature &signature);

/// Reports a schedule and its reason as an MLIR remark at the attention op: category
/// attn-to-tile, name "schedule".
void remarkSchedule(const Signature &signature, const Schedule &schedule);

/// One kernel that attn-to-tile makes of a spec function.
struct KernelName {
  bundle::KernelKind kind;
  std::string name;
  int64_t rows = 0, keys = 0; ///< tile of an attend kernel
  int64_t slices = 1;         ///< parts of a tile's keys with a softmax state of their own
  bool oneLoop = false;       ///< full and partial tiles by one body (Schedule::oneLoop)
  bool branchScores = false;  ///< the scores in its branch (Schedule::branchScores)
  int64_t heads = 1;          ///< KV heads whose items the kernel takes together
  int64_t endRows = 0;        ///< rows of a turn at an item's end (Schedule::endRows)
  int64_t partRows = 0;       ///< rows that are left out together (Schedule::partRows)
};

/// The kernels of a spec, in the order in which they run.
std::vector<KernelName> kernelsOf(const Signature &signature, llvm::StringRef spec,
                                  const Schedule &schedule);

} // namespace llmopt

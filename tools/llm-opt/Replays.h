// A captured graph against batches that it was not captured with: what `verify --graph` does.
#pragma once

#include "tools/harness/Cases.h"
#include "tools/llm-opt/Runner.h"

namespace llmopt::cli {

/// Captures the launches of a case's call once and replays them: for the same batch, for lengths
/// cut in half, with sequences that have no keys (their slots -1, their table -1 or that of an
/// earlier batch), with sequences that have no rows (cases A21, A24). Each replay must match the
/// oracle, and each bit of it a direct run.
llvm::Expected<harness::Report> runReplays(const harness::Spec &spec, const harness::Case &one,
                                           Runner &runner);

} // namespace llmopt::cli

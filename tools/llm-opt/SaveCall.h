// A call that was timed, in files, for another program to run on the same values.
#pragma once

#include "tools/llm-opt/StagedCall.h"

namespace llmopt::cli {

/// Writes to `folder`, which is made: NAME.npy for each array of the call that has host memory and
/// for each result; block-TYPE.npy; and call.json with the arrays that hold the block over and
/// over (see PatternArrays): {"arrays": {"q": {"type", "shape", "start"}}, "numbers": {...}}.
llvm::Error saveCall(const std::string &folder, const harness::Call &call, StagedCall &staged);

} // namespace llmopt::cli

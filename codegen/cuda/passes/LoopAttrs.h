// Marks of loops between the passes for GPUs and the printer.
#pragma once

#include "llvm/ADT/StringRef.h"

namespace llmopt::cuda {

/// On an scf.for that may run a first turn although its bounds leave none: the turn does nothing
/// then.
inline constexpr llvm::StringLiteral kAtLeastOnceAttr = "tile.at_least_once";

} // namespace llmopt::cuda

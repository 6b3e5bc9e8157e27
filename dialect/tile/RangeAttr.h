// An attribute for what a number from memory can be.
#pragma once

#include "llvm/ADT/StringRef.h"

namespace llmopt::tile {

/// On an operation with one integer result, the least and the greatest value that it has, both
/// inclusive: array<i64: 0, 536870911>. Who writes the memory keeps to it: the planner refuses
/// batches beyond the limits of runtime/bundle/WorkItem.h.
inline constexpr llvm::StringLiteral kRangeAttr = "tile.range";

} // namespace llmopt::tile

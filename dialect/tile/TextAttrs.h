// Attributes for targets that print text: names that a reader knows instead of numbers.
#pragma once

#include "llvm/ADT/StringRef.h"

namespace llmopt::tile {

/// On a memref.load, or an operation on two numbers, the name of the constant that ends the index
/// or stands at the right, "work_item::kv_head".
inline constexpr llvm::StringLiteral kConstantAttr = "tile.constant";

/// On a kernel, a dictionary of integers with a meaning, {no_tile = 1099511627776}.
inline constexpr llvm::StringLiteral kConstantsAttr = "tile.constants";

} // namespace llmopt::tile

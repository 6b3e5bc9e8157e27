// A limit of nesting for IR text that comes from outside.
#pragma once

#include <optional>
#include <string_view>
#include <utility>

namespace llmopt {

/// MLIR's parser, verifier and printer recurse: a text of ten thousand opened brackets would end
/// the process for want of stack. Specs nest to ten levels.
inline constexpr size_t kMaxIrNesting = 256;

/// Line and column, from 1, where the text opens a bracket inside kMaxIrNesting others; nothing
/// where it never does, and in MLIR's bytecode. Wants no valid IR, so that it can be asked before
/// the text is parsed.
std::optional<std::pair<size_t, size_t>> irNestedTooDeep(std::string_view text);

} // namespace llmopt

// PTX text to the tree of Ast.h. Accepts the whole grammar of what NVRTC emits:
// module directives, variables with initialisers, functions and kernels with
// their performance directives, nested scopes, line tables (kept) and debug
// sections (skipped: they hold no code).
#pragma once

#include "runtime/base/Status.h"
#include "runtime/device/sim/ptx/Ast.h"

#include <string_view>

namespace llmopt::sim::ptx {

/// `name` stands in messages. InvalidArgument: "name:line: expected ...";
/// Unsupported: a directive that is not known.
runtime::StatusOr<Module> parse(std::string_view text, std::string_view name);

} // namespace llmopt::sim::ptx

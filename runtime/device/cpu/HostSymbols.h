// The host functions that a CPU kernel may call. A kernel is pure arithmetic:
// memory moves and mathematics is all it gets, so a bundle cannot reach the
// rest of the process by naming a symbol.
#pragma once

#include <functional>
#include <string_view>

namespace llmopt::runtime {

/// Address of an external symbol, or null when there is none.
using SymbolResolver = std::function<void *(std::string_view name)>;

/// Resolver over the fixed list in HostSymbols.cpp.
void *resolveHostSymbol(std::string_view name);

} // namespace llmopt::runtime

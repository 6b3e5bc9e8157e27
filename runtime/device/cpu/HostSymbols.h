// The host functions that a CPU kernel may call. A kernel is pure arithmetic:
// memory moves and mathematics is all it gets, so a bundle cannot reach the
// rest of the process by naming a symbol.
#pragma once

#include <functional>
#include <string_view>

namespace llmopt::runtime {

/// Address of an external symbol, or null when there is none.
using SymbolResolver = std::function<void *(std::string_view name)>;

/// Resolver over the functions of runtime/bundle/HostFunctions.h and memcpy, memmove,
/// memset and memcmp.
void *resolveHostSymbol(std::string_view name);

} // namespace llmopt::runtime

// The kernel cache of the command line.
#pragma once

#include "runtime/cache/KernelCache.h"

namespace llmopt::cli {

/// In the default folder (LLMOPT_CACHE_DIR, XDG_CACHE_HOME, ~/.cache), made when first used.
runtime::KernelCache &kernelCache();

} // namespace llmopt::cli

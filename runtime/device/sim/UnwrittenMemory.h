// Large memory in which every bit is set, NaN in each format, until it is written, and which takes
// none of the machine's until then: a pool of many GiB of which a kernel touches a few pages.
#pragma once

#include "runtime/base/Status.h"

#include <cstddef>

namespace llmopt::sim {

/// At a boundary of a page of memory. ResourceExhausted says what the system refused.
runtime::StatusOr<void *> mapUnwritten(size_t bytes);
void unmapUnwritten(void *memory, size_t bytes) noexcept;

} // namespace llmopt::sim

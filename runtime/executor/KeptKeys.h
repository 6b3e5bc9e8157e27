// Whether a kernel reads only keys that its layer group keeps. A group gives pages back once
// their keys lie behind its sink and before its window or chunk; a kernel whose mask reaches
// further would read whatever lies there now.
#pragma once

#include "runtime/executor/LayerKernels.h"
#include "runtime/plan/Plan.h"

#include <cstdint>

namespace llmopt::runtime {

/// The mask's MAY intervals, for a row of `queries` tokens at every place in a sequence of
/// `longest` tokens, against `GroupSpec::firstKey` of its oldest query: InvalidArgument where a
/// key between the sink and it may be seen. O(longest) for a group that gives pages back; of one
/// that keeps all every mask will do.
Status checkKeptKeys(const bundle::AttentionFacts &facts, const ScalarValues &scalars,
                     const kv::GroupSpec &group, uint32_t queries, uint32_t longest);

} // namespace llmopt::runtime

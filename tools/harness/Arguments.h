// Values for the operands of `args`, chosen by what masks and scores do with them.
#pragma once

#include "tools/harness/Generate.h"

namespace llmopt::harness {

/// Extents of the dimensions (batch, query head, query index, key) of a tensor argument.
struct ArgumentExtents {
  int64_t batch, heads, queries, keys;
};

/// Adds arg0 ... argN to the call.
llvm::Error addArguments(attn::AttentionOp op, const ArgumentExtents &extents, const Shape &shape,
                         Call &call);

/// Gives `userN`, the function's scalar arguments that regions read and args has not, a value where
/// the call has none; refuses numbers by names that the op does not know, and integers that are
/// none.
llvm::Error addNumbers(attn::AttentionOp op, const Shape &shape, Call &call);

} // namespace llmopt::harness

// Which functions are specs, and their ops: one rule for the compiler and for who checks it.
#pragma once

#include "dialect/attn/AttnDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace llmopt::attn {

/// The attn ops of a spec function: attention, with or without an append before it; or an
/// append; or a merge. Absent ones are null.
struct SpecOps {
  AppendOp append;
  AttentionOp attention;
  MergeOp merge;
};

/// Fails with a diagnostic at the op that is wrong. A spec is one block of attn ops, constants
/// for their regions, and a return of their results. As arrays and numbers of a call are known
/// by the operand that they are for, each operand is an argument of the function, and one of its
/// own; the cache of append and attention is the same. Arguments that no op reads are no part of
/// the call.
mlir::FailureOr<SpecOps> specOps(mlir::func::FuncOp function);

} // namespace llmopt::attn

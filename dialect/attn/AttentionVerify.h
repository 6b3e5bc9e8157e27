// Parts of attn.attention's verifier. Internal to the dialect.
#pragma once

#include "dialect/attn/AttnDialect.h"

namespace llmopt::attn {

/// Mask, scale, scores, sink, split, schedule, the args they name, and how many regions
/// they ask for. Operands and results are verified before.
mlir::LogicalResult verifyClauses(AttentionOp op);

} // namespace llmopt::attn

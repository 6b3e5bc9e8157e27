// Bounds of a custom mask region, read off its comparisons.
//
// Understood are and, or, xor, select and constants over i1, and comparisons whose two
// sides are sums of the query position i, the key position j and values that are the
// same for all rows (constants, captured integers that the context can name), with the
// key position counted once: `i - j < 128`, `j <= i`, `2 * i >= j + n`, unsigned
// comparisons as well; and comparisons of i / n with j / n, the same positive constant n
// on both sides. Everything else is unknown, which costs work and no correctness.
#pragma once

#include "dialect/attn/AttnEmit.h"

#include "mlir/IR/Region.h"

namespace llmopt::attn {

/// `region` is a verified mask region of attn.attention.
MaskBounds regionBounds(mlir::Region &region, const BoundContext &context);

} // namespace llmopt::attn

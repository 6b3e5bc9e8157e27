// Proofs of inequalities between bounds, for all values that a launch can have: lengths
// from 0 to 2^31, positions and numbers within +-2^31, queryLo <= queryHi. A proof that
// is not found means nothing.
#pragma once

#include "dialect/attn/mask/Bounds.h"

namespace llmopt::attn {

/// Is a <= b, always?
bool provablyLessEqual(const BoundExpr &a, const BoundExpr &b);

/// Does the value depend on which query rows are looked at?
bool dependsOnRows(const BoundExpr &expr);

/// Is `expr`, which names rows by `row` alone (QueryLo or QueryHi), known to grow with
/// the row or stay?
bool growsWithRow(const BoundExpr &expr, BoundSymbol row);

/// `expr` with `from` replaced.
BoundExpr substitute(const BoundExpr &expr, BoundSymbol from, const BoundExpr &to);

} // namespace llmopt::attn

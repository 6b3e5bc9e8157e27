// Scalar IR for mask predicates and score modifications. Positions and integer numbers
// are i32, scores f32, predicates i1. Internal to the dialect.
#pragma once

#include "dialect/attn/AttnEmit.h"

namespace llmopt::attn::emit {

mlir::Value i1(PairEmitter &e, bool value);
mlir::Value i32(PairEmitter &e, int32_t value);
mlir::Value f32(PairEmitter &e, float value);

mlir::Value subtract(PairEmitter &e, mlir::Value a, mlir::Value b);
mlir::Value maximum(PairEmitter &e, mlir::Value a, mlir::Value b);
/// Signed remainder, of the sign of a; b is not 0.
mlir::Value remainder(PairEmitter &e, mlir::Value a, mlir::Value b);

mlir::Value less(PairEmitter &e, mlir::Value a, mlir::Value b);
mlir::Value lessEqual(PairEmitter &e, mlir::Value a, mlir::Value b);
mlir::Value equal(PairEmitter &e, mlir::Value a, mlir::Value b);

mlir::Value both(PairEmitter &e, mlir::Value a, mlir::Value b);   ///< a and b, i1
mlir::Value either(PairEmitter &e, mlir::Value a, mlir::Value b); ///< a or b, i1
mlir::Value negate(PairEmitter &e, mlir::Value a);                ///< not a, i1

} // namespace llmopt::attn::emit

// The attn dialect's C++ face: types, attributes, interfaces and ops.
#pragma once

#include "dialect/attn/AttnEmit.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace llmopt::attn {

/// Largest head dimension of Q, K and V.
inline constexpr int64_t kMaxHeadDim = 576;
/// Largest length, position and integer number: what i32 holds.
inline constexpr int64_t kMaxLength = (int64_t(1) << 31) - 1;

/// f32, f16 or bf16.
inline bool isDataType(mlir::Type type) { return type.isF32() || type.isF16() || type.isBF16(); }

} // namespace llmopt::attn

#include "dialect/attn/AttnDialect.h.inc"
#include "dialect/attn/AttnEnums.h.inc"

#include "dialect/attn/AttnAttrInterfaces.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialect/attn/AttnAttrs.h.inc"

#define GET_TYPEDEF_CLASSES
#include "dialect/attn/AttnTypes.h.inc"

#define GET_OP_CLASSES
#include "dialect/attn/AttnOps.h.inc"

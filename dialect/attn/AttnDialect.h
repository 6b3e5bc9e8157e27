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

#include "dialect/attn/AttnDialect.h.inc"
#include "dialect/attn/AttnEnums.h.inc"

#include "dialect/attn/AttnAttrInterfaces.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialect/attn/AttnAttrs.h.inc"

#define GET_TYPEDEF_CLASSES
#include "dialect/attn/AttnTypes.h.inc"

#define GET_OP_CLASSES
#include "dialect/attn/AttnOps.h.inc"

// Registration and generated code of the ops.
#include "dialect/attn/AttnDialect.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace llmopt::attn;

#define GET_OP_CLASSES
#include "dialect/attn/AttnOps.cpp.inc"

void AttnDialect::registerOperations() {
  addOperations<
#define GET_OP_LIST
#include "dialect/attn/AttnOps.cpp.inc"
      >();
}

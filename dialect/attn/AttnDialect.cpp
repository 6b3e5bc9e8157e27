// Registration of the dialect; what it consists of is in the other files of the folder.
#include "dialect/attn/AttnDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace llmopt::attn;

#include "dialect/attn/AttnDialect.cpp.inc"

void AttnDialect::initialize() {
  registerAttributes();
  registerTypes();
  registerOperations();
}

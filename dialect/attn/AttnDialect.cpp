// Registration of the dialect; what it consists of is in the other files of the folder.
#include "dialect/attn/AttnDialect.h"

using namespace llmopt::attn;

#include "dialect/attn/AttnDialect.cpp.inc"

void AttnDialect::initialize() {
  registerAttributes();
  registerTypes();
  registerOperations();
}

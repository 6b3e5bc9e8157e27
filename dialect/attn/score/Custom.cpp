// score {...}: a region of the op.
#include "dialect/attn/AttnDialect.h"

using namespace mlir;
using namespace llmopt::attn;

void CustomScoreAttr::collectNumbers(SmallVectorImpl<NumberUse> &) const {}

Value CustomScoreAttr::emitScore(PairEmitter &e, Value score) const {
  return e.inlineRegion(getRegion(), score);
}

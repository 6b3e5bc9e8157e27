// Verifier of attn.attention's mask and score regions: scalar code that any target can
// vectorise, without effects.
#include "dialect/attn/AttnDialect.h"
#include "dialect/attn/RegionOps.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace llmopt::attn;

/// `region` takes `inputs`, yields one value of type `output` and computes on scalars.
static LogicalResult verifyBody(AttentionOp op, Region &region, const Twine &what, TypeRange inputs,
                                Type output) {
  Block &body = region.front();
  if (body.getArgumentTypes() != inputs)
    return op.emitOpError() << what << " must take (" << inputs << "), got ("
                            << body.getArgumentTypes() << ")";
  auto yield = dyn_cast<YieldOp>(body.back());
  if (!yield)
    return op.emitOpError() << what << " must end with attn.yield, got " << body.back().getName();
  if (yield.getValue().getType() != output)
    return yield.emitOpError() << "of " << what << " must yield " << output << ", got "
                               << yield.getValue().getType();
  for (Operation &inner : body.without_terminator())
    if (failed(verifyRegionOp(inner)))
      return failure();
  return success();
}

LogicalResult AttentionOp::verifyRegions() {
  Builder b(getContext());
  SmallVector<Type, 5> inputs(5, b.getIndexType());
  inputs[0] = b.getF32Type();
  unsigned maskRegions = getNumMaskRegions();
  for (auto [index, region] : llvm::enumerate(getBodies())) {
    bool isMask = index < maskRegions;
    LogicalResult verified =
        isMask ? verifyBody(*this, region, "mask region " + Twine(index),
                            ArrayRef<Type>(inputs).drop_front(), b.getI1Type())
               : verifyBody(*this, region, "score region " + Twine(index - maskRegions), inputs,
                            b.getF32Type());
    if (failed(verified))
      return failure();
  }
  return success();
}

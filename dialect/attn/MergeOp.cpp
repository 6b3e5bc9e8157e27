// attn.merge: partial results over disjoint keys into one.
#include "dialect/attn/AttnDialect.h"

using namespace mlir;
using namespace llmopt::attn;

/// Equal extents, where both are static.
static bool compatible(ArrayRef<int64_t> a, ArrayRef<int64_t> b) {
  return a.size() == b.size() && llvm::all_of(llvm::zip(a, b), [](auto pair) {
           auto [x, y] = pair;
           return ShapedType::isDynamic(x) || ShapedType::isDynamic(y) || x == y;
         });
}

LogicalResult MergeOp::verify() {
  RankedTensorType partials = getPartials().getType(), lses = getLses().getType(),
                   output = getOutput().getType();
  ArrayRef<int64_t> shape = partials.getShape();
  if (shape.size() != 4 || !partials.getElementType().isF32())
    return emitOpError() << "partials must be an f32 tensor (N, T, H, Dv), got " << partials;
  if (ShapedType::isDynamic(shape[2]) || shape[2] < 1)
    return emitOpError() << "partials must have a static number of heads, 1 or more, got "
                         << partials;
  if (ShapedType::isDynamic(shape[3]) || shape[3] < 1 || shape[3] > kMaxHeadDim)
    return emitOpError() << "partials must have a static head dimension of 1 to " << kMaxHeadDim
                         << ", got " << partials;
  if (!lses.getElementType().isF32() || !compatible(lses.getShape(), shape.drop_back()))
    return emitOpError() << "lses must be "
                         << RankedTensorType::get(shape.drop_back(), partials.getElementType())
                         << " for partials " << partials << ", got " << lses;
  if (!isDataType(output.getElementType()))
    return emitOpError() << "output elements must be f32, f16 or bf16, got "
                         << output.getElementType();
  if (!compatible(output.getShape(), shape.drop_front()))
    return emitOpError() << "output must be "
                         << RankedTensorType::get(shape.drop_front(), output.getElementType())
                         << " for partials " << partials << ", got " << output;
  if (!getLse())
    return success();
  auto lse = cast<RankedTensorType>(getLse().getType());
  ArrayRef<int64_t> lseShape = shape.drop_front().drop_back();
  if (!lse.getElementType().isF32() || !compatible(lse.getShape(), lseShape))
    return emitOpError() << "lse must be "
                         << RankedTensorType::get(lseShape, partials.getElementType())
                         << " for partials " << partials << ", got " << lse;
  return success();
}

// attn.append: new K and V rows into a paged cache.
#include "dialect/attn/AttnDialect.h"

using namespace mlir;
using namespace llmopt::attn;

/// `type` is a tensor (T, heads, dim) of the cache's elements; `what` names it.
static LogicalResult verifyRows(AppendOp op, StringRef what, RankedTensorType type, int64_t dim) {
  KvCacheType cache = op.getCache().getType();
  bool fits = type.getRank() == 3 && type.getDimSize(1) == cache.getKvHeads() &&
              type.getDimSize(2) == dim && type.getElementType() == cache.getElementType() &&
              !type.getEncoding();
  if (fits)
    return success();
  auto wanted = RankedTensorType::get({ShapedType::kDynamic, cache.getKvHeads(), dim},
                                      cache.getElementType());
  return op.emitOpError() << what << " must be " << wanted << " for this cache, got " << type;
}

LogicalResult AppendOp::verify() {
  KvCacheType cache = getCache().getType();
  RankedTensorType keys = getKeys().getType(), values = getValues().getType(),
                   slots = getSlots().getType();
  if (failed(verifyRows(*this, "keys", keys, cache.getHeadDim())) ||
      failed(verifyRows(*this, "values", values, cache.getVDim())))
    return failure();
  if (slots.getRank() != 1 || !slots.getElementType().isSignlessInteger(64) || slots.getEncoding())
    return emitOpError() << "slots must be tensor<?xi64>, got " << slots;
  std::array<int64_t, 3> rows = {keys.getDimSize(0), values.getDimSize(0), slots.getDimSize(0)};
  int64_t known = ShapedType::kDynamic;
  for (int64_t count : rows) {
    if (ShapedType::isDynamic(count))
      continue;
    if (!ShapedType::isDynamic(known) && known != count)
      return emitOpError() << "keys, values and slots must have equally many rows, got " << keys
                           << ", " << values << " and " << slots;
    known = count;
  }
  return success();
}

void AppendOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  effects.emplace_back(MemoryEffects::Write::get(), &getCacheMutable());
}

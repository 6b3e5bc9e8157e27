// Verifier of attn.attention: operands and results here, clauses and their operands in
// AttentionClauses.cpp, regions in AttentionRegions.cpp.
#include "dialect/attn/AttentionVerify.h"

using namespace mlir;
using namespace llmopt::attn;

/// Both static and different.
static bool differ(int64_t a, int64_t b) {
  return !ShapedType::isDynamic(a) && !ShapedType::isDynamic(b) && a != b;
}

static int64_t heads(RankedTensorType type) { return type.getDimSize(type.getRank() - 2); }
static int64_t dim(RankedTensorType type) { return type.getShape().back(); }

/// `type` is a tensor (.., heads, dim) of rank 3 or 4 with static, legal heads and dim.
static LogicalResult verifyHeadsAndDim(AttentionOp op, StringRef what, RankedTensorType type) {
  if (type.getEncoding())
    return op.emitOpError() << what << " must have no encoding, got " << type;
  if (ShapedType::isDynamic(heads(type)) || ShapedType::isDynamic(dim(type)))
    return op.emitOpError() << what << " must have static heads and head dimension, got " << type;
  if (heads(type) < 1)
    return op.emitOpError() << what << " must have 1 head or more, got " << type;
  if (dim(type) < 1 || dim(type) > kMaxHeadDim)
    return op.emitOpError() << "head dimension of " << what << " must be 1 to " << kMaxHeadDim
                            << ", got " << dim(type);
  return success();
}

static LogicalResult verifyQuery(AttentionOp op) {
  Type given = op.getQuery().getType();
  auto type = dyn_cast<RankedTensorType>(given);
  if (!type || (type.getRank() != 3 && type.getRank() != 4))
    return op.emitOpError() << "query must be a tensor (B, Lq, H, D) or (T, H, D), got " << given;
  if (!isDataType(type.getElementType()))
    return op.emitOpError() << "query elements must be f32, f16 or bf16, got "
                            << type.getElementType();
  return verifyHeadsAndDim(op, "query", type);
}

static LogicalResult verifyElements(AttentionOp op, StringRef what, Type given) {
  Type wanted = op.getElementType();
  if (given == wanted)
    return success();
  return op.emitOpError() << what << " elements must be " << wanted << " like the query's, got "
                          << given;
}

static LogicalResult verifyKey(AttentionOp op) {
  Type given = op.getKey().getType();
  int64_t keyDim;
  if (KvCacheType cache = op.getCacheType()) {
    if (failed(verifyElements(op, "cache", cache.getElementType())))
      return failure();
    keyDim = cache.getHeadDim();
  } else {
    auto type = dyn_cast<RankedTensorType>(given);
    if (!type || (type.getRank() != 3 && type.getRank() != 4))
      return op.emitOpError()
             << "key must be a tensor (B, Lkv, Hkv, D) or (T, Hkv, D), or a kv_cache, got "
             << given;
    if (failed(verifyElements(op, "key", type.getElementType())) ||
        failed(verifyHeadsAndDim(op, "key", type)))
      return failure();
    RankedTensorType query = op.getQueryType();
    if (type.getRank() == 4 && query.getRank() == 4 &&
        differ(query.getDimSize(0), type.getDimSize(0)))
      return op.emitOpError() << "key must have the query's batch extent " << query.getDimSize(0)
                              << ", got " << type.getDimSize(0);
    keyDim = dim(type);
  }
  if (keyDim != op.getQkDim())
    return op.emitOpError() << "key must have the query's head dimension " << op.getQkDim()
                            << ", got " << keyDim;
  if (op.getQueryHeads() % op.getKvHeads() != 0)
    return op.emitOpError() << "query heads must be a multiple of the KV heads, got "
                            << op.getQueryHeads() << " and " << op.getKvHeads();
  return success();
}

static LogicalResult verifyValue(AttentionOp op) {
  Value value = op.getValue();
  if (op.isPaged()) {
    if (value)
      return op.emitOpError() << "a kv_cache holds the values: no value operand, got "
                              << value.getType();
    return success();
  }
  if (!value)
    return op.emitOpError() << "a key tensor needs a value operand after it";
  auto key = cast<RankedTensorType>(op.getKey().getType());
  auto type = dyn_cast<RankedTensorType>(value.getType());
  if (!type || type.getRank() != key.getRank())
    return op.emitOpError() << "value must be a tensor of the key's rank " << key.getRank()
                            << ", got " << value.getType();
  if (failed(verifyElements(op, "value", type.getElementType())) ||
      failed(verifyHeadsAndDim(op, "value", type)))
    return failure();
  for (int64_t axis = 0; axis + 1 < key.getRank(); ++axis)
    if (differ(key.getDimSize(axis), type.getDimSize(axis)))
      return op.emitOpError() << "value must have the key's extent " << key.getDimSize(axis)
                              << " in dimension " << axis << ", got " << type.getDimSize(axis);
  return success();
}

static LogicalResult verifySequences(AttentionOp op) {
  if (op.getSequences())
    return success();
  if (op.isPaged())
    return op.emitOpError() << "a kv_cache needs a !attn.sequences operand";
  if (op.isRaggedQuery() || op.isRaggedKv())
    return op.emitOpError() << "a ragged " << (op.isRaggedQuery() ? "query" : "key")
                            << " needs a !attn.sequences operand";
  return success();
}

static LogicalResult verifyResults(AttentionOp op) {
  RankedTensorType query = op.getQueryType();
  SmallVector<int64_t, 4> shape(query.getShape());
  shape.back() = op.getVDim();
  auto output = RankedTensorType::get(shape, query.getElementType());
  if (op.getOutput().getType() != output)
    return op.emitOpError() << "output must be " << output << ", got " << op.getOutput().getType();
  if (!op.getLse())
    return success();
  auto lse = RankedTensorType::get(query.getShape().drop_back(), Float32Type::get(op.getContext()));
  if (op.getLse().getType() != lse)
    return op.emitOpError() << "lse must be " << lse << ", got " << op.getLse().getType();
  return success();
}

LogicalResult AttentionOp::verify() {
  return failure(failed(verifyQuery(*this)) || failed(verifyKey(*this)) ||
                 failed(verifyValue(*this)) || failed(verifySequences(*this)) ||
                 failed(verifyResults(*this)) || failed(verifyClauses(*this)));
}

// Fits a shape to what the types of a spec fix.
#include "dialect/reference/Context.h"
#include "tools/harness/Generate.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>

namespace llmopt::harness {

namespace {

using reference::error;

mlir::RankedTensorType tensorOf(mlir::Value value) {
  return llvm::dyn_cast<mlir::RankedTensorType>(value.getType());
}

void take(int64_t &wanted, int64_t fixed) {
  if (!mlir::ShapedType::isDynamic(fixed))
    wanted = fixed;
}

/// As many sequences as `count`: the given ones over again, or the first of them.
void resize(Shape &shape, int64_t count) {
  for (std::vector<int64_t> *lengths : {&shape.queryLengths, &shape.keyLengths}) {
    std::vector<int64_t> given = *lengths;
    lengths->clear();
    for (int64_t b = 0; b < count; ++b)
      lengths->push_back(given[size_t(b) % given.size()]);
  }
}

/// Lengths that add up to `total`: cut where they exceed it, the rest to the last.
void distribute(std::vector<int64_t> &lengths, int64_t total) {
  for (int64_t &length : lengths) {
    length = std::min(length, total);
    total -= length;
  }
  lengths.back() += total;
}

void fitQuery(attn::AttentionOp op, Shape &shape) {
  mlir::RankedTensorType type = op.getQueryType();
  if (op.isRaggedQuery()) {
    if (!type.isDynamicDim(0)) {
      shape.paddedTokens = 0;
      distribute(shape.queryLengths, type.getDimSize(0));
    }
    return;
  }
  int64_t length = *llvm::max_element(shape.queryLengths);
  take(length, type.getDimSize(1));
  shape.queryLengths.assign(shape.queryLengths.size(), length);
}

void fitKeys(attn::AttentionOp op, Shape &shape) {
  mlir::RankedTensorType type = tensorOf(op.getKey());
  if (op.isPaged())
    return;
  if (op.isRaggedKv()) {
    if (!type.isDynamicDim(0))
      distribute(shape.keyLengths, type.getDimSize(0));
    return;
  }
  int64_t most = *llvm::max_element(shape.keyLengths);
  if (!type.isDynamicDim(1))
    most = type.getDimSize(1);
  for (int64_t &length : shape.keyLengths)
    length = op.getSequences() ? std::min(length, most) : most;
}

/// Whether arrays have room for the lengths: asked before they are added up and multiplied.
llvm::Error checkSize(const Spec &spec, const Shape &shape) {
  constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();
  constexpr double kMostElements = 0x1p40;
  double queries = 0, keys = 0;
  for (size_t b = 0; b < shape.queryLengths.size(); ++b) {
    int64_t query = shape.queryLengths[b], key = shape.keyLengths[b];
    if (std::min(query, key) < 0 || std::max(query, key) > kMostTokens)
      return error(fmt::format("a sequence of {} queries and {} keys; 0 to {} are allowed", query,
                               key, kMostTokens));
    queries += double(query);
    keys += double(key);
  }
  double elements = (queries * double(shape.heads) + keys * double(shape.kvHeads)) *
                    (double(shape.qkDim) + double(shape.vDim)) *
                    (spec.merge ? double(shape.partials) : 1);
  if (elements > kMostElements)
    return error(fmt::format("Q, K, V and O of {} queries and {} keys have {:.2g} elements; up to "
                             "{:.2g} are allowed; make the sequences shorter",
                             queries, keys, elements, kMostElements));
  return llvm::Error::success();
}

/// As many sequences as a type says.
llvm::Error fitBatch(Shape &shape, int64_t count) {
  constexpr int64_t kMostSequences = 1 << 20;
  if (count > kMostSequences)
    return error(
        fmt::format("the spec has {} sequences; up to {} can be made", count, kMostSequences));
  if (!mlir::ShapedType::isDynamic(count))
    resize(shape, count);
  return llvm::Error::success();
}

} // namespace

llvm::Expected<Shape> fit(const Spec &spec, Shape shape) {
  if (shape.queryLengths.empty() || shape.queryLengths.size() != shape.keyLengths.size())
    return error("a shape needs one query length and one key length for each of its sequences");
  attn::AttentionOp op = spec.attention;
  if (attn::KvCacheType cache = spec.cache()) {
    shape.kvHeads = cache.getKvHeads();
    shape.qkDim = cache.getHeadDim();
    shape.vDim = cache.getVDim();
  }
  if (attn::MergeOp merge = spec.merge) {
    auto partials = llvm::cast<mlir::RankedTensorType>(merge.getPartials().getType());
    take(shape.partials, partials.getDimSize(0));
    if (!partials.isDynamicDim(1))
      distribute(shape.queryLengths, partials.getDimSize(1));
    take(shape.heads, partials.getDimSize(2));
    take(shape.vDim, partials.getDimSize(3));
  }
  if (!op) {
    if (llvm::Error failure = checkSize(spec, shape))
      return failure;
    return shape;
  }
  // Extents of the batch come first: they change the number of sequences.
  mlir::RankedTensorType query = op.getQueryType();
  if (!op.isRaggedQuery())
    if (llvm::Error failure = fitBatch(shape, query.getDimSize(0)))
      return failure;
  if (!op.isPaged() && !op.isRaggedKv())
    if (llvm::Error failure = fitBatch(shape, tensorOf(op.getKey()).getDimSize(0)))
      return failure;
  take(shape.heads, query.getDimSize(unsigned(query.getRank() - 2)));
  take(shape.qkDim, query.getDimSize(unsigned(query.getRank() - 1)));
  if (!op.isPaged()) {
    mlir::RankedTensorType key = tensorOf(op.getKey()), value = tensorOf(op.getValue());
    take(shape.kvHeads, key.getDimSize(unsigned(key.getRank() - 2)));
    take(shape.vDim, value.getDimSize(unsigned(value.getRank() - 1)));
  }
  fitQuery(op, shape);
  fitKeys(op, shape);
  if (llvm::Error failure = checkSize(spec, shape))
    return failure;
  return shape;
}

} // namespace llmopt::harness

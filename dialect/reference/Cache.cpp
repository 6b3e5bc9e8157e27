#include "dialect/reference/Cache.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace llmopt::reference {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// One row: partials n = 0 .. N-1 with outputs (N, T, H, Dv) and LSEs (N, T, H).
RowResult mergeRow(const Array &partials, const Array &lses, ElementType type, int64_t token, int64_t head, Mode mode) {
  int64_t count = partials.shape[0], dim = partials.shape[3];
  RowResult result;
  result.output.assign(size_t(dim), 0);
  result.lse = -kInfinity;
  double m = -kInfinity, sum = 0;
  int64_t last = 0;
  for (int64_t n = 0; n < count; ++n) {
    double lse = lses.at({n, token, head});
    if (lse == -kInfinity)
      continue;
    ++result.visible;
    last = n;
    m = lse > m || std::isnan(lse) ? lse : m;
  }
  std::vector<double> absolutes(size_t(dim), 0), errors(size_t(dim), 0);
  for (int64_t n = 0; n < count; ++n) {
    double lse = lses.at({n, token, head});
    if (lse == -kInfinity)
      continue;
    double weight = std::exp(lse - m);
    sum += weight;
    for (int64_t c = 0; c < dim; ++c) {
      double part = weight * partials.at({n, token, head, c});
      result.output[size_t(c)] += part;
      absolutes[size_t(c)] += std::fabs(part);
      // lse - m is rounded to float32: the weight is off by that much.
      errors[size_t(c)] += std::ldexp(2 * std::fabs(lse - m), -24) * std::fabs(part);
    }
  }
  if (result.visible == 1) { // comes back bit for bit
    result.exactBits = true;
    result.lse = lses.at({last, token, head});
    for (int64_t c = 0; c < dim; ++c)
      result.output[size_t(c)] = partials.at({last, token, head, c});
  } else if (result.visible > 1) {
    result.lse = m + std::log(sum);
    for (double &o : result.output)
      o /= sum;
  }
  for (int64_t c = 0; c < dim && result.visible; ++c) {
    result.absSum = std::fmax(result.absSum, absolutes[size_t(c)] / sum);
    result.maxOutput = std::fmax(result.maxOutput, std::fabs(result.output[size_t(c)]));
    result.scoreError = std::fmax(result.scoreError, errors[size_t(c)] / sum);
  }
  if (mode == Mode::Rounded)
    for (double o : result.output)
      result.rounded.push_back(roundTo(type, o));
  return result;
}

/// The half of an interleaved pool, or the pool as it is: (pages, ...) without the 2.
struct Destination {
  Array pool;
  int64_t base = 0; ///< offset in elements
};

llvm::Expected<Destination> destination(attn::KvCacheType cache, const Inputs &inputs, bool value) {
  bool interleaved = cache.getInterleaved();
  const char *name = interleaved ? "kv_pool" : value ? "v_pool" : "k_pool";
  const Array *pool = inputs.find(name);
  if (!pool)
    return error(llvm::Twine("array '") + name + "' is not bound");
  Destination result{*pool, 0};
  if (interleaved) {
    result.base = value ? pool->strides[1] : 0;
    result.pool.shape.erase(result.pool.shape.begin() + 1);
    result.pool.strides.erase(result.pool.strides.begin() + 1);
  }
  return result;
}

void copyRow(const Array &from, const Destination &to, bool headMajor, int64_t row, int64_t head, int64_t page,
             int64_t place) {
  int64_t source = from.offset({row, head});
  int64_t target = to.base + (headMajor ? to.pool.offset({page, head, place}) : to.pool.offset({page, place, head}));
  size_t size = sizeOf(from.type);
  for (int64_t c = 0; c < from.shape[2]; ++c)
    std::memcpy(static_cast<char *>(to.pool.data) + size_t(target + c * to.pool.strides.back()) * size,
                static_cast<const char *>(from.data) + size_t(source + c * from.strides[2]) * size, size);
}

} // namespace

llvm::Expected<std::vector<RowResult>> evaluate(attn::MergeOp op, const Inputs &inputs, llvm::ArrayRef<Row> rows,
                                                Mode mode) {
  const Array *partials = inputs.find("partials"), *lses = inputs.find("partial_lse");
  if (!partials || !lses)
    return error("arrays 'partials' and 'partial_lse' are not bound");
  std::optional<ElementType> type =
      elementTypeOf(llvm::cast<mlir::RankedTensorType>(op.getOutput().getType()).getElementType());
  if (!type)
    return error("the oracle does not know the element type of the merge's output");
  std::vector<RowResult> results;
  for (const Row &row : rows)
    results.push_back(mergeRow(*partials, *lses, *type, row.batch, row.head, mode));
  return results;
}

llvm::Error execute(attn::AppendOp op, const Inputs &inputs) {
  attn::KvCacheType cache = op.getCache().getType();
  const Array *keys = inputs.find("new_k"), *values = inputs.find("new_v"), *slots = inputs.find("slots");
  if (!keys || !values || !slots)
    return error("arrays 'new_k', 'new_v' and 'slots' are not bound");
  llvm::Expected<Destination> k = destination(cache, inputs, false), v = destination(cache, inputs, true);
  if (!k || !v)
    return llvm::joinErrors(k.takeError(), v.takeError());
  int64_t page = cache.getPageSize(), pages = k->pool.shape[0];
  for (int64_t t = 0; t < slots->shape[0]; ++t)
    if (int64_t slot = int64_t(slots->at({t})); slot >= pages * page)
      return error("slot " + llvm::Twine(slot) + " of row " + llvm::Twine(t) + " lies beyond the " +
                   llvm::Twine(pages * page) + " slots of the pool");
  for (int64_t t = 0; t < slots->shape[0]; ++t) {
    int64_t slot = int64_t(slots->at({t}));
    for (int64_t h = 0; slot >= 0 && h < cache.getKvHeads(); ++h) {
      copyRow(*keys, *k, cache.getHeadMajor(), t, h, slot / page, slot % page);
      copyRow(*values, *v, cache.getHeadMajor(), t, h, slot / page, slot % page);
    }
  }
  return llvm::Error::success();
}

} // namespace llmopt::reference

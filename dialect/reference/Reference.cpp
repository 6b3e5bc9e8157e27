#include "dialect/reference/Reference.h"

#include "dialect/reference/Layout.h"
#include "dialect/reference/Masks.h"

#include <cmath>
#include <limits>
#include <numeric>

namespace llmopt::reference {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kUnit = std::ldexp(1.0, -24); ///< relative error of a float32 rounding

/// Up to here a float32 score can be taken in units of log 2: Tolerance.h.
const double kSafeScore = std::numeric_limits<float>::max() * std::log(2.0);

struct Dot {
  double sum = 0, absolute = 0;
};

Dot dot(const std::vector<float> &a, const float *b) {
  constexpr size_t lanes = 8; // independent sums, so that the compiler may vectorise
  double sums[lanes] = {}, absolutes[lanes] = {};
  size_t c = 0;
  for (; c + lanes <= a.size(); c += lanes)
    for (size_t l = 0; l < lanes; ++l) {
      double product = double(a[c + l]) * double(b[c + l]);
      sums[l] += product;
      absolutes[l] += std::fabs(product);
    }
  Dot result;
  for (; c < a.size(); ++c) {
    result.sum += double(a[c]) * double(b[c]);
    result.absolute += std::fabs(double(a[c]) * double(b[c]));
  }
  for (size_t l = 0; l < lanes; ++l) {
    result.sum += sums[l];
    result.absolute += absolutes[l];
  }
  return result;
}

/// K and V of one sequence and KV head as floats, each row read when first asked for.
class KeyRows {
public:
  KeyRows(const Layout &layout, int64_t batch, int64_t kvHead)
      : layout(layout), batch(batch), kvHead(kvHead), keys(size_t(layout.keyLength(batch))),
        values(keys.size()) {}

  llvm::Expected<const float *> key(int64_t j) {
    if (keys[size_t(j)].empty())
      if (llvm::Error failure = layout.readKey(batch, kvHead, j, keys[size_t(j)]))
        return failure;
    return keys[size_t(j)].data();
  }
  llvm::Expected<const float *> value(int64_t j) {
    if (values[size_t(j)].empty())
      if (llvm::Error failure = layout.readValue(batch, kvHead, j, values[size_t(j)]))
        return failure;
    return values[size_t(j)].data();
  }

private:
  const Layout &layout;
  int64_t batch, kvHead;
  std::vector<std::vector<float>> keys, values;
};

/// A key that counts for the row.
struct Seen {
  const float *value;
  double score;      ///< exact, after the modifications
  double rounded;    ///< in float32
  double errorBound; ///< of a float32 score: Tolerance.h
};

/// An op ready for evaluation.
struct Evaluator {
  Context context;
  Layout layout;
  Predicate mask;
  ScoreFunction modify; ///< null: no modification
  Number scale;
  std::optional<Number> sink;
  std::optional<Array> tree; ///< a set for each query

  static llvm::Expected<Evaluator> create(attn::AttentionOp op, const Inputs &inputs);
  Pair pairOf(const Row &row) const;
  void moveToKey(Pair &pair, int64_t index) const;
  llvm::Expected<RowResult> evaluateRow(const Row &row, KeyRows &rows, Mode mode) const;

private:
  llvm::Expected<std::vector<Seen>> seenBy(const Row &row, KeyRows &rows, Mode mode,
                                           RowResult &result) const;
  Seen modified(double dotProduct, double absolute, const Pair &pair, Mode mode,
                RowResult &result) const;
  void finishExact(const std::vector<Seen> &seen, int64_t head, Mode mode, RowResult &result) const;
  void finishRounded(const std::vector<Seen> &seen, int64_t head, RowResult &result) const;
};

llvm::Expected<Evaluator> Evaluator::create(attn::AttentionOp op, const Inputs &inputs) {
  Context context{op, inputs};
  llvm::Expected<Layout> layout = Layout::create(context);
  if (!layout)
    return layout.takeError();
  llvm::Expected<Predicate> mask = compileMask(op.getMaskAttr(), context);
  if (!mask)
    return mask.takeError();
  llvm::Expected<ScoreFunction> modify = compileScores(context);
  if (!modify)
    return modify.takeError();
  llvm::Expected<Number> scale = context.number(mlir::Attribute(), 0, op.getScaleOrDefault());
  if (!scale)
    return scale.takeError();
  Evaluator evaluator{context, *layout, *mask, *modify, *scale, std::nullopt, std::nullopt};
  if (attn::ArgAttr sink = op.getSinkAttr()) {
    llvm::Expected<Number> logits = context.number(mlir::Attribute(), 0, sink);
    if (!logits)
      return logits.takeError();
    evaluator.sink = *logits;
  }
  if (attn::TreeAttr tree = attn::treeOf(op.getMaskAttr())) {
    llvm::Expected<Array> sets = context.argument(tree.getArg());
    if (!sets)
      return sets.takeError();
    evaluator.tree = *sets;
  }
  return evaluator;
}

/// Position of the sequence's query k (or of its key) for a query with `set`: base + (queries
/// before k that are in the set; from the 64th on all are).
static int64_t treePosition(uint64_t set, int64_t base, int64_t k) {
  int64_t members = 0;
  for (int64_t before = 0; before < k; ++before)
    members += before >= 64 || (set >> before & 1);
  return base + members;
}

Pair Evaluator::pairOf(const Row &row) const {
  Pair pair;
  pair.batch = row.batch;
  pair.head = row.head;
  pair.queryIndex = row.query;
  pair.queryLength = layout.queryLength(row.batch);
  pair.keyLength = layout.keyLength(row.batch);
  pair.queryPosition = row.query + (pair.keyLength - pair.queryLength);
  if (tree) {
    pair.treeSet = uint64_t(
        tree->wordAt(llvm::ArrayRef(layout.rowIndex(row.batch, row.query, 0)).drop_back()));
    pair.queryPosition = treePosition(pair.treeSet, pair.keyLength - pair.queryLength, row.query);
  }
  return pair;
}

void Evaluator::moveToKey(Pair &pair, int64_t index) const {
  int64_t base = pair.keyLength - pair.queryLength;
  pair.keyIndex = index;
  pair.key = tree && index > base ? treePosition(pair.treeSet, base, index - base) : index;
}

Seen Evaluator::modified(double dotProduct, double absolute, const Pair &pair, Mode mode,
                         RowResult &result) const {
  double factor = scale.of(pair.head);
  Seen seen{nullptr, factor * dotProduct, 0, 0};
  double exact = seen.score;
  if (modify)
    seen.score = modify(exact, pair, Mode::Exact);
  if (mode == Mode::Exact)
    return seen;
  seen.rounded = float(factor * float(dotProduct));
  seen.errorBound = (std::sqrt(double(layout.qkDim())) + 8) * kUnit * std::fabs(factor) * absolute;
  if (!modify)
    return seen;
  double above = modify(exact + seen.errorBound, pair, Mode::Exact);
  double below = modify(exact - seen.errorBound, pair, Mode::Exact);
  seen.rounded = modify(seen.rounded, pair, Mode::Rounded);
  bool hidden = seen.score == -kInfinity;
  for (double other : {above, below, seen.rounded}) {
    if ((other == -kInfinity) != hidden) // the rounding decides whether the key counts
      result.scoreError = result.lseScoreError = kInfinity;
    result.mayOverflow |= (other == kInfinity) != (seen.score == kInfinity);
  }
  result.mayOverflow |= !std::isinf(seen.score) && std::fabs(seen.score) > kSafeScore;
  if (result.mayOverflow)
    result.scoreError = result.lseScoreError = kInfinity;
  if (!hidden)
    seen.errorBound = std::fmax(std::fabs(above - seen.score), std::fabs(below - seen.score)) +
                      4 * std::fabs(seen.rounded - seen.score) + 4 * kUnit * std::fabs(seen.score);
  return seen;
}

llvm::Expected<std::vector<Seen>> Evaluator::seenBy(const Row &row, KeyRows &rows, Mode mode,
                                                    RowResult &result) const {
  std::vector<Seen> all;
  std::vector<float> q = layout.queryRow(row.batch, row.query, row.head);
  Pair pair = pairOf(row);
  for (int64_t j = 0; j < pair.keyLength; ++j) {
    moveToKey(pair, j);
    if (!mask(pair))
      continue;
    llvm::Expected<const float *> k = rows.key(j);
    if (!k)
      return k.takeError();
    Dot product = dot(q, *k);
    Seen seen = modified(product.sum, product.absolute, pair, mode, result);
    if (seen.score == -kInfinity)
      continue;
    llvm::Expected<const float *> v = rows.value(j);
    if (!v)
      return v.takeError();
    seen.value = *v;
    all.push_back(seen);
  }
  return all;
}

/// Largest score, or NaN if there is one.
template <typename Score> double largest(const std::vector<Seen> &seen, Score score) {
  double m = -kInfinity;
  for (const Seen &s : seen)
    m = score(s) > m || std::isnan(score(s)) ? score(s) : m;
  return m;
}

void Evaluator::finishExact(const std::vector<Seen> &seen, int64_t head, Mode mode,
                            RowResult &result) const {
  size_t dim = size_t(layout.vDim());
  double m = largest(seen, [](const Seen &s) { return s.score; });
  std::vector<double> absolutes(dim), squares(dim), errors(dim);
  double sum = 0, lseError = 0, worst = 0;
  for (const Seen &s : seen) {
    double p = std::exp(s.score - m);
    sum += p;
    lseError += p * std::expm1(s.errorBound);
    worst = std::fmax(worst, s.errorBound);
    for (size_t c = 0; c < dim; ++c) {
      double part = p * double(s.value[c]);
      result.output[c] += part;
      absolutes[c] += std::fabs(part);
      squares[c] += part * part;
    }
  }
  result.lse = m + std::log(sum);
  result.lseScoreError = std::fmax(result.lseScoreError, lseError / sum);
  double sinkPart = sink ? std::exp(sink->of(head) - m) : 0;
  double denominator = sum + sinkPart;
  double rounding =
      layout.elementType() == ElementType::F32 ? 0 : unitRoundoff(layout.elementType());
  for (size_t c = 0; c < dim; ++c) {
    result.output[c] /= denominator;
    result.absSum = std::fmax(result.absSum, absolutes[c] / denominator);
    result.maxOutput = std::fmax(result.maxOutput, std::fabs(result.output[c]));
    result.roundingError =
        std::fmax(result.roundingError, rounding * std::sqrt(squares[c]) / denominator);
  }
  if (mode == Mode::Exact)
    return;
  // How far errors of the scores move the output: Tolerance.h. The sink is a key whose
  // value is 0 and whose score is off by its rounding.
  double spread = 0;
  for (const Seen &s : seen) {
    double weight = std::exp(s.score - m) / denominator * std::expm1(s.errorBound);
    for (size_t c = 0; c < dim; ++c) {
      double distance = std::fabs(double(s.value[c]) - result.output[c]);
      errors[c] += weight * distance;
      spread = std::fmax(spread, distance);
    }
  }
  for (size_t c = 0; c < dim; ++c) {
    double sinkError = sink ? 2 * kUnit * std::fabs(sink->of(head)) * sinkPart / denominator : 0;
    double error = (errors[c] + sinkError * std::fabs(result.output[c])) * std::exp(worst);
    double most = sink ? spread + result.maxOutput : spread;
    result.scoreError = std::fmax(result.scoreError, std::fmin(error, most));
  }
}

void Evaluator::finishRounded(const std::vector<Seen> &seen, int64_t head,
                              RowResult &result) const {
  size_t dim = size_t(layout.vDim());
  ElementType type = layout.elementType();
  double m = largest(seen, [](const Seen &s) { return s.rounded; }), sum = 0;
  for (const Seen &s : seen) {
    double p = float(std::exp(s.rounded - m));
    sum += p;
    if (type != ElementType::F32)
      p = roundTo(type, p);
    for (size_t c = 0; c < dim; ++c)
      result.rounded[c] += p * double(s.value[c]);
  }
  if (sink)
    sum += std::exp(sink->of(head) - m);
  for (double &o : result.rounded)
    o = roundTo(type, o / sum);
}

llvm::Expected<RowResult> Evaluator::evaluateRow(const Row &row, KeyRows &rows, Mode mode) const {
  RowResult result;
  result.output.assign(size_t(layout.vDim()), 0);
  result.lse = -kInfinity;
  if (mode == Mode::Rounded)
    result.rounded = result.output;
  llvm::Expected<std::vector<Seen>> seen = seenBy(row, rows, mode, result);
  if (!seen)
    return seen.takeError();
  result.visible = int64_t(seen->size());
  if (seen->empty())
    return result;
  finishExact(*seen, row.head, mode, result);
  if (mode == Mode::Rounded)
    finishRounded(*seen, row.head, result);
  return result;
}

} // namespace

llvm::Expected<Lengths> lengthsOf(attn::AttentionOp op, const Inputs &inputs) {
  llvm::Expected<Layout> layout = Layout::create(Context{op, inputs});
  if (!layout)
    return layout.takeError();
  Lengths lengths;
  lengths.heads = layout->queryHeads();
  for (int64_t b = 0; b < layout->sequences(); ++b) {
    lengths.queries.push_back(layout->queryLength(b));
    lengths.keys.push_back(layout->keyLength(b));
  }
  return lengths;
}

llvm::Expected<std::vector<RowResult>> evaluate(attn::AttentionOp op, const Inputs &inputs,
                                                llvm::ArrayRef<Row> rows, Mode mode) {
  llvm::Expected<Evaluator> evaluator = Evaluator::create(op, inputs);
  if (!evaluator)
    return evaluator.takeError();
  int64_t group = evaluator->layout.queryHeads() / evaluator->layout.kvHeads();
  // Rows of one sequence and KV head one after the other: they share the keys read.
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), size_t(0));
  llvm::sort(order, [&](size_t a, size_t b) {
    return std::tuple(rows[a].batch, rows[a].head / group, a) <
           std::tuple(rows[b].batch, rows[b].head / group, b);
  });
  std::vector<RowResult> results(rows.size());
  std::optional<KeyRows> keys;
  std::pair<int64_t, int64_t> current(-1, -1);
  for (size_t i : order) {
    std::pair wanted(rows[i].batch, rows[i].head / group);
    if (wanted != current)
      keys.emplace(evaluator->layout, wanted.first, wanted.second);
    current = wanted;
    llvm::Expected<RowResult> result = evaluator->evaluateRow(rows[i], *keys, mode);
    if (!result)
      return result.takeError();
    results[i] = std::move(*result);
  }
  return results;
}

llvm::Expected<std::vector<bool>> seenKeys(attn::AttentionOp op, const Inputs &inputs,
                                           int64_t batch) {
  llvm::Expected<Evaluator> evaluator = Evaluator::create(op, inputs);
  if (!evaluator)
    return evaluator.takeError();
  const Layout &layout = evaluator->layout;
  std::vector<bool> seen(size_t(layout.keyLength(batch)));
  for (int64_t head = 0; head < layout.queryHeads(); ++head)
    for (int64_t query = 0; query < layout.queryLength(batch); ++query) {
      Pair pair = evaluator->pairOf({batch, query, head});
      for (int64_t j = 0; j < pair.keyLength; ++j) {
        evaluator->moveToKey(pair, j);
        seen[size_t(j)] = seen[size_t(j)] || evaluator->mask(pair);
      }
    }
  return seen;
}

llvm::Expected<std::vector<llvm::SmallVector<int64_t, 4>>>
rowIndices(attn::AttentionOp op, const Inputs &inputs, llvm::ArrayRef<Row> rows) {
  llvm::Expected<Layout> layout = Layout::create(Context{op, inputs});
  if (!layout)
    return layout.takeError();
  std::vector<llvm::SmallVector<int64_t, 4>> indices;
  for (const Row &row : rows)
    indices.push_back(layout->rowIndex(row.batch, row.query, row.head));
  return indices;
}

} // namespace llmopt::reference

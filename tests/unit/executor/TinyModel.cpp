#include "TinyModel.h"

#include "runtime/engine/SimExecutor.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cmath>

using namespace llmopt::test;

namespace {

std::vector<float> weights(uint64_t seed, uint64_t stream, size_t in, size_t out) {
  std::vector<float> values(in * out);
  double scale = 1.7 / std::sqrt(double(in));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = float((randomAt(seed, i, stream) * 2 - 1) * scale);
  return values;
}

/// y = x W, one input after the other.
template <typename T> void multiply(const std::vector<float> &w, const T *x, size_t in, T *y) {
  size_t out = w.size() / in;
  std::fill_n(y, out, T(0));
  for (size_t i = 0; i < in; ++i)
    for (size_t o = 0; o < out; ++o)
      y[o] += x[i] * T(w[i * out + o]);
}

template <typename T> std::vector<T> normalised(const T *x, size_t size) {
  T sum = 0;
  for (size_t i = 0; i < size; ++i)
    sum += x[i] * x[i];
  T scale = T(1) / std::sqrt(sum / T(size) + T(1e-6));
  std::vector<T> y(size);
  for (size_t i = 0; i < size; ++i)
    y[i] = x[i] * scale;
  return y;
}

/// Pairs of components turn by an angle that is proportional to the position.
template <typename T> void rotate(T *heads, uint32_t count, uint32_t dim, uint32_t position) {
  for (uint32_t i = 0; i < dim / 2; ++i) {
    double angle = position * std::pow(10000.0, -2.0 * i / dim);
    T c = T(std::cos(angle)), s = T(std::sin(angle));
    for (uint32_t h = 0; h < count; ++h) {
      T &a = heads[h * dim + i], &b = heads[h * dim + dim / 2 + i];
      T turned = a * c - b * s;
      b = a * s + b * c;
      a = turned;
    }
  }
}

} // namespace

TinyModel::TinyModel(const TinyConfig &config) : shape(config), layers(config.layers) {
  uint64_t stream = 1;
  auto make = [&](size_t in, size_t out) { return weights(config.seed, stream++, in, out); };
  embedding = make(config.vocabulary, config.hidden);
  for (float &value : embedding)
    value *= std::sqrt(float(config.vocabulary)); // of order 1, whatever the vocabulary
  head = make(config.hidden, config.vocabulary);
  for (Layer &layer : layers) {
    layer.q = make(config.hidden, queryWidth());
    layer.k = make(config.hidden, keyWidth());
    layer.v = make(config.hidden, keyWidth());
    layer.o = make(queryWidth(), config.hidden);
    layer.gate = make(config.hidden, config.inner);
    layer.up = make(config.hidden, config.inner);
    layer.down = make(config.inner, config.hidden);
    for (float &value : layer.q)
      value *= 3; // sharper attention: errors in it show
  }
}

template <typename T> void TinyModel::embed(kv::Token token, T *x) const {
  for (uint32_t i = 0; i < shape.hidden; ++i)
    x[i] = T(embedding[size_t(token % shape.vocabulary) * shape.hidden + i]);
}

template <typename T>
void TinyModel::project(uint32_t layer, uint32_t position, const T *x, T *q, T *k, T *v) const {
  std::vector<T> normal = normalised(x, shape.hidden);
  multiply(layers[layer].q, normal.data(), shape.hidden, q);
  multiply(layers[layer].k, normal.data(), shape.hidden, k);
  multiply(layers[layer].v, normal.data(), shape.hidden, v);
  rotate(q, shape.queryHeads, shape.headDim, position);
  rotate(k, shape.kvHeads, shape.headDim, position);
}

template <typename T> void TinyModel::absorb(uint32_t layer, const T *o, T *x) const {
  const Layer &own = layers[layer];
  std::vector<T> added(shape.hidden), gate(shape.inner), up(shape.inner);
  multiply(own.o, o, queryWidth(), added.data());
  for (uint32_t i = 0; i < shape.hidden; ++i)
    x[i] += added[i];
  std::vector<T> normal = normalised(x, shape.hidden);
  multiply(own.gate, normal.data(), shape.hidden, gate.data());
  multiply(own.up, normal.data(), shape.hidden, up.data());
  for (uint32_t i = 0; i < shape.inner; ++i)
    up[i] *= gate[i] / (T(1) + std::exp(-gate[i]));
  multiply(own.down, up.data(), shape.inner, added.data());
  for (uint32_t i = 0; i < shape.hidden; ++i)
    x[i] += added[i];
}

template <typename T> void TinyModel::logits(const T *x, T *out) const {
  std::vector<T> normal = normalised(x, shape.hidden);
  multiply(head, normal.data(), shape.hidden, out);
}

#define LLMOPT_TINY(T)                                                                             \
  template void TinyModel::embed(kv::Token, T *) const;                                            \
  template void TinyModel::project(uint32_t, uint32_t, const T *, T *, T *, T *) const;            \
  template void TinyModel::absorb(uint32_t, const T *, T *) const;                                 \
  template void TinyModel::logits(const T *, T *) const;
LLMOPT_TINY(float)
LLMOPT_TINY(double)

kv::Token llmopt::test::sampleFrom(std::span<const float> logits, bool greedy, uint64_t seed,
                                   uint32_t position) {
  size_t best = size_t(std::max_element(logits.begin(), logits.end()) - logits.begin());
  if (greedy)
    return kv::Token(best);
  double sum = 0;
  for (float value : logits)
    sum += std::exp(double(value) - logits[best]);
  double left = randomAt(seed, position) * sum;
  for (size_t i = 0; i < logits.size(); ++i)
    if ((left -= std::exp(double(logits[i]) - logits[best])) < 0)
      return kv::Token(i);
  return kv::Token(best);
}

uint64_t llmopt::test::hashOf(std::span<const float> logits) {
  return XXH3_64bits(logits.data(), logits.size_bytes());
}

Status TinyLayers::begin(const ModelBatch &batch) {
  hidden.resize(batch.ids.size() * model.config().hidden);
  for (size_t t = 0; t < batch.ids.size(); ++t)
    model.embed(batch.ids[t], &hidden[t * model.config().hidden]);
  return {};
}

Status TinyLayers::project(const ModelBatch &batch, uint32_t layer, const LayerArrays &arrays) {
  auto *q = static_cast<float *>(arrays.query), *k = static_cast<float *>(arrays.key),
       *v = static_cast<float *>(arrays.value);
  for (size_t t = 0; t < batch.ids.size(); ++t)
    model.project(layer, batch.positions[t], &hidden[t * model.config().hidden],
                  q + t * model.queryWidth(), k + t * model.keyWidth(), v + t * model.keyWidth());
  return {};
}

Status TinyLayers::absorb(const ModelBatch &batch, uint32_t layer, const LayerArrays &arrays) {
  auto *output = static_cast<const float *>(arrays.output);
  for (size_t t = 0; t < batch.ids.size(); ++t)
    model.absorb(layer, output + t * model.queryWidth(), &hidden[t * model.config().hidden]);
  return {};
}

Status TinyLayers::finish(const ModelBatch &batch) {
  logitRows.resize(batch.logits.size() * model.config().vocabulary);
  for (size_t i = 0; i < batch.logits.size(); ++i)
    model.logits(&hidden[batch.logits[i] * model.config().hidden],
                 &logitRows[i * model.config().vocabulary]);
  return {};
}

StatusOr<kv::Token> TinyLayers::sample(const SampleQuery &query) {
  std::span<const float> row = std::span(logitRows).subspan(
      size_t(query.logit) * model.config().vocabulary, model.config().vocabulary);
  const step::Row &from = *query.row->row;
  std::pair key(from.request, from.generation);
  std::vector<uint64_t> &mine = hashes[key];
  if (mine.size() <= query.position)
    mine.resize(query.position + 1);
  mine[query.position] = hashOf(row);
  if (keepLogits) {
    std::vector<std::vector<float>> &all = kept[key];
    if (all.size() <= query.position)
      all.resize(query.position + 1);
    all[query.position].assign(row.begin(), row.end());
  }
  return sampleFrom(row, from.flags & step::kGreedy, from.samplingSeed, query.position);
}

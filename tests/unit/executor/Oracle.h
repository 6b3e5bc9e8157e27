// The tiny model evaluated plainly: all positions at once, every score of every pair, in the
// arithmetic of T. Shares the layers' formulas with the model and nothing with the kernels.
#pragma once

#include "Specs.h"

#include <cmath>

namespace llmopt::test {

inline bool sees(const TinyGroup &group, size_t query, size_t key) {
  return key <= query && (!group.window || query - key < group.window || key < group.sink);
}

template <typename T>
void attendPlainly(const TinyConfig &c, const TinyGroup &group, const std::vector<T> &q,
                   const std::vector<T> &k, const std::vector<T> &v, size_t tokens,
                   std::vector<T> &o) {
  T scale = T(1) / std::sqrt(T(c.headDim));
  uint32_t queryWidth = c.queryHeads * c.headDim, keyWidth = c.kvHeads * c.headDim;
  std::vector<T> weight(tokens);
  for (size_t t = 0; t < tokens; ++t)
    for (uint32_t h = 0; h < c.queryHeads; ++h) {
      const T *query = &q[t * queryWidth + h * c.headDim];
      uint32_t at = h / (c.queryHeads / c.kvHeads) * c.headDim;
      T most = -INFINITY, sum = 0;
      for (size_t j = 0; j <= t; ++j) {
        T score = 0;
        for (uint32_t i = 0; i < c.headDim; ++i)
          score += query[i] * k[j * keyWidth + at + i];
        weight[j] = sees(group, t, j) ? score * scale : T(-INFINITY);
        most = std::max(most, weight[j]);
      }
      T *out = &o[t * queryWidth + h * c.headDim];
      std::fill_n(out, c.headDim, T(0));
      for (size_t j = 0; j <= t; ++j) {
        T p = std::exp(weight[j] - most);
        sum += p;
        for (uint32_t i = 0; i < c.headDim; ++i)
          out[i] += p * v[j * keyWidth + at + i];
      }
      for (uint32_t i = 0; i < c.headDim; ++i)
        out[i] /= sum;
    }
}

/// Logits behind the tokens from `first` on, one row after the other.
template <typename T>
std::vector<T> oracleLogits(const TinyModel &model, const std::vector<TinyGroup> &groups,
                            const std::vector<kv::Token> &ids, size_t first) {
  const TinyConfig &c = model.config();
  size_t tokens = ids.size();
  std::vector<T> x(tokens * c.hidden), q(tokens * model.queryWidth()), o(q.size()),
      k(tokens * model.keyWidth()), v(k.size());
  for (size_t t = 0; t < tokens; ++t)
    model.embed(ids[t], &x[t * c.hidden]);
  for (uint32_t layer = 0; layer < c.layers; ++layer) {
    for (size_t t = 0; t < tokens; ++t)
      model.project(layer, uint32_t(t), &x[t * c.hidden], &q[t * model.queryWidth()],
                    &k[t * model.keyWidth()], &v[t * model.keyWidth()]);
    for (const TinyGroup &group : groups)
      if (std::find(group.layers.begin(), group.layers.end(), layer) != group.layers.end())
        attendPlainly(c, group, q, k, v, tokens, o);
    for (size_t t = 0; t < tokens; ++t)
      model.absorb(layer, &o[t * model.queryWidth()], &x[t * c.hidden]);
  }
  std::vector<T> logits((tokens - first) * c.vocabulary);
  for (size_t t = first; t < tokens; ++t)
    model.logits(&x[t * c.hidden], &logits[(t - first) * c.vocabulary]);
  return logits;
}

} // namespace llmopt::test

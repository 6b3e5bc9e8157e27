// The tiny model evaluated plainly: all positions at once, every score of every pair, in the
// arithmetic of T. Shares the layers' formulas with the model and nothing with the kernels.
#pragma once

#include "Specs.h"

#include <cmath>
#include <gtest/gtest.h>

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

/// The bound is the design's for kernels, on the model's logits: twice the error of plain
/// float32 arithmetic against float64, and the rounding of sums over as many terms as there
/// are keys. `rows`: the logits behind each token of the answer.
inline void expectWithinFormats(const TinyModel &model, const std::vector<TinyGroup> &groups,
                                const std::vector<kv::Token> &prompt,
                                const std::vector<kv::Token> &answer,
                                const std::vector<std::vector<float>> &rows) {
  // Fed with the served tokens, so that a tie cannot part the sequences.
  std::vector<kv::Token> fed = prompt;
  fed.insert(fed.end(), answer.begin(), answer.end() - 1);
  size_t first = prompt.size() - 1;
  auto exact = oracleLogits<double>(model, groups, fed, first);
  auto plain = oracleLogits<float>(model, groups, fed, first);
  double error = 0, largest = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    error = std::max(error, std::abs(double(plain[i]) - exact[i]));
    largest = std::max(largest, std::abs(exact[i]));
  }
  double bound = 2 * error + 8 * std::sqrt(double(fed.size())) * 0x1p-24 * largest;
  double worst = 0;
  for (size_t row = 0; row < answer.size(); ++row)
    for (size_t i = 0; i < rows[row].size(); ++i)
      worst = std::max(worst, std::abs(double(rows[row][i]) - exact[row * rows[row].size() + i]));
  EXPECT_LE(worst, bound);
  EXPECT_LT(bound, 1e-2 * largest); // a wrong key would be seen
}

} // namespace llmopt::test

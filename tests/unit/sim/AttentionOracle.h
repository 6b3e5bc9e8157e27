// What the attention kernels of the tests must compute, in float64.
#pragma once

#include "runtime/base/Half.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace llmopt::sim::test {

inline std::vector<uint16_t> randomBf16(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> values(count);
  for (uint16_t &x : values)
    x = runtime::f32ToBf16(normal(random));
  return values;
}

inline float f(uint16_t bits) { return runtime::bf16ToF32(bits); }

/// Attention of one row over the given keys: output and natural LSE.
struct RowResult {
  std::vector<double> out, weights; ///< sum p |v| as well
  double lse = -INFINITY;
};

template <typename KeyRow>
RowResult attendRow(const uint16_t *q, int keys, int dim, double scale, KeyRow &&row,
                    const std::vector<uint16_t> &k, const std::vector<uint16_t> &v) {
  RowResult result;
  result.out.assign(dim, 0);
  result.weights.assign(dim, 0);
  std::vector<double> score(keys);
  double top = -INFINITY, sum = 0;
  for (int j = 0; j < keys; ++j) {
    for (int e = 0; e < dim; ++e)
      score[j] += double{f(q[e])} * f(k[row(j) + e]);
    score[j] *= scale;
    top = std::max(top, score[j]);
  }
  for (int j = 0; j < keys; ++j) {
    double p = std::exp(score[j] - top);
    sum += p;
    for (int e = 0; e < dim; ++e) {
      result.out[e] += p * f(v[row(j) + e]);
      result.weights[e] += p * std::fabs(f(v[row(j) + e]));
    }
  }
  for (int e = 0; e < dim && keys; ++e) {
    result.out[e] /= sum;
    result.weights[e] /= sum;
  }
  if (keys)
    result.lse = top + std::log(sum);
  return result;
}

} // namespace llmopt::sim::test

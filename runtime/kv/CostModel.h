// What it costs to compute tokens again and what it costs to copy their pages: the
// choice between recompute and swap, and between dropping and keeping a page in
// host memory.
//
//   recompute(n tokens after p) = n * secondsPerToken
//                               + secondsPerTokenAndKey * (n * p + n * (n + 1) / 2)
//   copy(b bytes)               = copyLatency + b / bytesPerSecond
//
// The first is the linear and the attention part of a prefill; the second is one
// direction of the link between host and device.
#pragma once

#include <cstdint>

namespace llmopt::runtime::kv {

struct CostModel {
  double secondsPerToken = 2e-5;
  double secondsPerTokenAndKey = 2e-10;
  double bytesPerSecond = 25e9;
  double copyLatency = 1e-5;

  double recompute(uint64_t tokens, uint64_t keysBefore) const {
    double n = static_cast<double>(tokens), p = static_cast<double>(keysBefore);
    return n * secondsPerToken + secondsPerTokenAndKey * (n * p + n * (n + 1) / 2);
  }
  double copy(uint64_t bytes) const {
    return copyLatency + static_cast<double>(bytes) / bytesPerSecond;
  }
};

} // namespace llmopt::runtime::kv

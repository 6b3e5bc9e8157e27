// Spans of time on named tracks, written as a Chrome trace (chrome://tracing, Perfetto).
#pragma once

#include "runtime/base/Status.h"

#include <cstdint>
#include <string>
#include <vector>

namespace llmopt::runtime {

class Timeline {
public:
  enum class Track : uint8_t { Host, Device };

  /// Spans beyond `limit` are counted and not kept.
  explicit Timeline(size_t limit = 1 << 20) : limit(limit) {}

  /// What a step did in [beginNs, endNs).
  struct Span {
    Track track;
    int64_t beginNs, endNs;
    uint64_t step;
    uint32_t rows, queryTokens, running, waiting;
  };
  void add(const Span &span) {
    if (spans.size() < limit)
      spans.push_back(span);
    else
      ++dropped;
  }

  std::string chromeTrace() const;
  Status write(const std::string &path) const;

private:
  size_t limit;
  std::vector<Span> spans;
  uint64_t dropped = 0;
};

} // namespace llmopt::runtime

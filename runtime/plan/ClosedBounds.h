// A mask's bounds in a form that evaluates in a few additions: each end of an interval as a
// minimum or maximum of linear terms in the query range and the lengths, the scalars of the
// batch folded in. Most masks have it; the others (dilated, or many intervals) go the long way
// through bundle::evaluate.
#pragma once

#include "runtime/bundle/BoundsEval.h"
#include "runtime/plan/Plan.h"

#include <algorithm>
#include <array>

namespace llmopt::runtime {

class ClosedBounds {
public:
  static constexpr unsigned kMaxIntervals = 4;

  struct Range {
    int64_t begin, end;
  };
  /// Intervals with a key, clipped to [0, keyLen).
  struct Ranges {
    std::array<Range, kMaxIntervals> at;
    unsigned count = 0;
  };

  /// A range of queries, and the lengths of their sequence.
  struct Inputs {
    int64_t queryLo, queryHi, queryLen, keyLen;
  };

  /// False where the set has no such form. Allocates nothing.
  bool compile(const bundle::BoundSet &set, const ScalarValues &scalars);

  /// One interval whose ends are terms, as of causal masks and windows: a range, which may be
  /// empty, is all of it.
  bool isOneRange() const { return oneRange; }
  /// `range` of sequences that differ in their lengths alone: its ends move evenly with them.
  class RangeByLength {
  public:
    Range at(int64_t keyLen) const {
      return {std::max<int64_t>(begin + beginStep * keyLen, 0),
              std::min(end + endStep * keyLen, keyLen)};
    }

  private:
    friend class ClosedBounds;
    int64_t begin = 0, beginStep = 0, end = 0, endStep = 0;
  };
  /// From the inputs of sequences of no key and of one.
  RangeByLength rangeByLength(const Inputs &none, const Inputs &one) const {
    RangeByLength range;
    range.end = highs[0].terms[0].value(none);
    range.endStep = highs[0].terms[0].value(one) - range.end;
    if (fromStart)
      return range;
    range.begin = lows[0].terms[0].value(none);
    range.beginStep = lows[0].terms[0].value(one) - range.begin;
    return range;
  }

  Ranges evaluate(const Inputs &inputs) const {
    Ranges ranges;
    for (unsigned i = 0; i < count; ++i) {
      int64_t begin = std::max<int64_t>(valueOf(lows[i], inputs), 0);
      int64_t end = std::min(valueOf(highs[i], inputs), inputs.keyLen);
      if (begin < end)
        ranges.at[ranges.count++] = {begin, end};
    }
    return ranges;
  }

private:
  static constexpr unsigned kMaxTerms = 4;
  struct Term {
    int64_t constant = 0, queryLo = 0, queryHi = 0, queryLen = 0, keyLen = 0;
    int64_t value(const Inputs &inputs) const {
      return constant + queryLo * inputs.queryLo + queryHi * inputs.queryHi +
             queryLen * inputs.queryLen + keyLen * inputs.keyLen;
    }
  };
  /// The smallest of the terms, or the largest.
  struct Bound {
    std::array<Term, kMaxTerms> terms;
    uint8_t count = 0;
    bool largest = false;
  };
  friend struct BoundCompiler;
  static int64_t valueOf(const Bound &bound, const Inputs &inputs) {
    int64_t result = bound.terms[0].value(inputs);
    for (unsigned i = 1; i < bound.count; ++i) {
      int64_t other = bound.terms[i].value(inputs);
      result = bound.largest ? std::max(result, other) : std::min(result, other);
    }
    return result;
  }

  std::array<Bound, kMaxIntervals> lows, highs;
  unsigned count = 0;
  bool oneRange = false;
  bool fromStart = false; ///< whose beginning is at most 0 whatever the inputs
};

} // namespace llmopt::runtime

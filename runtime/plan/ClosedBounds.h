// A mask's bounds in a form that evaluates in a few additions: each end of an interval as a
// minimum or maximum of linear terms in the query range and the lengths, the scalars of the
// batch folded in. Most masks have it; the others (dilated, or many intervals) go the long way
// through bundle::evaluate.
#pragma once

#include "runtime/bundle/BoundsEval.h"
#include "runtime/plan/Plan.h"

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

  /// False where the set has no such form. Allocates nothing.
  bool compile(const bundle::BoundSet &set, const ScalarValues &scalars);
  Ranges evaluate(const bundle::BoundInputs &inputs) const;

private:
  static constexpr unsigned kMaxTerms = 4;
  struct Term {
    int64_t constant = 0;
    int32_t queryLo = 0, queryHi = 0, queryLen = 0, keyLen = 0;
    bool isConstant() const { return !queryLo && !queryHi && !queryLen && !keyLen; }
  };
  /// The smallest of the terms, or the largest.
  struct Bound {
    std::array<Term, kMaxTerms> terms;
    uint8_t count = 0;
    bool largest = false;
  };
  friend struct BoundCompiler;
  static int64_t valueOf(const Bound &bound, const bundle::BoundInputs &inputs);

  std::array<Bound, kMaxIntervals> lows, highs;
  unsigned count = 0;
};

} // namespace llmopt::runtime

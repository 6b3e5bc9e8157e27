// All pairs, all lengths up to 20, all ranges of queries: what a mask's bounds and its
// emitted predicate say against the test's own predicate.
#pragma once

#include "tests/unit/attn/MaskSpec.h"

namespace llmopt::attn::test {

inline constexpr int kMostLength = 20;

MaskBounds boundsOf(const ParsedMask &mask, Defaults defaults);

enum class Demand {
  SoundOnly, ///< whatever they say of exactness (numbers that no mask allows)
  Sound,     ///< and exact where they say so
  Exact,     ///< which they must
};

void expectBounds(const ParsedMask &mask, Defaults defaults, Demand demand);

/// Expect the emitted predicate to agree for all pairs, of every length or of some.
enum class Lengths { All, Some };
void expectPredicate(const ParsedMask &mask, Lengths lengths);

/// Everything above.
void expectMask(MaskSpec spec, Demand demand);

} // namespace llmopt::attn::test

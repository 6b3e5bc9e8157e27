// The masks of the tests: text and predicate of each, and how to join them.
#pragma once

#include "tests/unit/attn/MaskSpec.h"

namespace llmopt::attn::test {

MaskSpec causal();
MaskSpec causalTopLeft();
MaskSpec window(int size);
MaskSpec window(int left, int right);
MaskSpec sink(int count);
MaskSpec dilated(int stride);
MaskSpec chunked(int size);
MaskSpec dense();
MaskSpec tree(TreeShape shape);
/// The other mask as an op with a tree has it: by the tree's positions. It looks at positions
/// alone and has no args.
MaskSpec underTree(const MaskSpec &other, TreeShape shape);

/// A custom region; `body` yields %v.
MaskSpec custom(std::string body, Predicate sees);
/// All custom regions, with whether exact bounds are demanded of each.
std::vector<std::pair<MaskSpec, bool>> customs();

/// Regions of both are numbered anew; args must be those of one of them.
MaskSpec both(const MaskSpec &a, const MaskSpec &b);
MaskSpec either(const MaskSpec &a, const MaskSpec &b);
MaskSpec negated(const MaskSpec &a);

} // namespace llmopt::attn::test

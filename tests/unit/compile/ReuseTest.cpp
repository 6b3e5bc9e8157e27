// One program serves all lengths and numbers; a saved one gives the same bits.
#include "Support.h"

#include "runtime/bundle/BundleIO.h"

#include <cstring>

namespace llmopt::test {
namespace {

TEST(Reuse, OneCompileServes20Shapes) { // A38, with its lengths
  Compiled f(R"(
func.func @f(%q: tensor<?x4x16xbf16>, %kv: !attn.kv_cache<2x16xbf16, page = 64>, %s: !attn.sequences)
    -> tensor<?x4x16xbf16> {
  %o = attn.attention %q, %kv, %s mask(causal)
    : tensor<?x4x16xbf16>, !attn.kv_cache<2x16xbf16, page = 64>, !attn.sequences -> tensor<?x4x16xbf16>
  return %o : tensor<?x4x16xbf16>
})");
  uint64_t compiles = compileCount();
  for (int64_t length : {320, 256, 192, 128, 1}) {
    f.verify(shapeOf({length}, {length}));
    f.verify(shapeOf({1}, {length}));
    f.verify(shapeOf({1, 0, 5}, {length, 3, length}));
    f.verify(shapeOf({length, 2}, {length / 2, 7}));
  }
  EXPECT_EQ(compileCount(), compiles);
}

TEST(Reuse, CapturedNumbersAreReadAtRunTime) { // A31: i - QL >= j - KL of the captured lengths
  Compiled f(R"(
func.func @f(%q: tensor<?x4x16xf32>, %k: tensor<?x2x16xf32>, %v: tensor<?x2x16xf32>, %s: !attn.sequences,
             %ql: index, %kl: index) -> tensor<?x4x16xf32> {
  %o = attn.attention %q, %k, %v, %s mask(custom) where {
    ^bb0(%b: index, %h: index, %i: index, %j: index):
      %x = arith.subi %i, %ql : index
      %y = arith.subi %j, %kl : index
      %sees = arith.cmpi sge, %x, %y : index
      attn.yield %sees : i1
    } : tensor<?x4x16xf32>, tensor<?x2x16xf32>, tensor<?x2x16xf32>, !attn.sequences -> tensor<?x4x16xf32>
  return %o : tensor<?x4x16xf32>
})");
  uint64_t compiles = compileCount();
  for (auto [queries, keys] : {std::pair{5, 90}, std::pair{70, 70}, std::pair{40, 12}})
    for (double shift : {0, 3, -20}) {
      harness::Shape shape = shapeOf({queries}, {keys});
      shape.numbers = {{"user4", queries + shift}, {"user5", keys}};
      f.verify(shape);
    }
  EXPECT_EQ(compileCount(), compiles);
}

} // namespace
} // namespace llmopt::test

// A mask and a score modification of a dialect that the project does not know.
#include "DemoDialect.h"
#include "Support.h"

namespace llmopt::test {
namespace {

const char *const kSpec = R"(
func.func @f(%q: tensor<?x4x16xf32>, %k: tensor<?x2x16xf32>, %v: tensor<?x2x16xf32>, %s: !attn.sequences)
    -> (tensor<?x4x16xf32>, tensor<?x4xf32>) {
  %o, %l = attn.attention %q, %k, %v, %s mask(#demo.stripes<32> and not sink<1>) score(#demo.tilt<0.125>)
    : tensor<?x4x16xf32>, tensor<?x2x16xf32>, tensor<?x2x16xf32>, !attn.sequences
      -> tensor<?x4x16xf32>, tensor<?x4xf32>
  return %o, %l : tensor<?x4x16xf32>, tensor<?x4xf32>
})";

TEST(Plugin, MaskAndScoreRunOnTheCpu) {
  demo::teachOracle();
  Compiled f(kSpec);
  for (const harness::Case &one : harness::randomShapes(f.spec, 20, 5)) {
    SCOPED_TRACE(one.name);
    f.verify(one.shape);
  }
}

TEST(Plugin, NumbersAreReadAtRunTime) {
  demo::teachOracle();
  Compiled f(kSpec);
  uint64_t compiles = compileCount();
  harness::Shape shape = shapeOf({5, 70}, {90, 300});
  for (double stripe : {1, 7, 64, 1000}) {
    shape.numbers = {{"stripe", stripe}, {"tilt", 0.5 / stripe}};
    f.verify(shape);
  }
  EXPECT_EQ(compileCount(), compiles);
}

TEST(Plugin, BoundsBecomeTheLoop) { // one query at key 255 of 256: 4 of 8 stripes of 32
  Compiled f(kSpec, /*rows=*/2, /*keys=*/16);
  harness::Call call = f.call(shapeOf({1}, {256}));
  cli::RunFigures figures = f.run(call);
  EXPECT_EQ(figures.tilesVisited, 2u * 8);
  EXPECT_EQ(figures.tilesPredicated, 2u * 1); // the tile of key 0, which `not sink<1>` hides
}

} // namespace
} // namespace llmopt::test

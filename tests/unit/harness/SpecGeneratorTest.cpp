// Random specs are valid, varied, deterministic and cheap.
#include "tools/harness/SpecGenerator.h"
#include "Support.h"

#include <ctime>

namespace llmopt::harness {
namespace {

TEST(SpecGenerator, SpecsAreValid) {
  for (uint64_t seed = 0; seed < 1000; ++seed)
    ASSERT_EQ(parseError(randomSpec(seed)), "") << "seed " << seed;
}

TEST(SpecGenerator, TheSeedDecides) {
  EXPECT_EQ(randomSpec(42), randomSpec(42));
  EXPECT_NE(randomSpec(42), randomSpec(43));
}

TEST(SpecGenerator, EveryFeatureComesUp) {
  std::string all;
  for (uint64_t seed = 0; seed < 500; ++seed)
    all += randomSpec(seed);
  for (const char *feature : {"xf32>",           "xf16>",
                              "xbf16>",          "v_dim = ",
                              "page = 1,",       "page = 3",
                              "head_major",      "interleaved",
                              "indptr",          "attn.append",
                              "attn.merge",      "%limit",
                              "%factor",         "causal<top_left>",
                              "window<left = ",  "window<arg",
                              "sink<",           "dilated<",
                              "chunked<",        "dense<arg",
                              "custom",          "not (",
                              " and (",          " or (",
                              "softcap(",        "softcap(arg",
                              "bias(arg",        "alibi(arg",
                              "score {",         "sink(arg",
                              "scale(arg",       "split(none)",
                              "split(count",     "split(length",
                              "batch_invariant", "tensor<?x?x",
                              "%o, %l"})
    EXPECT_NE(all.find(feature), std::string::npos) << feature;
}

TEST(SpecGenerator, SpecsRunThroughHarnessAndOracle) {
  double slowest = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    std::string text = randomSpec(seed);
    Spec spec = parse(text);
    for (const Case &c : randomShapes(spec, 1, seed)) {
      std::clock_t start = std::clock(); // processor time: other processes do not count
      llvm::Expected<Report> result =
          runCase(spec, c, [&](Call &call) { return runOracle(spec, call); });
      ASSERT_TRUE(bool(result)) << llvm::toString(result.takeError()) << "\n" << text;
      EXPECT_TRUE(result->passed) << result->failure << "\n" << text;
      slowest = std::max(slowest, double(std::clock() - start) / CLOCKS_PER_SEC);
    }
  }
  EXPECT_LT(slowest, 2); // generation, run and check; 0.3 s of oracle with room for slow machines
  RecordProperty("slowest_seconds", std::to_string(slowest));
}

} // namespace
} // namespace llmopt::harness

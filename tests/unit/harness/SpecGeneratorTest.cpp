// Random specs are valid, varied, deterministic and cheap.
#include "tools/harness/SpecGenerator.h"
#include "Support.h"

#include "llvm/Support/Regex.h"

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
  for (const char *feature : {"xf32>",
                              "xf16>",
                              "xbf16>",
                              "v_dim = ",
                              "page = 1,",
                              "page = 3",
                              "head_major",
                              "interleaved",
                              "indptr",
                              "attn.append",
                              "attn.merge",
                              "%limit",
                              "%factor",
                              "causal<top_left>",
                              "window<left = ",
                              "window<arg",
                              "sink<",
                              "dilated<",
                              "chunked<",
                              "dense<arg",
                              "custom",
                              "not (",
                              " and (",
                              " or (",
                              "softcap(",
                              "softcap(arg",
                              "bias(arg",
                              "alibi(arg",
                              "score {",
                              "sink(arg",
                              "scale(arg",
                              "split(none)",
                              "split(count",
                              "split(length",
                              "batch_invariant",
                              "tensor<?x?x",
                              "%o, %l",
                              "tree<",
                              "schedule(keys",
                              "schedule(rows",
                              "rows = 3",
                              "x576x",
                              "x320",
                              ": i64",
                              ": index",
                              "xi64>",
                              "%limit: i64",
                              "%limit: i32"})
    EXPECT_NE(all.find(feature), std::string::npos) << feature;
  // What no single text says: extents that are fixed, an operand of two clauses, two regions.
  int fixed = 0, shared = 0, regions = 0;
  llvm::Regex fixedRows("%q: tensor<([0-9]+x[0-9]+x[0-9]+x[a-z]|[?0-9]+x[0-9]+x[0-9]+x[0-9]+x|"
                        "[0-9]+x[?]x)");
  for (uint64_t seed = 0; seed < 500; ++seed) {
    std::string text = randomSpec(seed);
    fixed += fixedRows.match(text);
    regions += llvm::StringRef(text).count("score {") == 2;
    for (const char *arg : {"arg0", "arg1", "arg2"})
      shared += llvm::StringRef(text).count(arg) == 2;
  }
  EXPECT_GT(fixed, 0);
  EXPECT_GT(shared, 0);
  EXPECT_GT(regions, 0);
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

// Score modifications: what the emitted ops compute.
#include "tests/unit/attn/Interpreter.h"

#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

using namespace mlir;
using namespace llmopt::attn;
using namespace llmopt::attn::test;

namespace {

/// One score modification of an op parsed from text.
class EmittedScore {
public:
  explicit EmittedScore(std::string clause)
      : mask(testContext(),
             {"causal) " + clause + " split(none", {}, {}, {{"tensor<?x?x?x?xf32>", {}}}}),
        program(mask) {
    auto score = cast<ScoreAttrInterface>(AttentionOp(mask.op).getScoresAttr()[0]);
    program.setResult(score.emitScore(program.emitter(), program.score()));
  }

  float operator()(float score, int query = 0, int key = 0, float element = 0) const {
    return program.run(Row{{8, 8}, query, 0}, key, element, score).real;
  }

private:
  ParsedMask mask;
  ScalarProgram program;
};

} // namespace

TEST(Score, Softcap) {
  EmittedScore softcap("softcap(30.0) bias(arg0)");
  for (float s : {-100.f, -1.f, 0.f, 0.5f, 40.f})
    EXPECT_FLOAT_EQ(softcap(s), 30.f * std::tanh(s / 30.f));
  EXPECT_EQ(softcap(std::numeric_limits<float>::infinity()), 30.f);
}

TEST(Score, SoftcapThatIsOffLeavesTheScore) {
  EmittedScore softcap("softcap(0) bias(arg0)");
  for (float s : {-100.f, 0.f, 7.f, std::numeric_limits<float>::infinity()})
    EXPECT_EQ(softcap(s), s);
}

TEST(Score, Alibi) {
  EmittedScore alibi("alibi(0.25) bias(arg0)");
  EXPECT_EQ(alibi(1.f, 5, 1), 0.f);
  EXPECT_EQ(alibi(1.f, 5, 5), 1.f);
  EXPECT_EQ(alibi(1.f, 5, 7), 1.5f);
}

TEST(Score, Bias) {
  EmittedScore bias("bias(arg0)");
  EXPECT_EQ(bias(1.f, 0, 0, 2.f), 3.f);
  float minusInfinity = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(bias(1.f, 0, 0, minusInfinity), minusInfinity);
}

TEST(Score, NumbersAreCollectedOnce) {
  ParsedMask mask(testContext(), {"window<4> or (window<4> and sink<2>)", {}, {}, {}});
  std::vector<std::string> names;
  for (const NumberUse &use : AttentionOp(mask.op).getNumbers())
    names.push_back(use.name.str());
  EXPECT_EQ(names, (std::vector<std::string>{"scale", "window", "sink_keys"}));
}

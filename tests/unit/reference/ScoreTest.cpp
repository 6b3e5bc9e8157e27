// Scores, their modifications and their order, read off the LSE of a single key.
#include "Support.h"

#include <cmath>

namespace llmopt::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The modified score of one key whose scaled score is `score`.
double modified(const std::string &clauses, double score) {
  Bound bound = weightsOf(clauses, 1, {score});
  return bound.row(0, 0).lse;
}

Bound withBias(const std::string &clauses, const std::vector<double> &scores,
               const std::vector<double> &bias) {
  std::string type = "tensor<1x1x1x" + std::to_string(scores.size()) + "xf32>";
  Bound bound = weightsOf(clauses, 1, scores, 1, "args(%b : " + type + ")", ", %b: " + type);
  bound.bind("arg0", ElementType::F32, {1, 1, 1, int64_t(scores.size())}, bias);
  return bound;
}

TEST(Score, SoftmaxOfScaledScores) {
  Bound bound = weightsOf("", 1, {1, 2, 3});
  RowResult row = bound.row(0, 0);
  double sum = std::exp(1) + std::exp(2) + std::exp(3);
  EXPECT_NEAR(row.output[0], std::exp(1) / sum, 1e-15);
  EXPECT_NEAR(row.output[2], std::exp(3) / sum, 1e-15);
  EXPECT_NEAR(row.lse, std::log(sum), 1e-15);
  EXPECT_EQ(row.visible, 3);
}

TEST(Score, ScaleIsOverriddenAndFloat32) {
  Bound bound = weightsOf("", 1, {4});
  bound.inputs.numbers["scale"] = 0.1;
  EXPECT_EQ(bound.row(0, 0).lse, 4 * double(0.1f));
}

TEST(Score, Softcap) {
  EXPECT_NEAR(modified("softcap(5.0)", 20), 5 * std::tanh(4), 1e-14);
  EXPECT_EQ(modified("softcap(0.0)", 20), 20); // off
  Bound negative = weightsOf("softcap(5.0)", 1, {20});
  negative.inputs.numbers["softcap"] = -1;
  EXPECT_EQ(negative.rowError(0, 0),
            "number 'softcap' is -1; 0 and more are allowed; 0 turns it off");
}

TEST(Score, ModificationsActInTheWrittenOrder) { // A20
  EXPECT_NEAR(withBias("softcap(5.0) bias(arg0)", {20}, {-10}).row(0, 0).lse, 5 * std::tanh(4) - 10,
              1e-14);
  EXPECT_NEAR(withBias("bias(arg0) softcap(5.0)", {20}, {-10}).row(0, 0).lse, 5 * std::tanh(2),
              1e-14);
}

TEST(Score, BiasOfMinusInfinityHidesTheKeyInEitherOrder) { // A20
  for (const char *clauses : {"softcap(5.0) bias(arg0)", "bias(arg0) softcap(5.0)"}) {
    Bound bound = withBias(clauses, {7, 1, 2}, {-kInfinity, 0, 0});
    EXPECT_EQ(seenBy(bound, 0), ".##");
    EXPECT_EQ(bound.row(0, 0).visible, 2);
    Bound none = withBias(clauses, {7}, {-kInfinity});
    EXPECT_EQ(none.row(0, 0).lse, -kInfinity);
    EXPECT_EQ(none.row(0, 0).output[0], 0);
  }
}

TEST(Score, MasksActAfterTheModifications) { // never through tanh
  Bound bound = weightsOf("mask(window<1>) softcap(5.0)", 1, {100, 1});
  EXPECT_EQ(seenBy(bound, 0), ".#");
  EXPECT_EQ(bound.row(0, 0).lse, 5 * std::tanh(1 / 5.0));
}

TEST(Score, AlibiGrowsWithTheKey) { // query 1 of 2 stands at key 2 of 3
  Bound bound = weightsOf("mask(window<left = 2, right = 0>) alibi(0.5)", 2, {0, 0, 0});
  double sum = std::exp(-1) + std::exp(-0.5) + 1;
  EXPECT_NEAR(bound.row(0, 1).output[0], std::exp(-1) / sum, 1e-15);
  EXPECT_NEAR(bound.row(0, 1).lse, std::log(sum), 1e-15);
  // A key after the query gets a positive addend.
  Bound after = weightsOf("mask(window<left = 0, right = 1>) alibi(0.5)", 2, {0, 0, 0});
  EXPECT_NEAR(after.row(0, 0).lse, std::log(1 + std::exp(0.5)), 1e-15);
}

TEST(Score, AlibiSlopesOfEachHead) {
  Bound bound =
      weightsOf("alibi(arg0)", 1, {0, 0}, 2, "args(%s : tensor<2xf32>)", ", %s: tensor<2xf32>");
  bound.bind("arg0", ElementType::F32, {2}, {0.5, 2});
  EXPECT_NEAR(bound.row(0, 0, 0).lse, std::log(1 + std::exp(-0.5)), 1e-15);
  EXPECT_NEAR(bound.row(0, 0, 1).lse, std::log(1 + std::exp(-2)), 1e-15);
}

TEST(Score, CustomRegion) { // s + 2 (i - j): query at key 1 of 2
  Bound bound = weightsOf(R"(score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %d = arith.subi %i, %j : index
      %n = arith.index_cast %d : index to i32
      %x = arith.sitofp %n : i32 to f32
      %two = arith.constant 2.0 : f32
      %y = arith.mulf %x, %two : f32
      %r = arith.addf %s, %y : f32
      attn.yield %r : f32
  })",
                          1, {0.25, 3});
  EXPECT_NEAR(bound.row(0, 0).lse, std::log(std::exp(2.25) + std::exp(3)), 1e-15);
}

TEST(Score, CustomRegionMayHideKeys) {
  Bound bound = weightsOf(R"(score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %inf = arith.constant 0xFF800000 : f32
      %one = arith.constant 1 : index
      %c = arith.cmpi eq, %j, %one : index
      %r = arith.select %c, %inf, %s : f32
      attn.yield %r : f32
  })",
                          1, {0, 0, 0});
  EXPECT_EQ(seenBy(bound, 0), "#.#");
}

TEST(Score, SinkJoinsTheDenominatorOnceAndNotTheLse) {
  Bound bound = weightsOf("mask(causal) sink(arg0)", 3, {1, 2}, 1, "args(%s : tensor<1xf32>)",
                          ", %s: tensor<1xf32>");
  bound.bind("arg0", ElementType::F32, {1}, {2});
  RowResult row = bound.row(0, 2);
  double keys = std::exp(1) + std::exp(2);
  EXPECT_NEAR(row.output[0], std::exp(1) / (keys + std::exp(2)), 1e-15);
  EXPECT_NEAR(row.lse, std::log(keys), 1e-15);
  RowResult empty = bound.row(0, 0); // no key: the sink alone in the denominator
  EXPECT_EQ(empty.output, (std::vector<double>{0, 0}));
  EXPECT_EQ(empty.lse, -kInfinity);
}

TEST(Score, SoftmaxIsShiftInvariantAtLargeLogits) { // A18
  std::vector<double> scores = {-2.45e5, -2.45e5 - 1, -2.45e5 + 0.5};
  RowResult row = weightsOf("", 1, scores).row(0, 0);
  double sum = 1 + std::exp(-1) + std::exp(0.5);
  EXPECT_NEAR(row.output[0], 1 / sum, 1e-9);
  EXPECT_NEAR(row.lse, -2.45e5 + std::log(sum), 1e-9);
  EXPECT_EQ(weightsOf("", 1, {-2.45e5}).row(0, 0).output[0], 1); // one key
}

TEST(Score, NotANumberStays) {
  RowResult row = weightsOf("", 1, {0, std::nan(""), 1}).row(0, 0);
  for (double o : row.output)
    EXPECT_TRUE(std::isnan(o));
  EXPECT_TRUE(std::isnan(row.lse));
  // A row that does not see it has nothing of it.
  Bound hidden = weightsOf("mask(window<1>)", 1, {0, std::nan(""), 1});
  EXPECT_EQ(hidden.row(0, 0).output, (std::vector<double>{0, 0, 1}));
}

} // namespace
} // namespace llmopt::reference

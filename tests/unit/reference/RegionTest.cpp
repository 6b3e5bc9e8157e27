// The interpreter of regions: each op's meaning, read off a custom score.
#include "Support.h"

#include "llvm/ADT/StringExtras.h"

#include <cmath>

namespace llmopt::reference {
namespace {

/// What a region with this body (yielding %r : f32) makes of score `s`; i = j = 2.
double run(const std::string &body, double s) {
  Bound bound = weightsOf(
      "mask(window<1>) score {\n^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):\n" +
          body + "\nattn.yield %r : f32\n}",
      1, {0, 0, s});
  return bound.row(0, 0).lse;
}

/// The same for an integer expression: `body` makes %n : i32 of %x : i32.
int64_t runInteger(const std::string &body, int64_t x) {
  return int64_t(run("%x = arith.constant " + std::to_string(x) + " : i32\n" + body +
                         "\n%r = arith.sitofp %n : i32 to f32",
                     0));
}

TEST(Region, RealOps) {
  EXPECT_EQ(run("%r = arith.negf %s : f32", 3), -3);
  EXPECT_EQ(run("%c = arith.constant 0.25 : f32\n%r = arith.divf %s, %c : f32", 3), 12);
  EXPECT_EQ(run("%c = arith.constant 1.0 : f32\n%r = arith.maximumf %s, %c : f32", -3), 1);
  EXPECT_EQ(run("%c = arith.constant 1.0 : f32\n%r = arith.minnumf %s, %c : f32", -3), -3);
  EXPECT_NEAR(run("%r = math.tanh %s : f32", 0.5), std::tanh(0.5), 1e-15);
  EXPECT_NEAR(run("%r = math.rsqrt %s : f32", 4), 0.5, 1e-15);
  EXPECT_NEAR(run("%r = math.fma %s, %s, %s : f32", 3), 12, 1e-15);
  EXPECT_EQ(run("%r = math.roundeven %s : f32", 2.5), 2);
  EXPECT_EQ(run("%r = math.powf %s, %s : f32", 3), 27);
  for (auto [op, wanted] : {std::pair("isnan", 0), {"isinf", 1}, {"isfinite", 0}})
    EXPECT_EQ(run("%e = arith.constant 0x7F800000 : f32\n%c = math." + std::string(op) +
                      " %e : f32\n%r = arith.uitofp %c : i1 to f32",
                  0),
              wanted)
        << op;
}

TEST(Region, WhatFloat32CannotHoldIsInfinite) {
  EXPECT_NEAR(run("%r = math.exp %s : f32", 88), std::exp(88), 1e25);
  EXPECT_TRUE(std::isnan(run("%r = math.exp %s : f32", 89))); // a score of inf: inf - inf
  EXPECT_EQ(run("%e = math.exp %s : f32\n%r = arith.negf %e : f32", 89), -INFINITY); // hidden
  EXPECT_EQ(run("%e = math.exp %s : f32\n%o = arith.constant 1.0 : f32\n"
                "%r = arith.divf %o, %e : f32",
                200),
            0);
  EXPECT_EQ(run("%r = math.powf %s, %s : f32", 0), 1);
}

TEST(Region, ScoresAtTheEdgeOfFloat32AreUndecided) {
  auto mayOverflow = [](double score) {
    Bound bound = weightsOf("score {\n^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):\n"
                            "%r = math.exp %s : f32\nattn.yield %r : f32\n}",
                            1, {0, score});
    return bound.row(0, 0).mayOverflow;
  };
  EXPECT_FALSE(mayOverflow(80));
  EXPECT_FALSE(mayOverflow(88.3));
  EXPECT_TRUE(mayOverflow(88.5)); // beyond ln 2 of the largest float32
  EXPECT_TRUE(mayOverflow(88.72283));
  EXPECT_FALSE(mayOverflow(90)); // NaN is due
}

TEST(Region, IndexArithmeticHas64Bits) {
  auto isNegative = [](const std::string &body) {
    return run(body + "\n%z = arith.constant 0 : index\n%c = arith.cmpi slt, %n, %z : index\n"
                      "%r = arith.uitofp %c : i1 to f32",
               0);
  };
  std::string most = "%m = arith.constant 9223372036854775807 : index\n";
  EXPECT_EQ(isNegative(most + "%n = arith.subi %m, %j : index"), 0);
  EXPECT_EQ(isNegative(most + "%n = arith.addi %m, %j : index"), 1);
  EXPECT_EQ(isNegative("%m = arith.constant 4611686018427387903 : index\n"
                       "%n = arith.muli %m, %j : index"),
            0);
  EXPECT_EQ(isNegative("%m = arith.constant 4611686018427387905 : index\n"
                       "%n = arith.muli %m, %j : index"),
            1);
}

TEST(Region, Comparisons) {
  for (auto [predicate, less, equal, nan] :
       {std::tuple("olt", 1, 0, 0), std::tuple("ole", 1, 1, 0), std::tuple("ogt", 0, 0, 0),
        std::tuple("oeq", 0, 1, 0), std::tuple("one", 1, 0, 0), std::tuple("ult", 1, 0, 1),
        std::tuple("ueq", 0, 1, 1), std::tuple("une", 1, 0, 1), std::tuple("uno", 0, 0, 1),
        std::tuple("ord", 1, 1, 0)}) {
    auto value = [&, p = predicate](const std::string &a) {
      return run("%z = arith.constant 2.0 : f32\n%a = arith.constant " + a +
                     " : f32\n%c = arith.cmpf " + p +
                     ", %a, %z : f32\n%r = arith.uitofp %c : i1 to f32",
                 0);
    };
    EXPECT_EQ(value("1.0"), less) << predicate;
    EXPECT_EQ(value("2.0"), equal) << predicate;
    EXPECT_EQ(value("0x7FC00000"), nan) << predicate;
  }
}

TEST(Region, IntegerOps) {
  EXPECT_EQ(runInteger("%c = arith.constant 3 : i32\n%n = arith.divsi %x, %c : i32", -7), -2);
  EXPECT_EQ(runInteger("%c = arith.constant 3 : i32\n%n = arith.floordivsi %x, %c : i32", -7), -3);
  EXPECT_EQ(runInteger("%c = arith.constant 3 : i32\n%n = arith.ceildivsi %x, %c : i32", 7), 3);
  EXPECT_EQ(runInteger("%c = arith.constant 3 : i32\n%n = arith.remsi %x, %c : i32", -7), -1);
  EXPECT_EQ(runInteger("%c = arith.constant 3 : i32\n%n = arith.remui %x, %c : i32", -1),
            0); // 2^32-1 mod 3
  EXPECT_EQ(runInteger("%c = arith.constant 1 : i32\n%n = arith.shrui %x, %c : i32", -2),
            2147483647);
  EXPECT_EQ(runInteger("%c = arith.constant 1 : i32\n%n = arith.shrsi %x, %c : i32", -2), -1);
  EXPECT_EQ(runInteger("%c = arith.constant 65536 : i32\n%n = arith.muli %x, %c : i32", 65536),
            0); // wraps
  EXPECT_EQ(runInteger("%c = arith.cmpi ult, %x, %x : i32\n%n = arith.extui %c : i1 to i32", 5), 0);
  EXPECT_EQ(runInteger("%c = arith.cmpi eq, %x, %x : i32\n%n = arith.extsi %c : i1 to i32", 5), -1);
  EXPECT_EQ(runInteger("%t = arith.trunci %x : i32 to i8\n%n = arith.extsi %t : i8 to i32", 200),
            -56);
  EXPECT_EQ(runInteger("%n = math.absi %x : i32", -9), 9);
  EXPECT_EQ(runInteger("%n = math.ctlz %x : i32", 9), 28);
  EXPECT_EQ(runInteger("%n = math.cttz %x : i32", 0), 32);
  EXPECT_EQ(runInteger("%n = math.ctpop %x : i32", -9), 31);
  auto power = [](int64_t x, int n) {
    return runInteger(
        "%c = arith.constant " + std::to_string(n) + " : i32\n%n = math.ipowi %x, %c : i32", x);
  };
  EXPECT_EQ(power(-3, 3), -27);
  EXPECT_EQ(power(7, 0), 1);
  EXPECT_EQ(power(46341, 2), 46341ll * 46341 - (1ll << 32)); // wraps
  EXPECT_EQ(power(-1, -3), -1);
  EXPECT_EQ(power(2, -1), 0);
}

TEST(Region, PositionsAndConversions) { // i = j = 2
  EXPECT_EQ(run("%d = arith.muli %i, %j : index\n%n = arith.index_cast %d : index to i32\n"
                "%r = arith.sitofp %n : i32 to f32",
                0),
            4);
  EXPECT_EQ(run("%n = arith.fptosi %s : f32 to i32\n%r = arith.sitofp %n : i32 to f32", -2.75), -2);
  EXPECT_EQ(run("%t = arith.truncf %s : f32 to bf16\n%r = arith.extf %t : bf16 to f32", 1 + 0x1p-9),
            1);
}

} // namespace
} // namespace llmopt::reference

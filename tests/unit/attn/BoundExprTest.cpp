// Folding, evaluation and proofs of bound expressions.
#include "dialect/attn/mask/BoundProof.h"
#include "dialect/attn/mask/Bounds.h"

#include <gtest/gtest.h>

#include <limits>

using namespace llmopt::attn;

namespace {

const BoundExpr lo = BoundExpr::symbol(BoundSymbol::QueryLo);
const BoundExpr hi = BoundExpr::symbol(BoundSymbol::QueryHi);
const BoundExpr keys = BoundExpr::symbol(BoundSymbol::KeyLen);
const BoundExpr number = BoundExpr::scalar(0);

} // namespace

TEST(BoundExpr, ConstantsFold) {
  EXPECT_EQ((BoundExpr(2) + 3).constant(), 5);
  EXPECT_EQ((BoundExpr(2) - 3).constant(), -1);
  EXPECT_EQ((BoundExpr(2) * 3).constant(), 6);
  EXPECT_EQ(min(2, 3).constant(), 2);
  EXPECT_EQ(max(2, 3).constant(), 3);
  EXPECT_EQ(floorDiv(-7, 2).constant(), -4);
  EXPECT_EQ(floorMod(-7, 2).constant(), 1);
}

TEST(BoundExpr, DivisionByNothingIsZero) {
  for (int64_t divisor : {0, -1, -5}) {
    EXPECT_EQ(floorDiv(7, divisor).constant(), 0);
    EXPECT_EQ(floorMod(7, divisor).constant(), 0);
  }
}

TEST(BoundExpr, OverflowSaturates) {
  int64_t most = std::numeric_limits<int64_t>::max(), least = std::numeric_limits<int64_t>::min();
  EXPECT_EQ((BoundExpr(most) + 1).constant(), most);
  EXPECT_EQ((BoundExpr(least) - 1).constant(), least);
  EXPECT_EQ((BoundExpr(most) * -2).constant(), least);
  EXPECT_EQ(floorDiv(least, 1).constant(), least);
}

TEST(BoundExpr, IdentitiesFold) {
  EXPECT_EQ(lo + 0, lo);
  EXPECT_EQ(0 + lo, lo);
  EXPECT_EQ(lo - 0, lo);
  EXPECT_EQ(lo * 1, lo);
  EXPECT_EQ((lo * 0).constant(), 0);
  EXPECT_EQ((lo - lo).constant(), 0);
  EXPECT_EQ(min(lo, lo), lo);
  EXPECT_EQ(max(lo, lo), lo);
  EXPECT_EQ(floorDiv(lo, 1), lo);
  EXPECT_EQ(floorMod(lo, 1).constant(), 0);
}

TEST(BoundExpr, NestedConstantsMeet) {
  EXPECT_EQ(lo + 1 + 2, lo + 3);
  EXPECT_EQ(lo - 4 + 4, lo);
  EXPECT_EQ(1 + (2 + lo), lo + 3);
  EXPECT_EQ(min(min(lo, 5), 3), min(lo, 3));
  EXPECT_EQ(max(max(lo, 5), 3), max(lo, 5));
  EXPECT_EQ(lo * 2 * 3, lo * 6);
}

TEST(BoundExpr, EqualityIsStructural) {
  EXPECT_EQ(lo + keys, lo + keys);
  EXPECT_FALSE(lo + keys == keys + lo);
  EXPECT_FALSE(BoundExpr::scalar(0) == BoundExpr::scalar(1));
  EXPECT_FALSE(BoundExpr::scalar(0) == BoundExpr::scalar(0, BoundExprKind::ScalarMin));
}

TEST(BoundExpr, Evaluates) {
  BoundValues values{3, 5, 4, 9, {7}, {1}, {8}};
  EXPECT_EQ(evaluate(lo + hi * 10 + keys * 100, values), 953);
  EXPECT_EQ(evaluate(number, values), 7);
  EXPECT_EQ(evaluate(BoundExpr::scalar(0, BoundExprKind::ScalarMin), values), 1);
  EXPECT_EQ(evaluate(BoundExpr::scalar(0, BoundExprKind::ScalarMax), values), 8);
  EXPECT_EQ(evaluate(BoundExpr::symbol(BoundSymbol::QueryLen), values), 4);
  EXPECT_EQ(evaluate(floorMod(lo - 10, number), values), 0);
  EXPECT_EQ(evaluate(BoundExpr::scalar(3), values), 0); // none given
}

TEST(BoundProof, LinearForms) {
  EXPECT_TRUE(provablyLessEqual(lo, hi));
  EXPECT_TRUE(provablyLessEqual(lo - 3, lo));
  EXPECT_FALSE(provablyLessEqual(lo, lo - 3));
  EXPECT_FALSE(provablyLessEqual(hi, lo));
  EXPECT_FALSE(provablyLessEqual(lo, keys));
  EXPECT_TRUE(provablyLessEqual(0, keys));
  EXPECT_TRUE(provablyLessEqual(-kUnbounded, lo - number));
  EXPECT_TRUE(provablyLessEqual(lo + number * 2, kUnbounded));
}

TEST(BoundProof, Cases) {
  EXPECT_TRUE(provablyLessEqual(lo, max(lo, number)));
  EXPECT_TRUE(provablyLessEqual(min(lo, number), number));
  EXPECT_FALSE(provablyLessEqual(max(lo, number), lo));
  EXPECT_TRUE(provablyLessEqual(1, max(number, 1)));
  EXPECT_TRUE(provablyLessEqual(lo + 1 - max(number, 1), lo));
  BoundExpr size = max(number, 1);
  EXPECT_TRUE(provablyLessEqual(lo - floorMod(lo, size), lo));
  EXPECT_TRUE(provablyLessEqual(lo + 1, lo - floorMod(lo, size) + size));
  EXPECT_FALSE(provablyLessEqual(lo + 2, lo - floorMod(lo, size) + size));
}

TEST(BoundProof, GrowsWithRow) {
  EXPECT_TRUE(growsWithRow(lo + number, BoundSymbol::QueryLo));
  EXPECT_TRUE(growsWithRow(lo - floorMod(lo + keys, number), BoundSymbol::QueryLo));
  EXPECT_TRUE(growsWithRow(max(lo, keys), BoundSymbol::QueryLo));
  EXPECT_FALSE(growsWithRow(number - lo, BoundSymbol::QueryLo));
  EXPECT_FALSE(growsWithRow(floorMod(lo, number), BoundSymbol::QueryLo));
}

TEST(Bounds, ManyIntervalsStayWithinTheLimit) {
  MaskBounds many = {IntervalSet::none(), IntervalSet::none()};
  for (int i = 0; i < 30; ++i) {
    IntervalSet one = IntervalSet::of(10 * i, 10 * i + 1);
    many = unite(many, {one, one});
  }
  EXPECT_LE(many.may.intervals.size(), kMaxIntervals);
  EXPECT_LE(many.surely.intervals.size(), kMaxIntervals);
  EXPECT_FALSE(many.exact);
  MaskBounds outside = complement(many);
  EXPECT_LE(outside.may.intervals.size(), kMaxIntervals);
  BoundValues values;
  for (int64_t key = 0; key < 300; ++key) {
    bool member = key % 10 == 0;
    EXPECT_TRUE(!member || contains(many.may, key, values)) << key;
    EXPECT_TRUE(member || !contains(many.surely, key, values)) << key;
    EXPECT_TRUE(member || contains(outside.may, key, values)) << key;
    EXPECT_TRUE(!member || !contains(outside.surely, key, values)) << key;
  }
}

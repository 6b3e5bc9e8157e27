#include "runtime/bundle/BoundsEval.h"

#include <gtest/gtest.h>
#include <limits>
#include <random>

using namespace llmopt::bundle;

namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

BoundInsn constant(int64_t value) { return {BoundOp::Const, value}; }

int64_t run(BoundProgram program, const BoundInputs &inputs = {}) {
  EXPECT_TRUE(validate(program, 4).ok()) << validate(program, 4).toString();
  return evaluate(program, inputs);
}

int64_t binary(BoundOp op, int64_t a, int64_t b) { return run({constant(a), constant(b), {op}}); }

/// The definition itself, one key at a time.
bool sees(std::span<const KeyInterval> intervals, int64_t keyLen, int64_t key) {
  for (const KeyInterval &part : intervals)
    if (key >= std::max<int64_t>(part.lo, 0) && key < std::min(part.hi, keyLen) &&
        (part.stride <= 0 || floorMod(key - part.phase, part.stride) < part.width))
      return true;
  return false;
}

} // namespace

TEST(BoundProgram, LeavesReadTheInputs) {
  std::vector<int64_t> scalars = {5, 6}, low = {1, 2}, high = {8, 9};
  BoundInputs inputs{.queryLo = 3,
                     .queryHi = 4,
                     .queryLen = 10,
                     .keyLen = 20,
                     .scalars = scalars,
                     .perHeadMin = low,
                     .perHeadMax = high};
  EXPECT_EQ(run({{BoundOp::QueryLo}}, inputs), 3);
  EXPECT_EQ(run({{BoundOp::QueryHi}}, inputs), 4);
  EXPECT_EQ(run({{BoundOp::QueryLen}}, inputs), 10);
  EXPECT_EQ(run({{BoundOp::KeyLen}}, inputs), 20);
  EXPECT_EQ(run({{BoundOp::Scalar, 1}}, inputs), 6);
  EXPECT_EQ(run({{BoundOp::ScalarMin, 1}}, inputs), 2);
  EXPECT_EQ(run({{BoundOp::ScalarMax, 0}}, inputs), 8);
  EXPECT_EQ(run({{BoundOp::Scalar, 3}}, inputs), 0) << "a missing value reads as 0";
}

TEST(BoundProgram, DivisionFloorsAndDefinesZero) {
  EXPECT_EQ(binary(BoundOp::FloorDiv, 7, 2), 3);
  EXPECT_EQ(binary(BoundOp::FloorDiv, -7, 2), -4);
  EXPECT_EQ(binary(BoundOp::FloorMod, -7, 2), 1);
  EXPECT_EQ(binary(BoundOp::FloorMod, -8, 2), 0);
  for (int64_t divisor : {int64_t{0}, int64_t{-1}, kMin}) {
    EXPECT_EQ(binary(BoundOp::FloorDiv, kMin, divisor), 0);
    EXPECT_EQ(binary(BoundOp::FloorMod, kMin, divisor), 0);
  }
  EXPECT_EQ(binary(BoundOp::FloorDiv, kMin, 1), kMin);
  EXPECT_EQ(binary(BoundOp::FloorMod, kMin, kMax), kMax - 1);
}

TEST(BoundProgram, ArithmeticSaturates) {
  EXPECT_EQ(binary(BoundOp::Add, kMax, 1), kMax);
  EXPECT_EQ(binary(BoundOp::Add, kMin, -1), kMin);
  EXPECT_EQ(binary(BoundOp::Sub, kMin, 1), kMin);
  EXPECT_EQ(binary(BoundOp::Sub, 0, kMin), kMax);
  EXPECT_EQ(binary(BoundOp::Mul, kMax, 2), kMax);
  EXPECT_EQ(binary(BoundOp::Mul, kMax, -2), kMin);
  EXPECT_EQ(binary(BoundOp::Mul, kMin, -1), kMax);
  EXPECT_EQ(binary(BoundOp::Min, 3, -4), -4);
  EXPECT_EQ(binary(BoundOp::Max, 3, -4), 3);
}

TEST(BoundProgram, ValidateRefusesMalformedPrograms) {
  EXPECT_FALSE(validate(BoundProgram{}, 0).ok());
  EXPECT_FALSE(validate(BoundProgram{{BoundOp::Add}}, 0).ok());
  EXPECT_FALSE(validate(BoundProgram{constant(1), {BoundOp::Add}}, 0).ok());
  EXPECT_FALSE(validate(BoundProgram{constant(1), constant(2)}, 0).ok());
  EXPECT_FALSE(validate(BoundProgram{{BoundOp::Scalar, 2}}, 2).ok());
  EXPECT_FALSE(validate(BoundProgram{{BoundOp::ScalarMin, -1}}, 2).ok());
  EXPECT_FALSE(validate(BoundProgram{{static_cast<BoundOp>(99)}}, 2).ok());
  EXPECT_FALSE(validate(BoundProgram(kMaxBoundInsns + 1, constant(1)), 0).ok());
  EXPECT_EQ(validate(BoundProgram{{BoundOp::Add}}, 0).message(),
            "bound program instruction 0 needs two operands; the stack holds 0");
}

TEST(BoundProgram, EvaluateSurvivesWhatValidateRefuses) {
  EXPECT_EQ(evaluate(BoundProgram{{BoundOp::Add}}, {}), 0);
  EXPECT_EQ(evaluate(BoundProgram{}, {}), 0);
  EXPECT_EQ(evaluate(BoundProgram(kMaxBoundInsns + 1, constant(1)), {}), 0);
}

TEST(BoundSet, ThinningNeedsAllThreePrograms) {
  BoundInterval interval{.lo = {constant(0)}, .hi = {{BoundOp::KeyLen}}};
  EXPECT_TRUE(validate(BoundSet{{interval}}, 0).ok());
  interval.stride = {constant(4)};
  EXPECT_FALSE(validate(BoundSet{{interval}}, 0).ok());
  interval.phase = {{BoundOp::QueryLo}};
  interval.width = {constant(1)};
  EXPECT_TRUE(validate(BoundSet{{interval}}, 0).ok());
}

TEST(BoundSet, CausalWindow) {
  // window<100>: keys max(0, p - 99) .. p.
  BoundInterval interval{.lo = {{BoundOp::QueryLo}, constant(99), {BoundOp::Sub}},
                         .hi = {{BoundOp::QueryHi}, constant(1), {BoundOp::Add}}};
  BoundSet set{{interval}};
  KeySet keys = evaluate(set, {.queryLo = 500, .queryHi = 510, .keyLen = 505});
  EXPECT_EQ(keys.firstVisible(0, kMax), 401);
  EXPECT_EQ(keys.lastVisible(0, kMax), 504);
  EXPECT_EQ(keys.visibleTiles(0, 505, 64), 2);
  KeySet before = evaluate(set, {.queryLo = -7, .queryHi = -3, .keyLen = 505});
  EXPECT_TRUE(before.empty()) << "queries before the first key see nothing";
}

TEST(BoundSet, NoLimitWindowSeesEverything) {
  BoundInterval interval{.lo = {{BoundOp::QueryLo}, constant(kMax), {BoundOp::Sub}},
                         .hi = {{BoundOp::QueryHi}, constant(kMax), {BoundOp::Add}}};
  KeySet keys = evaluate(BoundSet{{interval}}, {.queryLo = 5, .queryHi = 5, .keyLen = 9});
  EXPECT_EQ(keys.firstVisible(0, 9), 0);
  EXPECT_EQ(keys.lastVisible(0, 9), 8);
}

TEST(BoundSet, NonPositiveStrideIsAllOrNothing) {
  auto make = [](int64_t stride, int64_t width) {
    return BoundSet{{{.lo = {constant(0)},
                      .hi = {constant(8)},
                      .stride = {constant(stride)},
                      .phase = {constant(3)},
                      .width = {constant(width)}}}};
  };
  EXPECT_EQ(evaluate(make(0, 1), {.keyLen = 8}).visibleTiles(0, 8, 1), 8);
  EXPECT_EQ(evaluate(make(-2, 1), {.keyLen = 8}).visibleTiles(0, 8, 1), 8);
  EXPECT_TRUE(evaluate(make(0, 0), {.keyLen = 8}).empty());
  EXPECT_TRUE(evaluate(make(4, 0), {.keyLen = 8}).empty());
  EXPECT_EQ(evaluate(make(4, 1), {.keyLen = 8}).visibleTiles(0, 8, 1), 2);
}

TEST(KeySet, HugeStrideDoesNotOverflow) {
  KeyInterval interval{.lo = 0, .hi = kMax, .stride = kMax, .phase = kMin, .width = 1};
  KeySet keys(std::span(&interval, 1), kMax);
  EXPECT_EQ(keys.firstVisible(0, kMax), floorMod(kMin, kMax));
  KeyInterval wide{.lo = 0, .hi = kMax, .stride = kMax, .phase = 0, .width = kMax - 1};
  EXPECT_EQ(KeySet(std::span(&wide, 1), kMax).lastVisible(0, kMax), kMax - 2);
}

TEST(KeySet, MatchesTheDefinitionKeyByKey) {
  std::mt19937 random(7);
  auto pick = [&](int64_t lo, int64_t hi) {
    return std::uniform_int_distribution<int64_t>(lo, hi)(random);
  };
  for (int round = 0; round < 3000; ++round) {
    int64_t keyLen = pick(0, 40);
    std::vector<KeyInterval> intervals(pick(0, 3));
    for (KeyInterval &part : intervals) {
      part = {.lo = pick(-10, 40), .hi = pick(-5, 50)};
      if (pick(0, 1))
        part = {part.lo, part.hi, pick(1, 20), pick(-30, 30), pick(-1, 8)};
    }
    KeySet keys(intervals, keyLen);
    int64_t begin = pick(-3, 45), end = pick(-3, 45), tile = pick(1, 12);
    std::optional<int64_t> first, last;
    std::vector<int64_t> tiles;
    for (int64_t key = std::max<int64_t>(begin, 0); key < end; ++key)
      if (sees(intervals, keyLen, key)) {
        first = first ? first : key;
        last = key;
        if (tiles.empty() || tiles.back() != key / tile)
          tiles.push_back(key / tile);
      }
    ASSERT_EQ(keys.firstVisible(begin, end), first) << round;
    ASSERT_EQ(keys.lastVisible(begin, end), last) << round;
    ASSERT_EQ(keys.intersects(begin, end), first.has_value()) << round;
    ASSERT_EQ(keys.visibleTiles(begin, end, tile), static_cast<int64_t>(tiles.size())) << round;
    for (size_t count = 1; count <= tiles.size() + 1; ++count) {
      int64_t expected = count <= tiles.size() ? std::min(end, (tiles[count - 1] + 1) * tile) : end;
      ASSERT_EQ(keys.endOfVisibleTile(begin, end, tile, count), expected) << round;
    }
  }
}

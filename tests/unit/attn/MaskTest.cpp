// Every mask alone, the pairs that models use, and random compositions.
#include "tests/unit/attn/BruteForce.h"
#include "tests/unit/attn/MaskLibrary.h"

#include <gtest/gtest.h>

#include <random>

using namespace llmopt::attn;
using namespace llmopt::attn::test;

static void expectWithNegation(const MaskSpec &spec, Demand demand) {
  expectMask(spec, demand);
  expectMask(negated(spec), demand);
}

TEST(Mask, Causal) {
  expectWithNegation(causal(), Demand::Exact);
  expectWithNegation(causalTopLeft(), Demand::Exact);
}

TEST(Mask, Window) {
  for (int size : {1, 2, 5, 30})
    expectWithNegation(window(size), Demand::Exact);
}

TEST(Mask, TwoSidedWindow) {
  for (int left : {-1, 0, 3})
    for (int right : {-1, 0, 4})
      expectWithNegation(window(left, right), Demand::Exact);
}

TEST(Mask, Sink) {
  for (int count : {0, 1, 4, 30})
    expectWithNegation(sink(count), Demand::Exact);
}

TEST(Mask, Dilated) {
  for (int stride : {1, 2, 3, 7, 30})
    expectWithNegation(dilated(stride), Demand::Exact);
}

TEST(Mask, Chunked) {
  for (int size : {1, 2, 4, 7, 30})
    expectWithNegation(chunked(size), Demand::Exact);
}

TEST(Mask, DenseIsUnknown) {
  expectWithNegation(dense(), Demand::Sound);
  EXPECT_FALSE(boundsOf(ParsedMask(testContext(), dense()), Defaults::Folded).exact);
}

constexpr TreeShape kTrees[] = {TreeShape::Chain, TreeShape::Causal,      TreeShape::Binary,
                                TreeShape::Fan,   TreeShape::TwoBranches, TreeShape::Arbitrary};

TEST(Mask, Tree) {
  for (TreeShape shape : kTrees) {
    expectWithNegation(tree(shape), Demand::Sound);
    EXPECT_FALSE(boundsOf(ParsedMask(testContext(), tree(shape)), Defaults::Folded).exact);
  }
}

// The loops over a long cache: keys before the drafts are visible without a look at the sets,
// keys behind the last row are not visited.
TEST(Mask, TreeBoundsKeysBeforeTheDrafts) {
  MaskBounds bounds = boundsOf(ParsedMask(testContext(), tree(TreeShape::Fan)), Defaults::Folded);
  BoundValues values;
  values.queryLen = 7;
  values.keyLen = 1000;
  values.queryLo = 993 + 2;
  values.queryHi = 993 + 4;
  for (int64_t key = 0; key < 1000; ++key) {
    EXPECT_EQ(contains(bounds.may, key, values), key <= 997) << key;
    EXPECT_EQ(contains(bounds.surely, key, values), key < 993) << key;
  }
  // From its 64th on, the queries of a long row see as causal.
  values.queryLen = 600;
  values.queryLo = 400 + 500;
  values.queryHi = 400 + 501;
  for (int64_t key = 0; key < 1000; ++key)
    EXPECT_EQ(contains(bounds.surely, key, values), key < 400 || (key >= 464 && key <= 900)) << key;
}

// By positions of the branch, not by slots.
TEST(Mask, TreeWithMasksOfPositions) {
  auto expectSound = [](const MaskSpec &spec) {
    ParsedMask mask(testContext(), spec);
    expectBounds(mask, Defaults::RunTime, Demand::Sound);
    expectPredicate(mask, Lengths::Some);
  };
  for (TreeShape shape : kTrees)
    for (const MaskSpec &other : {causal(), dilated(3), chunked(4), window(3), window(-1, 2)}) {
      MaskSpec placed = underTree(other, shape);
      expectSound(both(tree(shape), placed));
      expectSound(both(tree(shape), either(negated(placed), underTree(sink(2), shape))));
      expectSound(either(tree(shape), placed));
      expectSound(both(placed, negated(tree(shape))));
    }
}

// SURELY of a window with a tree keeps what every depth sees, MAY what some depth sees.
TEST(Mask, TreeAndWindowBoundLoops) {
  MaskSpec spec = both(tree(TreeShape::Binary), underTree(window(100), TreeShape::Binary));
  MaskBounds bounds = boundsOf(ParsedMask(testContext(), spec), Defaults::Folded);
  BoundValues values;
  values.queryLen = 7;
  values.keyLen = 1000;
  values.queryLo = 993 + 2;
  values.queryHi = 993 + 4;
  for (int64_t key = 0; key < 1000; ++key) {
    EXPECT_EQ(contains(bounds.may, key, values), key >= 993 - 99 && key <= 997) << key;
    EXPECT_EQ(contains(bounds.surely, key, values), key > 997 - 100 && key < 993) << key;
  }
}

TEST(Mask, CausalAndWindow) {
  for (int size : {1, 3, 8})
    expectWithNegation(both(causal(), window(size)), Demand::Exact);
}

TEST(Mask, SinkOrWindow) {
  for (int count : {0, 1, 4})
    for (int size : {1, 3, 8}) {
      expectWithNegation(either(sink(count), window(size)), Demand::Exact);
      expectWithNegation(both(causal(), either(sink(count), window(size))), Demand::Sound);
    }
}

TEST(Mask, CausalAndChunked) {
  for (int size : {1, 3, 8})
    expectWithNegation(both(causal(), chunked(size)), Demand::Exact);
}

TEST(Mask, WindowAndDilated) {
  for (int stride : {1, 2, 5})
    expectWithNegation(both(window(8), dilated(stride)), Demand::Sound);
}

TEST(Mask, Contradiction) {
  for (const MaskSpec &mask : {causal(), window(3), sink(4), chunked(4), dilated(3)}) {
    expectWithNegation(both(mask, negated(mask)), Demand::Sound);
    expectWithNegation(either(mask, negated(mask)), Demand::Sound);
  }
  MaskBounds none =
      boundsOf(ParsedMask(testContext(), both(causal(), negated(causal()))), Defaults::Folded);
  EXPECT_TRUE(none.may.intervals.empty());
}

TEST(Mask, RunTimeNumbers) {
  auto withArg = [](std::string text, std::vector<int64_t> values, Predicate sees) {
    std::string type = values.size() == 1 ? "i32" : "tensor<4xi32>";
    return MaskSpec{std::move(text), std::move(sees), {}, {{type, std::move(values)}}};
  };
  const std::vector<std::vector<int64_t>> choices = {{1}, {4}, {1, 1, 1, 1}, {2, 5, 1, 3}};
  for (const std::vector<int64_t> &values : choices) {
    auto of = [values](const Row &row) { return values[values.size() == 1 ? 0 : row.head]; };
    Demand demand = values.size() == 1 ? Demand::Exact : Demand::Sound;
    expectWithNegation(
        withArg("window<arg0>", values,
                [=](const Row &row, int key) { return window(of(row)).sees(row, key); }),
        demand);
    expectWithNegation(
        withArg("sink<arg0>", values, [=](const Row &row, int key) { return key < of(row); }),
        demand);
    expectWithNegation(
        withArg("dilated<arg0>", values,
                [=](const Row &row, int key) { return dilated(of(row)).sees(row, key); }),
        demand);
    expectWithNegation(
        withArg("chunked<arg0>", values,
                [=](const Row &row, int key) { return chunked(of(row)).sees(row, key); }),
        demand);
  }
}

TEST(Mask, RunTimeWindowSides) {
  for (std::vector<int64_t> left :
       {std::vector<int64_t>{-1}, {2}, {-1, -1, -1, -1}, {-1, 3, 0, 5}, {4, 1, 2, 7}}) {
    auto leftOf = [left](const Row &row) { return left[left.size() == 1 ? 0 : row.head]; };
    std::string type = left.size() == 1 ? "i32" : "tensor<4xi32>";
    for (int right : {-1, 0, 2}) {
      MaskSpec spec = {
          "window<left = arg0, right = " + std::to_string(right) + ">",
          [=](const Row &row, int key) { return window(leftOf(row), right).sees(row, key); },
          {},
          {{type, left}}};
      expectWithNegation(spec, left.size() == 1 ? Demand::Exact : Demand::Sound);
    }
  }
}

// A caller may hand in anything at run time: a number that no mask allows must not make
// bounds and predicate differ.
TEST(Mask, RunTimeNumbersOutOfRange) {
  for (int64_t value : {-7, -1, 0}) {
    auto check = [&](std::string text, Predicate sees) {
      ParsedMask mask(testContext(), {std::move(text), std::move(sees), {}, {{"i32", {value}}}});
      expectPredicate(mask, Lengths::Some);
      expectBounds(mask, Defaults::RunTime, Demand::SoundOnly);
    };
    check("window<arg0>", [](const Row &, int) { return false; });
    check("sink<arg0>", [](const Row &, int) { return false; });
    check("dilated<arg0>", [](const Row &, int) { return true; });
    check("chunked<arg0>", [](const Row &row, int key) { return key == row.position(); });
  }
}

TEST(Mask, CustomRegions) {
  for (const auto &[spec, exact] : customs())
    expectWithNegation(spec, exact ? Demand::Exact : Demand::Sound);
}

//===----------------------------------------------------------------------===//
// Random compositions
//===----------------------------------------------------------------------===//

namespace {

class Composer {
public:
  explicit Composer(unsigned seed) : random(seed) {}

  MaskSpec compose(int depth) {
    if (depth == 0 || pick(5) == 0)
      return leaf();
    switch (pick(5)) {
    case 0:
      return negated(compose(depth - 1));
    case 1:
    case 2:
      return both(compose(depth - 1), compose(depth - 1));
    default:
      return either(compose(depth - 1), compose(depth - 1));
    }
  }

private:
  int pick(int count) { return int(random() % unsigned(count)); }

  MaskSpec leaf() {
    static const std::vector<std::pair<MaskSpec, bool>> regions = customs();
    switch (pick(11)) {
    case 0:
    case 1:
      return causal();
    case 2:
      return causalTopLeft();
    case 3:
    case 4:
      return window(1 + pick(9));
    case 5:
      return window(pick(6) - 1, pick(6) - 1);
    case 6:
      return sink(pick(7));
    case 7:
      return dilated(1 + pick(5));
    case 8:
      return chunked(1 + pick(7));
    case 9:
      return pick(3) ? sink(pick(3)) : dense();
    default:
      return regions[pick(int(regions.size()))].first;
    }
  }

  std::mt19937 random;
};

class RandomMask : public testing::TestWithParam<int> {};

} // namespace

TEST_P(RandomMask, BoundsAndPredicate) {
  constexpr int kEach = 75;
  for (int i = 0; i < kEach; ++i) {
    Composer composer(unsigned(GetParam() * kEach + i));
    ParsedMask mask(testContext(), composer.compose(1 + i % 3));
    expectBounds(mask, i % 2 ? Defaults::Folded : Defaults::RunTime, Demand::Sound);
    expectPredicate(mask, Lengths::Some);
    if (HasFailure())
      return;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomMask, testing::Range(0, 8));

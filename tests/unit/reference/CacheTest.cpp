// attn.merge and attn.append.
#include "Support.h"

#include <cmath>

namespace llmopt::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A merge of N partials with one row, one head and d_v = 2.
Bound merge(const std::vector<double> &lses, const std::vector<double> &outputs, const std::string &type = "f32") {
  Bound bound("func.func @f(%p: tensor<?x?x1x2xf32>, %l: tensor<?x?x1xf32>) -> (tensor<?x1x2x" + type +
              ">, tensor<?x1xf32>) {\n %o, %m = attn.merge %p, %l : tensor<?x?x1x2xf32>, tensor<?x?x1xf32> -> "
              "tensor<?x1x2x" + type + ">, tensor<?x1xf32>\n return %o, %m : tensor<?x1x2x" + type +
              ">, tensor<?x1xf32>\n}");
  bound.bind("partials", ElementType::F32, {int64_t(lses.size()), 1, 1, 2}, outputs);
  bound.bind("partial_lse", ElementType::F32, {int64_t(lses.size()), 1, 1}, lses);
  return bound;
}

TEST(Merge, WeighsByLse) {
  RowResult row = merge({std::log(1.0), std::log(3.0)}, {4, 0, 8, 1}).row(0, 0);
  EXPECT_NEAR(row.output[0], 7, 1e-6);
  EXPECT_NEAR(row.output[1], 0.75, 1e-7);
  EXPECT_NEAR(row.lse, std::log(4), 1e-7);
}

TEST(Merge, EmptyPartialsGiveNothing) { // A2
  RowResult row = merge({-kInfinity, -kInfinity}, {0, 0, 0, 0}).row(0, 0);
  EXPECT_EQ(row.output, (std::vector<double>{0, 0}));
  EXPECT_EQ(row.lse, -kInfinity);
  RowResult none = merge({}, {0}).row(0, 0);
  EXPECT_EQ(none.output, (std::vector<double>{0, 0}));
  EXPECT_EQ(none.lse, -kInfinity);
}

TEST(Merge, AnEmptyPartialCountsForNothingWhateverItHolds) { // A2
  RowResult row = merge({-kInfinity, 0, -kInfinity, 0}, {std::nan(""), kInfinity, 2, 4, -kInfinity, 1, 4, 8}).row(0, 0);
  EXPECT_EQ(row.output, (std::vector<double>{3, 6}));
  EXPECT_EQ(row.visible, 2);
}

TEST(Merge, OneFinitePartialComesBackBitForBit) { // A2, in either order
  double lse = double(-49.123f), a = double(0.1f), b = double(-3.7f);
  for (bool first : {true, false}) {
    RowResult row = first ? merge({lse, -kInfinity}, {a, b, 9, 9}).row(0, 0) : merge({-kInfinity, lse}, {9, 9, a, b}).row(0, 0);
    EXPECT_EQ(row.output, (std::vector<double>{a, b}));
    EXPECT_EQ(row.lse, lse);
    EXPECT_TRUE(judge(row, ElementType::F32, row.output, &row.lse).passed);
    std::vector<double> off = {std::nextafter(float(a), 1.0f), b};
    EXPECT_FALSE(judge(row, ElementType::F32, off, &row.lse).passed);
  }
}

TEST(Merge, RoundsToTheOutputType) {
  RowResult row = merge({0, -kInfinity}, {0.1, 1.0, 9, 9}, "bf16").row(0, 0);
  EXPECT_EQ(row.rounded[0], 0.10009765625);
}

struct Append {
  Bound bound;
  explicit Append(const std::string &options)
      : bound("func.func @f(%k: tensor<?x2x1xf32>, %v: tensor<?x2x1xf32>, %s: tensor<?xi64>, %kv: !attn.kv_cache<"
              "2x1xf32, page = 4" + options + ">) {\n attn.append %k, %v, %s, %kv : tensor<?x2x1xf32>, "
              "tensor<?x2x1xf32>, tensor<?xi64>, !attn.kv_cache<2x1xf32, page = 4" + options + ">\n return\n}") {
    bound.bind("new_k", ElementType::F32, {3, 2, 1}, {1, 2, 3, 4, 5, 6});
    bound.bind("new_v", ElementType::F32, {3, 2, 1}, {11, 12, 13, 14, 15, 16});
  }
};

TEST(Append, WritesRowsToTheirSlots) {
  Append append("");
  Array &k = append.bound.bind("k_pool", ElementType::F32, {5, 4, 2, 1}, {0});
  Array &v = append.bound.bind("v_pool", ElementType::F32, {5, 4, 2, 1}, {0});
  append.bound.bind("slots", ElementType::I64, {3}, {19, -1, 6});
  ASSERT_FALSE(bool(execute(append.bound.append, append.bound.inputs)));
  for (int64_t page = 0; page < 5; ++page)
    for (int64_t slot = 0; slot < 4; ++slot)
      for (int64_t h = 0; h < 2; ++h) { // A21: the row with slot -1 goes nowhere
        double want = page == 4 && slot == 3 ? 1 + double(h) : page == 1 && slot == 2 ? 5 + double(h) : 0;
        EXPECT_EQ(k.at({page, slot, h, 0}), want);
        EXPECT_EQ(v.at({page, slot, h, 0}), want ? want + 10 : 0);
      }
}

TEST(Append, HeadMajorInterleaved) {
  Append append(", head_major, interleaved");
  Array &pool = append.bound.bind("kv_pool", ElementType::F32, {2, 2, 2, 4, 1}, {0});
  append.bound.bind("slots", ElementType::I64, {3}, {5, 0, -1});
  ASSERT_FALSE(bool(execute(append.bound.append, append.bound.inputs)));
  EXPECT_EQ(pool.at({1, 0, 0, 1, 0}), 1);  // K, head 0, place 1
  EXPECT_EQ(pool.at({1, 0, 1, 1, 0}), 2);  // K, head 1
  EXPECT_EQ(pool.at({1, 1, 1, 1, 0}), 12); // V, head 1
  EXPECT_EQ(pool.at({0, 1, 0, 0, 0}), 13);
}

TEST(Append, ASlotBeyondThePoolIsAnErrorBeforeAnyWrite) {
  Append append("");
  Array &k = append.bound.bind("k_pool", ElementType::F32, {2, 4, 2, 1}, {0});
  append.bound.bind("v_pool", ElementType::F32, {2, 4, 2, 1}, {0});
  append.bound.bind("slots", ElementType::I64, {3}, {0, 1, 8});
  EXPECT_EQ(llvm::toString(execute(append.bound.append, append.bound.inputs)),
            "slot 8 of row 2 lies beyond the 8 slots of the pool");
  EXPECT_EQ(k.at({0, 0, 0, 0}), 0);
}

} // namespace
} // namespace llmopt::reference

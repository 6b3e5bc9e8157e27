// Tiles of any number of rows that a spec wishes for, against the oracle: warps share rows in steps
// of 16 times a power of two, and what they cover beyond the tile is nobody's.
#include "Support.h"

#include <fmt/format.h>

namespace llmopt::test {
namespace {

constexpr const char *kDense = R"(
func.func @f(%q: tensor<?x?x4x{0}x{1}>, %k: tensor<?x?x2x{0}x{1}>, %v: tensor<?x?x2x{0}x{1}>)
    -> tensor<?x?x4x{0}x{1}> {{
  %o = attn.attention %q, %k, %v mask(causal) schedule({2})
    : tensor<?x?x4x{0}x{1}>, tensor<?x?x2x{0}x{1}>, tensor<?x?x2x{0}x{1}> -> tensor<?x?x4x{0}x{1}>
  return %o : tensor<?x?x4x{0}x{1}>
}})";

constexpr const char *kPaged = R"(
func.func @f(%q: tensor<?x4x{0}x{1}>, %kv: !attn.kv_cache<2x{0}x{1}, page = 16>,
             %s: !attn.sequences) -> (tensor<?x4x{0}x{1}>, tensor<?x4xf32>) {{
  %o, %lse = attn.attention %q, %kv, %s mask(causal) schedule({2})
    : tensor<?x4x{0}x{1}>, !attn.kv_cache<2x{0}x{1}, page = 16>, !attn.sequences
      -> tensor<?x4x{0}x{1}>, tensor<?x4xf32>
  return %o, %lse : tensor<?x4x{0}x{1}>, tensor<?x4xf32>
}})";

class WishedRows : public testing::TestWithParam<std::tuple<std::string, int64_t>> {
protected:
  void SetUp() override {
    if (std::string problem = problemOf(device()); !problem.empty())
      GTEST_SKIP() << problem;
  }
  static std::string device() { return std::get<0>(GetParam()); }

  /// One with wishes for the rows of the test, and perhaps others.
  static Compiled compiled(const char *form, int64_t d, const char *element,
                           const std::string &others = "") {
    int64_t rows = std::get<1>(GetParam());
    Compiled f(
        fmt::format(fmt::runtime(form), d, element, fmt::format("rows = {}{}", rows, others)),
        device());
    for (const bundle::Kernel &kernel : f.program.kernels)
      if (kernel.kind == bundle::KernelKind::Attend)
        EXPECT_EQ(kernel.tileRows, rows);
    return f;
  }
};

TEST_P(WishedRows, OfDenseArraysAreRight) {
  for (const char *element : {"bf16", "f32"}) {
    SCOPED_TRACE(element);
    Compiled f = compiled(kDense, 32, element);
    f.verify(shapeOf({70, 70}, {90, 90})); // 140 rows a head: whole tiles and a rest
    f.verify(shapeOf({1}, {70}));
  }
}

TEST_P(WishedRows, OfACacheAreRight) {
  for (const char *element : {"f16", "f32"}) {
    SCOPED_TRACE(element);
    Compiled f = compiled(kPaged, 32, element);
    f.verify(shapeOf({70, 1, 0, 9}, {90, 130, 0, 9}));
  }
}

/// Queries of which warps hold too much for registers, so that each product reads them.
TEST_P(WishedRows, OfWideHeadsAreRight) {
  compiled(kDense, 128, "bf16").verify(shapeOf({70}, {90}));
}

/// Weights of which a fragment has more than the tile go through shared memory, too.
TEST_P(WishedRows, AreRightWithKeysOfNoWholeStep) {
  compiled(kPaged, 32, "bf16", ", keys = 24").verify(shapeOf({70, 5}, {90, 33}));
}

INSTANTIATE_TEST_SUITE_P(Of, WishedRows,
                         testing::Combine(testing::Values("cpu", "sim"),
                                          testing::Values<int64_t>(16, 24, 40, 48, 56, 80, 96,
                                                                   112)),
                         [](const auto &info) {
                           return fmt::format("{}_{}", std::get<0>(info.param),
                                              std::get<1>(info.param));
                         });

} // namespace
} // namespace llmopt::test

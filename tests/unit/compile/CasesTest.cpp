// Cases that other kernels got wrong, at their own shapes, against results known by hand and
// the oracle.
#include "Support.h"

#include <cmath>
#include <fmt/format.h>

namespace llmopt::test {
namespace {

//===----------------------------------------------------------------------===//
// A6: every head dim that is a multiple of 8, not only those of 64
//===----------------------------------------------------------------------===//

class HeadDim : public testing::TestWithParam<int64_t> {};

TEST_P(HeadDim, FromHereEightOthersAreRightToo) {
  for (int64_t d = GetParam(); d < GetParam() + 72; d += 8) {
    SCOPED_TRACE(testing::Message() << "d " << d);
    std::string type = fmt::format("tensor<?x8x{}xf16>", d);
    Compiled f(
        fmt::format("func.func @f(%q: {0}, %k: {0}, %v: {0}, %s: !attn.sequences) -> {0} {{\n"
                    "%o = attn.attention %q, %k, %v, %s mask(causal)\n"
                    "  : {0}, {0}, {0}, !attn.sequences -> {0}\nreturn %o : {0}\n}}",
                    type));
    f.verify(shapeOf({128}, {256}, uint64_t(d)));
    f.verify(shapeOf({1}, {256}, uint64_t(d)));
  }
}

INSTANTIATE_TEST_SUITE_P(Sweep, HeadDim, testing::Values(8, 80, 152, 224)); // 8, 16, ... 288

//===----------------------------------------------------------------------===//
// A10: one alignment of the causal mask, whatever the lengths
//===----------------------------------------------------------------------===//

struct Form {
  const char *name, *text; ///< {0}: the mask
};

void PrintTo(const Form &form, std::ostream *out) { *out << form.name; }

class Alignment : public testing::TestWithParam<Form> {};

/// q = 0 makes all weights of a row equal, and V row j = one-hot j shows them.
void expectWeights(Compiled &f, int64_t queries, int64_t keys, bool topLeft) {
  constexpr int64_t kVDim = 72, kHeads = 4;
  SCOPED_TRACE(testing::Message() << queries << " queries, " << keys << " keys");
  harness::Shape shape = shapeOf({queries}, {keys});
  shape.fill = harness::Fill::OneHotValue;
  shape.queryMagnitude = 0;
  harness::Call call = f.call(shape);
  f.run(call);
  const harness::HostArray &o = *call.find("o");
  bool dense = o.shape.size() == 4;
  for (int64_t i = 0; i < queries; ++i) {
    int64_t last = i + (topLeft ? 0 : keys - queries); // of the keys that it sees
    int64_t seen = std::clamp<int64_t>(last + 1, 0, keys);
    for (int64_t h = 0; h < kHeads; ++h)
      for (int64_t j = 0; j < kVDim; ++j) {
        double got = dense ? o.get({0, i, h, j}) : o.get({i, h, j});
        ASSERT_NEAR(got, j < seen ? 1.0 / double(seen) : 0, 1e-6) << "query " << i << ", key " << j;
      }
  }
}

TEST_P(Alignment, IsThatOfTheLastKeyOrOfTheFirst) {
  for (bool topLeft : {false, true}) {
    Compiled f(fmt::format(fmt::runtime(GetParam().text), topLeft ? "causal<top_left>" : "causal"));
    for (int64_t queries : {1, 2, 5, 64})
      for (int64_t keys : {1, 2, 5, 63, 64, 65}) {
        expectWeights(f, queries, keys, topLeft);
        f.verify(shapeOf({queries}, {keys}));
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Alignment,
                         testing::Values(Form{"dense", R"(
func.func @f(%q: tensor<?x?x4x16xf32>, %k: tensor<?x?x2x16xf32>, %v: tensor<?x?x2x72xf32>)
    -> tensor<?x?x4x72xf32> {{
  %o = attn.attention %q, %k, %v mask({0})
    : tensor<?x?x4x16xf32>, tensor<?x?x2x16xf32>, tensor<?x?x2x72xf32> -> tensor<?x?x4x72xf32>
  return %o : tensor<?x?x4x72xf32>
}})"},
                                         Form{"paged", R"(
func.func @f(%q: tensor<?x4x16xf32>, %kv: !attn.kv_cache<2x16xf32, v_dim = 72, page = 16>,
             %s: !attn.sequences) -> tensor<?x4x72xf32> {{
  %o = attn.attention %q, %kv, %s mask({0})
    : tensor<?x4x16xf32>, !attn.kv_cache<2x16xf32, v_dim = 72, page = 16>, !attn.sequences
      -> tensor<?x4x72xf32>
  return %o : tensor<?x4x72xf32>
}})"}),
                         [](const auto &info) { return std::string(info.param.name); });

//===----------------------------------------------------------------------===//
// A window of no width
//===----------------------------------------------------------------------===//

TEST(Window, BelowOneAtRunTimeIsRefused) {
  const char *t = "tensor<?x4x16xf32>";
  Compiled one(
      fmt::format("func.func @f(%q: {0}, %k: {0}, %v: {0}, %s: !attn.sequences) -> {0} {{\n"
                  "%o = attn.attention %q, %k, %v, %s mask(window<8>)\n"
                  "  : {0}, {0}, {0}, !attn.sequences -> {0}\nreturn %o : {0}\n}}",
                  t));
  for (double window : {0.0, -1.0, -2147483648.0, 1.0}) {
    harness::Shape shape = shapeOf({40, 1}, {40, 90});
    shape.numbers["window"] = window;
    harness::Call call = one.call(shape);
    EXPECT_EQ(one.refusal(call),
              window < 1 ? fmt::format("scalar 'window' is {:.0f}; 1 to 2147483647 are "
                                       "allowed; leave the window out of the mask for none",
                                       window)
                         : "");
    if (window >= 1)
      one.verify(shape);
  }
}

} // namespace
} // namespace llmopt::test

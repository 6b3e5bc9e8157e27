// Lengths and sizes that other kernels got wrong, at their own shapes, against results known by
// hand and the oracle, on the CPU and on the simulator.
#include "Support.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace llmopt::test {
namespace {

//===----------------------------------------------------------------------===//
// A6: every head dim that is a multiple of 8, not only those of 64
//===----------------------------------------------------------------------===//

class HeadDim : public testing::TestWithParam<std::tuple<std::string, int64_t>> {};

TEST_P(HeadDim, FromHereTwoOthersAreRightToo) {
  auto [device, first] = GetParam();
  if (std::string problem = problemOf(device); !problem.empty())
    GTEST_SKIP() << problem;
  for (int64_t d = first; d < first + 24; d += 8) {
    SCOPED_TRACE(testing::Message() << "d " << d);
    std::string type = fmt::format("tensor<?x8x{}xf16>", d);
    Compiled f(
        fmt::format("func.func @f(%q: {0}, %k: {0}, %v: {0}, %s: !attn.sequences) -> {0} {{\n"
                    "%o = attn.attention %q, %k, %v, %s mask(causal)\n"
                    "  : {0}, {0}, {0}, !attn.sequences -> {0}\nreturn %o : {0}\n}}",
                    type),
        device);
    f.verify(shapeOf({128}, {256}, uint64_t(d)));
    f.verify(shapeOf({1}, {256}, uint64_t(d)));
  }
}

INSTANTIATE_TEST_SUITE_P(Sweep, HeadDim, // 8, 16, ... 288
                         testing::Combine(testing::Values("cpu", "sim"),
                                          testing::Range<int64_t>(8, 289, 24)),
                         [](const auto &info) {
                           return fmt::format("{}_{}", std::get<0>(info.param),
                                              std::get<1>(info.param));
                         });

//===----------------------------------------------------------------------===//
// A5: every whole ratio of query to KV heads, in decode, verify and prefill
//===----------------------------------------------------------------------===//

class HeadRatio : public OnEachDevice {
protected:
  void verify(int64_t queryHeads, int64_t kvHeads, int64_t d) {
    SCOPED_TRACE(testing::Message() << queryHeads << " heads over " << kvHeads << ", d " << d);
    Compiled f(fmt::format(R"(
func.func @f(%q: tensor<?x{0}x{2}xbf16>, %kv: !attn.kv_cache<{1}x{2}xbf16, page = 16>,
             %s: !attn.sequences) -> tensor<?x{0}x{2}xbf16> {{
  %o = attn.attention %q, %kv, %s mask(causal)
    : tensor<?x{0}x{2}xbf16>, !attn.kv_cache<{1}x{2}xbf16, page = 16>, !attn.sequences
      -> tensor<?x{0}x{2}xbf16>
  return %o : tensor<?x{0}x{2}xbf16>
}})",
                           queryHeads, kvHeads, d),
               GetParam());
    f.verify(shapeOf({1, 1}, {150, 19}));
    f.verify(shapeOf({5, 5}, {80, 19}));
    f.verify(shapeOf({40}, {40}));
  }
};

TEST_P(HeadRatio, OfTheReportsIsServedInEachPhase) {
  for (auto [queryHeads, kvHeads] : {std::pair{28, 4}, {24, 4}, {64, 4}, {40, 8}})
    verify(queryHeads, kvHeads, 128);
  verify(9, 3, 64);
}

TEST_P(HeadRatio, IsAnyWholeNumber) {
  for (int64_t ratio : {1, 2, 8, 9, 11, 13, 17, 31, 65})
    verify(2 * ratio, 2, 16);
}

LLMOPT_ON_EACH_DEVICE(HeadRatio);

//===----------------------------------------------------------------------===//
// A12: sequences without keys or without queries inside a batch
//===----------------------------------------------------------------------===//

class EmptySequences : public OnEachDevice {};

TEST_P(EmptySequences, GiveZeroAndChangeNoBitOfTheirNeighbours) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (int64_t splits : {1, 4}) {
    Compiled f(fmt::format(R"(
func.func @f(%q: tensor<?x4x32xbf16>, %kv: !attn.kv_cache<2x32xbf16, page = 16>,
             %s: !attn.sequences) -> (tensor<?x4x32xbf16>, tensor<?x4xf32>) {{
  %o, %lse = attn.attention %q, %kv, %s mask(causal) split(count = {})
    : tensor<?x4x32xbf16>, !attn.kv_cache<2x32xbf16, page = 16>, !attn.sequences
      -> tensor<?x4x32xbf16>, tensor<?x4xf32>
  return %o, %lse : tensor<?x4x32xbf16>, tensor<?x4xf32>
}})",
                           splits),
               GetParam());
    for (const std::vector<int64_t> &queries : {std::vector<int64_t>{1, 1, 1, 1}, {3, 0, 2, 1}})
      for (int64_t last : {33, 333}) { // 333: enough for four splits
        SCOPED_TRACE(testing::Message() << splits << " splits, first sequence with " << queries[0]
                                        << " queries, last with " << last << " keys");
        harness::Shape shape = shapeOf(queries, {0, 5, 0, last});
        shape.paddedTokens = 2;
        harness::Call call = f.call(shape);
        cli::RunFigures figures = f.run(call);
        EXPECT_EQ(figures.plan.partialRows > 0, splits > 1 && last > 64);
        f.verify(call);
        // The same neighbours, and keys where there were none.
        shape.keyLengths = {7, 5, 20, last};
        harness::Call full = f.verify(shape);
        int64_t row = 0;
        for (size_t b = 0; b < queries.size(); ++b)
          for (int64_t end = row + queries[b]; row < end; ++row)
            for (int64_t h = 0; h < 4; ++h) {
              bool isEmpty = shape.keyLengths[b] != (b == 1 ? 5 : last);
              double lse = call.find("lse")->get({row, h});
              EXPECT_EQ(lse, isEmpty ? -kInfinity : full.find("lse")->get({row, h}));
              for (int64_t c = 0; c < 32; ++c)
                ASSERT_EQ(call.find("o")->get({row, h, c}),
                          isEmpty ? 0 : full.find("o")->get({row, h, c}))
                    << "row " << row << ", head " << h << ", component " << c;
            }
      }
  }
}

LLMOPT_ON_EACH_DEVICE(EmptySequences);

//===----------------------------------------------------------------------===//
// A10: one alignment of the causal mask, whatever the lengths
//===----------------------------------------------------------------------===//

struct Form {
  const char *name, *text; ///< {0}: the mask
};

constexpr Form kForms[] = {{"dense", R"(
func.func @f(%q: tensor<?x?x4x16xf32>, %k: tensor<?x?x2x16xf32>, %v: tensor<?x?x2x72xf32>)
    -> tensor<?x?x4x72xf32> {{
  %o = attn.attention %q, %k, %v mask({0})
    : tensor<?x?x4x16xf32>, tensor<?x?x2x16xf32>, tensor<?x?x2x72xf32> -> tensor<?x?x4x72xf32>
  return %o : tensor<?x?x4x72xf32>
}})"},
                           {"paged", R"(
func.func @f(%q: tensor<?x4x16xf32>, %kv: !attn.kv_cache<2x16xf32, v_dim = 72, page = 16>,
             %s: !attn.sequences) -> tensor<?x4x72xf32> {{
  %o = attn.attention %q, %kv, %s mask({0})
    : tensor<?x4x16xf32>, !attn.kv_cache<2x16xf32, v_dim = 72, page = 16>, !attn.sequences
      -> tensor<?x4x72xf32>
  return %o : tensor<?x4x72xf32>
}})"}};

template <typename F> void forEachAlignment(F visit) {
  for (const Form &form : kForms)
    for (bool topLeft : {false, true}) {
      SCOPED_TRACE(testing::Message() << form.name << ", top left " << topLeft);
      visit(fmt::format(fmt::runtime(form.text), topLeft ? "causal<top_left>" : "causal"), topLeft);
    }
}

template <typename F> void forEachLengths(F visit) {
  for (int64_t queries : {1, 2, 5, 64})
    for (int64_t keys : {1, 2, 5, 63, 64, 65})
      visit(queries, keys);
}

class Alignment : public OnEachDevice {};

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
  forEachAlignment([](const std::string &text, bool topLeft) {
    Compiled f(text, GetParam());
    forEachLengths([&](int64_t queries, int64_t keys) {
      expectWeights(f, queries, keys, topLeft);
      f.verify(shapeOf({queries}, {keys}));
    });
  });
}

LLMOPT_ON_EACH_DEVICE(Alignment);

/// The CPU's kernels and those for CUDA on the same calls.
TEST(CpuAgainstCuda, AlignTheMaskAlike) {
  if (std::string problem = problemOf("sim"); !problem.empty())
    GTEST_SKIP() << problem;
  forEachAlignment([](const std::string &text, bool) {
    Compiled cpu(text), cuda(text, "sim");
    forEachLengths([&](int64_t queries, int64_t keys) {
      harness::Call first = cpu.verify(shapeOf({queries}, {keys}));
      harness::Call second = cuda.verify(shapeOf({queries}, {keys}));
      // Sums of float32 in another order.
      EXPECT_LE(largestDifference(first, second), 1e-5)
          << queries << " queries, " << keys << " keys";
    });
  });
}

//===----------------------------------------------------------------------===//
// A window of no width
//===----------------------------------------------------------------------===//

class Window : public OnEachDevice {};

TEST_P(Window, BelowOneAtRunTimeIsRefused) {
  const char *t = "tensor<?x4x16xf32>";
  Compiled one(
      fmt::format("func.func @f(%q: {0}, %k: {0}, %v: {0}, %s: !attn.sequences) -> {0} {{\n"
                  "%o = attn.attention %q, %k, %v, %s mask(window<8>)\n"
                  "  : {0}, {0}, {0}, !attn.sequences -> {0}\nreturn %o : {0}\n}}",
                  t),
      GetParam());
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

LLMOPT_ON_EACH_DEVICE(Window);

} // namespace
} // namespace llmopt::test

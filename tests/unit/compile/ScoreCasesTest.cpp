// Scores and sinks that other kernels got wrong, on the CPU and on the simulator.
#include "Support.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace llmopt::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

//===----------------------------------------------------------------------===//
// A20: soft cap and bias act in the written order; -inf hides a key in either
//===----------------------------------------------------------------------===//

/// Scores in about [-20, 20], biases in [-10, 10], every fifth -inf; V shows the weights.
harness::Call scoredCall(Compiled &f) {
  harness::Shape shape = shapeOf({40}, {70});
  shape.fill = harness::Fill::OneHotValue;
  harness::Call call = f.call(shape);
  call.find("arg0")->fill([n = 0]() mutable { // 70 is a multiple of 5: every fifth key
    int i = n++;
    return i % 5 == 3 ? -kInfinity : double(i * 37 % 201 - 100) / 10;
  });
  for (harness::HostArray &array : call.arrays)
    array.seal();
  return call;
}

std::string scoredSpec(const std::string &clauses) {
  return fmt::format(R"(
func.func @f(%q: tensor<?x?x4x16xf32>, %k: tensor<?x?x2x16xf32>, %v: tensor<?x?x2x72xf32>,
             %bias: tensor<1x4x?x?xf32>) -> tensor<?x?x4x72xf32> {{
  %o = attn.attention %q, %k, %v args(%bias : tensor<1x4x?x?xf32>) scale(1.5) {}
    : tensor<?x?x4x16xf32>, tensor<?x?x2x16xf32>, tensor<?x?x2x72xf32> -> tensor<?x?x4x72xf32>
  return %o : tensor<?x?x4x72xf32>
}})",
                     clauses);
}

class ScoreOrder : public OnEachDevice {};

TEST_P(ScoreOrder, IsTheWrittenOneAndAMinusInfinityHidesInEither) {
  std::vector<harness::Call> calls;
  for (const char *clauses : {"softcap(5.0) bias(arg0)", "bias(arg0) softcap(5.0)"}) {
    SCOPED_TRACE(clauses);
    Compiled f(scoredSpec(clauses), GetParam()), cpu(scoredSpec(clauses));
    harness::Call call = scoredCall(f), same = scoredCall(cpu);
    f.verify(call);
    cpu.verify(same);
    EXPECT_LE(largestDifference(call, same), 1e-5) << "the CPU's result is another";
    for (int64_t i = 0; i < 40; ++i)
      for (int64_t j = 3; j < 70; j += 5)
        ASSERT_EQ(call.find("o")->get({0, i, 0, j}), 0) << "query " << i << ", hidden key " << j;
    calls.push_back(std::move(call));
  }
  EXPECT_GT(largestDifference(calls[0], calls[1]), 0.01) << "the order shows in these data";
}

LLMOPT_ON_EACH_DEVICE(ScoreOrder);

//===----------------------------------------------------------------------===//
// A47: a sink's logit joins the denominator once, whatever the splits
//===----------------------------------------------------------------------===//

class SinkLogit : public OnEachDevice {
protected:
  static std::string text(const std::string &split) {
    return fmt::format(R"(
func.func @f(%q: tensor<?x4x32xf32>, %kv: !attn.kv_cache<2x32xf32, page = 16>, %s: !attn.sequences,
             %sink: tensor<4xf32>) -> (tensor<?x4x32xf32>, tensor<?x4xf32>) {{
  %o, %lse = attn.attention %q, %kv, %s args(%sink : tensor<4xf32>) mask(causal and window<70>)
             softcap(30.0) sink(arg0) split({})
    : tensor<?x4x32xf32>, !attn.kv_cache<2x32xf32, page = 16>, !attn.sequences
      -> tensor<?x4x32xf32>, tensor<?x4xf32>
  return %o, %lse : tensor<?x4x32xf32>, tensor<?x4xf32>
}})",
                       split);
  }

  /// Decode of a sequence whose first keys lie before the window, one without keys, one that
  /// ends in its first tile.
  static harness::Call run(Compiled &f, double cap, double window) {
    harness::Shape shape = shapeOf({1, 1, 1}, {600, 0, 20});
    shape.numbers = {{"softcap", cap}, {"window", window}};
    harness::Call call = f.call(shape);
    call.find("arg0")->fill([] { return 2.0; });
    for (harness::HostArray &array : call.arrays)
      array.seal();
    f.verify(call);
    for (int64_t h = 0; h < 4; ++h) {
      EXPECT_EQ(call.find("lse")->get({1, h}), -kInfinity);
      for (int64_t c = 0; c < 32; ++c)
        EXPECT_EQ(call.find("o")->get({1, h, c}), 0) << "a sequence without keys";
    }
    return call;
  }
};

TEST_P(SinkLogit, CountsOnceWhateverTheSplits) {
  std::vector<Compiled> kernels;
  for (const char *split : {"none", "count = 2", "count = 4", "count = 8", "length = 64"})
    kernels.emplace_back(text(split), GetParam());
  for (double cap : {0, 30})
    for (double window : {70, 1, 400}) {
      harness::Call whole = run(kernels[0], cap, window);
      for (size_t i = 1; i < kernels.size(); ++i) {
        SCOPED_TRACE(testing::Message()
                     << "kernel " << i << ", cap " << cap << ", window " << window);
        EXPECT_LE(largestDifference(whole, run(kernels[i], cap, window)), 1e-6);
      }
    }
}

LLMOPT_ON_EACH_DEVICE(SinkLogit);

//===----------------------------------------------------------------------===//
// Keys that data hide from every row keep their NaN, also where a tile has rows to spare
//===----------------------------------------------------------------------===//

class HiddenByData : public OnEachDevice {
protected:
  /// 12 heads share a KV head; 11 queries do not fill a tile of many rows, one does not fill 16.
  static void verify(const std::string &type, const std::string &clause, double hidden,
                     double shown) {
    Compiled f(fmt::format(R"(
func.func @f(%q: tensor<?x?x12x8xf32>, %k: tensor<?x?x1x8xf32>, %v: tensor<?x?x1x8xf32>,
             %a: tensor<1x1x1x?x{0}>) -> tensor<?x?x12x8xf32> {{
  %o = attn.attention %q, %k, %v args(%a : tensor<1x1x1x?x{0}>) {1}
    : tensor<?x?x12x8xf32>, tensor<?x?x1x8xf32>, tensor<?x?x1x8xf32> -> tensor<?x?x12x8xf32>
  return %o : tensor<?x?x12x8xf32>
}})",
                           type, clause),
               GetParam());
    for (auto [queries, strides] : {std::pair(11, harness::StrideStyle::Packed),
                                    {1, harness::StrideStyle::Packed},
                                    {5, harness::StrideStyle::Inner2}}) {
      SCOPED_TRACE(testing::Message() << clause << ", queries " << queries);
      harness::Shape shape = shapeOf({queries}, {300});
      shape.strides = strides;
      harness::Call call = f.call(shape);
      // A28: a mask that is every second byte of another.
      EXPECT_EQ(call.find("arg0")->strides[3], strides == harness::StrideStyle::Inner2 ? 2 : 1);
      call.find("arg0")->fill([=, n = 0]() mutable { return n++ % 5 == 3 ? hidden : shown; });
      for (int64_t key = 3; key < 300; key += 5)
        for (int64_t c = 0; c < 8; ++c) {
          call.find("v")->set({0, key, 0, c}, std::numeric_limits<double>::quiet_NaN());
          if (type == "i1") // NaN and -inf are NaN
            call.find("k")->set({0, key, 0, c}, std::numeric_limits<double>::quiet_NaN());
        }
      for (harness::HostArray &array : call.arrays)
        array.seal();
      f.verify(call);
      EXPECT_TRUE(std::isfinite(call.find("o")->get({0, 0, 0, 0})));
    }
  }
};

TEST_P(HiddenByData, KeysWithNaNLeaveNoTrace) {
  verify("i1", "mask(dense<arg0>)", 0, 1);
  verify("i1", "mask(not (dense<arg0>))", 1, 0);
  verify("f32", "bias(arg0)", -kInfinity, 0.5);
}

LLMOPT_ON_EACH_DEVICE(HiddenByData);

} // namespace
} // namespace llmopt::test

// schedule(batch_invariant): a row's bits depend on that row alone, in prefill, extend and
// decode and whatever else is in the batch (A36).
#include "Support.h"

#include <fmt/format.h>

namespace llmopt::test {
namespace {

constexpr int64_t kTokens = 600, kHeads = 6, kDim = 24;

/// Copies rows of a ragged array, `from` on in the source, to the start of the target.
void copyRows(const harness::HostArray &source, int64_t from, int64_t count,
              harness::HostArray &target) {
  for (int64_t t = 0; t < count; ++t)
    for (int64_t h = 0; h < source.shape[1]; ++h)
      for (int64_t c = 0; c < source.shape[2]; ++c)
        target.set({t, h, c}, source.get({from + t, h, c}));
}

class BatchInvariance : public testing::TestWithParam<std::tuple<std::string, std::string>> {
protected:
  void SetUp() override {
    auto [device, type] = GetParam();
    if (std::string problem = problemOf(device); !problem.empty())
      GTEST_SKIP() << problem;
    f = std::make_unique<Compiled>(fmt::format(R"(
func.func @f(%q: tensor<?x6x24x{0}>, %k: tensor<?x2x24x{0}>, %v: tensor<?x2x24x{0}>,
             %s: !attn.sequences) -> tensor<?x6x24x{0}> {{
  %o = attn.attention %q, %k, %v, %s mask(causal and (sink<3> or window<300>)) split(length = 256)
       schedule(batch_invariant) : tensor<?x6x24x{0}>, tensor<?x2x24x{0}>, tensor<?x2x24x{0}>,
       !attn.sequences -> tensor<?x6x24x{0}>
  return %o : tensor<?x6x24x{0}>
}})",
                                               type),
                                   device);
  }

  /// Queries [first, first + count) of the prefill as a call of their own, before `others`.
  harness::Call part(harness::Call &prefill, int64_t first, int64_t count, bool others) {
    std::vector<int64_t> queries{count}, keys{first + count};
    if (others) {
      queries.insert(queries.end(), {1, 40, 0});
      keys.insert(keys.end(), {513, 77, 9});
    }
    harness::Call call = f->call(shapeOf(queries, keys, 7));
    copyRows(*prefill.find("q"), first, count, *call.find("q"));
    copyRows(*prefill.find("k"), 0, first + count, *call.find("k"));
    copyRows(*prefill.find("v"), 0, first + count, *call.find("v"));
    for (harness::HostArray &array : call.arrays)
      array.seal();
    f->run(call);
    return call;
  }

  std::unique_ptr<Compiled> f;
};

TEST_P(BatchInvariance, PrefillExtendAndDecodeAgreeInEveryBit) {
  harness::Call prefill = f->call(shapeOf({kTokens}, {kTokens}));
  f->run(prefill);
  for (auto [first, count] : {std::pair{0, 1},
                              {63, 1},
                              {64, 1},
                              {255, 1},
                              {256, 1},
                              {299, 5},
                              {599, 1},
                              {400, 70},
                              {0, 130}})
    for (bool others : {false, true}) {
      harness::Call call = part(prefill, first, count, others);
      for (int64_t t = 0; t < count; ++t)
        for (int64_t h = 0; h < kHeads; ++h)
          for (int64_t c = 0; c < kDim; ++c)
            ASSERT_EQ(call.find("o")->get({t, h, c}), prefill.find("o")->get({first + t, h, c}))
                << "token " << first + t << ", " << count << " queries, others " << others;
    }
}

/// The first row of batches of 1, 2, 7 and 64.
TEST_P(BatchInvariance, TheRowsOfABatchDoNotChangeItsFirst) {
  harness::Call alone = f->call(shapeOf({1}, {777}, 3));
  f->run(alone);
  for (size_t sequences : {2, 7, 64}) {
    std::vector<int64_t> keys(sequences, 777);
    for (size_t i = 1; i < sequences; ++i)
      keys[i] = int64_t(i * 131 % 300);
    harness::Call call = f->call(shapeOf(std::vector<int64_t>(sequences, 1), keys, 3));
    f->run(call);
    for (int64_t h = 0; h < kHeads; ++h)
      for (int64_t c = 0; c < kDim; ++c)
        ASSERT_EQ(call.find("o")->get({0, h, c}), alone.find("o")->get({0, h, c}))
            << sequences << " sequences, head " << h << ", component " << c;
  }
}

INSTANTIATE_TEST_SUITE_P(On, BatchInvariance,
                         testing::Combine(testing::Values("cpu", "sim"),
                                          testing::Values("f32", "bf16", "f16")),
                         [](const auto &info) {
                           return std::get<0>(info.param) + "_" + std::get<1>(info.param);
                         });

} // namespace
} // namespace llmopt::test

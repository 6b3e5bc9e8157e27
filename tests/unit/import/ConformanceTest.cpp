// The ONNX case folders: which are skipped and why, and that the others, evaluated in
// float64 from the loaded arrays and the importer's facts, give the published outputs.
#include "tools/import/Conformance.h"

#include "runtime/base/Half.h"
#include "tests/support/TestData.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace llmopt::importer;
namespace fs = std::filesystem;

namespace {

/// A plain evaluation of an imported node.
class Evaluator {
public:
  Evaluator(const OnnxFunction &function, const ConformanceCase &arrays)
      : f(function), q(*arrays.find("q")), k(*arrays.find("k")), v(*arrays.find("v")),
        o(*arrays.find("o")), mask(arrays.find("arg0")), lengths(arrays.find("kv_len")) {}

  void run() {
    for (int64_t b = 0; b < q.shape[0]; ++b)
      for (int64_t i = 0; i < q.shape[1]; ++i)
        for (int64_t h = 0; h < q.shape[2]; ++h)
          row(b, i, h);
  }

private:
  void row(int64_t b, int64_t i, int64_t h) {
    int64_t keys = lengths ? int64_t(lengths->at({b})) : k.shape[1];
    int64_t kvHead = h / (f.queryHeads / f.kvHeads);
    std::vector<double> scores;
    double most = -INFINITY;
    for (int64_t j = 0; j < keys; ++j) {
      scores.push_back(score(b, i, h, j, kvHead, keys));
      most = std::max(most, scores.back());
    }
    for (int64_t d = 0; d < f.vHeadDim; ++d) {
      double sum = 0, weights = 0;
      for (int64_t j = 0; j < keys; ++j) {
        if (scores[size_t(j)] == -INFINITY)
          continue;
        double weight = std::exp(scores[size_t(j)] - most);
        weights += weight;
        sum += weight * v.at({b, j, kvHead, d});
      }
      store(b, i, h, d, weights > 0 ? sum / weights : 0);
    }
  }

  double score(int64_t b, int64_t i, int64_t h, int64_t j, int64_t kvHead, int64_t keys) {
    int64_t position = i + keys - q.shape[1];
    bool visible = f.causal == OnnxCausal::None || (f.causal == OnnxCausal::TopLeft && j <= i) ||
                   (f.causal == OnnxCausal::BottomRight && j <= position) ||
                   (f.causal == OnnxCausal::Shifted && j <= position + f.causalShift);
    double s = 0;
    for (int64_t d = 0; d < f.headDim; ++d)
      s += q.at({b, i, h, d}) * k.at({b, j, kvHead, d});
    s *= f.scale;
    if (f.softcap > 0)
      s = f.softcap * std::tanh(s / f.softcap);
    if (f.mask == OnnxMask::Additive)
      s += maskAt(b, h, i, j);
    if (f.mask == OnnxMask::Boolean)
      visible = visible && maskAt(b, h, i, j) != 0;
    return visible ? s : -INFINITY;
  }

  double maskAt(int64_t b, int64_t h, int64_t i, int64_t j) { return mask->at({b, h, i, j}); }

  void store(int64_t b, int64_t i, int64_t h, int64_t d, double value) {
    int64_t at = b * o.strides[0] + i * o.strides[1] + h * o.strides[2] + d * o.strides[3];
    auto *bytes = static_cast<uint8_t *>(o.data());
    float narrow = float(value);
    uint16_t half = llmopt::runtime::f32ToF16(narrow);
    if (o.type == DataType::F32)
      std::memcpy(bytes + at * 4, &narrow, 4);
    else
      std::memcpy(bytes + at * 2, &half, 2);
  }

  const OnnxFunction &f;
  const NamedArray &q, &k, &v, &o;
  const NamedArray *mask, *lengths;
};

std::vector<fs::path> caseFolders() {
  std::vector<fs::path> folders;
  for (const auto &entry : fs::directory_iterator(llmopt::test::dataFolder() / "onnx-attention"))
    if (entry.is_directory())
      folders.push_back(entry.path());
  std::sort(folders.begin(), folders.end());
  return folders;
}

std::string expectedSkip(const std::string &name) {
  for (auto [part, reason] : {std::pair{"qk_matmul", "score matrix output"},
                              {"linear_attention", "operator LinearAttention"},
                              {"rotary_embedding", "operator RotaryEmbedding"},
                              {"tensorscatter", "operator TensorScatter"},
                              {"flexattention_causal_mask", "score_mod subgraph"},
                              {"flexattention_soft_cap", "score_mod subgraph"},
                              {"flexattention_prob_mod", "prob_mod subgraph"}})
    if (name.find(part) != std::string::npos)
      return reason;
  return "";
}

} // namespace

#define NEEDS_ONNX()                                                                               \
  if (!onnxIsAvailable())                                                                          \
  GTEST_SKIP() << "built without ONNX"

TEST(Conformance, published_cases_load_and_agree) {
  LLMOPT_NEEDS_TEST_DATA();
  NEEDS_ONNX();
  int evaluated = 0, whole = 0, skipped = 0;
  for (const fs::path &folder : caseFolders()) {
    std::string name = folder.filename().string();
    SCOPED_TRACE(name);
    auto cases = loadConformanceCases(folder.string());
    ASSERT_TRUE(cases.ok()) << cases.status().message();
    ASSERT_EQ(cases->size(), 1u);
    ConformanceCase &test = cases->front();
    EXPECT_EQ(test.name, name);
    std::string skip = expectedSkip(name);
    EXPECT_EQ(skip.empty(), test.skipReason.empty()) << test.skipReason;
    EXPECT_TRUE(skip.empty() || test.skipReason.find(skip) < 3) << test.skipReason;
    (test.skipReason.empty() ? whole : skipped)++;
    if (test.ir.empty())
      continue;
    auto model = importOnnx((folder / "model.onnx").string());
    ASSERT_TRUE(model.ok());
    Evaluator(model->functions[0], test).run();
    ++evaluated;
    ASSERT_FALSE(test.outputs.empty());
    for (const ExpectedOutput &output : test.outputs) {
      OutputMismatch mismatch = compare(output);
      EXPECT_EQ(mismatch.count, 0) << output.name << "[" << mismatch.first << "]: " << mismatch.got
                                   << ", want " << mismatch.want;
    }
  }
  EXPECT_EQ(whole, 42);
  EXPECT_EQ(skipped, 32);
  EXPECT_EQ(evaluated, 55);
}

TEST(Conformance, an_output_that_nobody_wrote_does_not_conform) {
  LLMOPT_NEEDS_TEST_DATA();
  NEEDS_ONNX();
  auto cases = loadConformanceCases(
      (llmopt::test::dataFolder() / "onnx-attention/test_attention_4d").string());
  ASSERT_TRUE(cases.ok()) << cases.status().message();
  OutputMismatch mismatch = compare(cases->front().outputs[0]);
  EXPECT_EQ(mismatch.count, 2 * 3 * 4 * 8);
  EXPECT_EQ(mismatch.first, 0);
}

TEST(Conformance, a_folder_that_is_none_is_named) {
  NEEDS_ONNX();
  auto cases = loadConformanceCases("no/such/folder");
  ASSERT_FALSE(cases.ok());
  EXPECT_NE(cases.status().message().find("no/such/folder/model.onnx"), std::string::npos);
}

// Attention kernels from NVRTC's PTX, in the simulator, against the float64 oracle.
#include "codegen/compile/ProgramFacts.h"
#include "tests/unit/cuda/Support.h"
#include "tools/llm-opt/Prepare.h"
#include "tools/llm-opt/Work.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

using namespace llmopt::test;

namespace {

class CudaAttention : public testing::Test {
protected:
  void SetUp() override {
    if (std::string problem = cudaProblem(); !problem.empty())
      GTEST_SKIP() << problem;
  }
};

const char *kPrefill = R"(
func.func @prefill(%q: tensor<?x?x4x128xbf16>, %k: tensor<?x?x2x128xbf16>,
                   %v: tensor<?x?x2x128xbf16>) -> tensor<?x?x4x128xbf16> {
  %o = attn.attention %q, %k, %v mask(causal)
       : tensor<?x?x4x128xbf16>, tensor<?x?x2x128xbf16>, tensor<?x?x2x128xbf16>
         -> tensor<?x?x4x128xbf16>
  return %o : tensor<?x?x4x128xbf16>
})";

TEST_F(CudaAttention, causal_prefill_of_whole_and_odd_tiles) {
  Simulated kernel(kPrefill);
  kernel.verify(shapeOf({128}, {128}));
  kernel.verify(shapeOf({1, 1}, {300, 300}));
  kernel.verify(shapeOf({75}, {203}));
}

std::vector<std::string> examples() {
  std::vector<std::string> names;
  for (const auto &entry : std::filesystem::directory_iterator(LLMOPT_SOURCE_DIR "/examples/specs"))
    if (entry.path().extension() == ".mlir")
      names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string textOf(const std::string &example) {
  std::ifstream in(LLMOPT_SOURCE_DIR "/examples/specs/" + example + ".mlir");
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

class CudaExample : public testing::TestWithParam<std::string> {
protected:
  void SetUp() override {
    if (std::string problem = cudaProblem(); !problem.empty())
      GTEST_SKIP() << problem;
  }
};

TEST_F(CudaAttention, a_prompt_that_all_share_is_read_once_for_several_rows) {
  Simulated kernel(textOf("llama-decode-paged"));
  llmopt::harness::Shape shape =
      shapeOf(std::vector<int64_t>(16, 1), std::vector<int64_t>(16, 700));
  for (int64_t shared : {0, 640}) {
    shape.sharedKeys = shared;
    llmopt::cli::RunFigures figures;
    kernel.run(shape, figures);
    size_t mixed = 0;
    for (const llmopt::runtime::AttendPlan &attend : figures.plan.attends)
      for (const llmopt::bundle::WorkItem &item : attend.items)
        mixed += item.flags == llmopt::bundle::kMixedSequences;
    EXPECT_EQ(mixed > 0, shared > 0);
  }
  kernel.verify(shape);
}

TEST_P(CudaExample, compiles_for_every_chip_without_spills) {
  for (const char *arch : {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"}) {
    SCOPED_TRACE(arch);
    for (const llmopt::CudaBuild &build : buildForCuda(textOf(GetParam()), arch))
      for (const llmopt::bundle::Kernel &kernel : build.program.kernels) {
        const llmopt::bundle::Image &image = build.program.images[kernel.image];
        EXPECT_EQ(image.format, llmopt::bundle::ImageFormat::Cubin);
        EXPECT_EQ(image.figures.spillStoreBytes, 0u) << kernel.entry;
        EXPECT_EQ(image.figures.stackBytes, 0u) << kernel.entry;
      }
  }
}

TEST_P(CudaExample, visits_the_tiles_that_its_mask_predicts) {
  Simulated kernel(textOf(GetParam()));
  if (!kernel.program.facts.kvHeads)
    return; // no attention, no tiles
  for (auto [queries, keys] : {std::pair<int64_t, int64_t>{70, 300}, {1, 1000}}) {
    SCOPED_TRACE(testing::Message() << queries << " queries, " << keys << " keys");
    llmopt::cli::RunFigures figures;
    llmopt::harness::Call call = kernel.run(shapeOf({queries}, {keys}), figures);
    llmopt::cli::Prediction expected = llmopt::cli::predict(kernel.program, figures.plan, call);
    ASSERT_EQ(figures.kernels.size(), expected.tiles.size());
    for (size_t i = 0; i < expected.tiles.size(); ++i) {
      EXPECT_EQ(double(figures.kernels[i].visited), expected.tiles[i].visited());
      EXPECT_EQ(double(figures.kernels[i].predicated), expected.tiles[i].partial);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Specs, CudaExample, testing::ValuesIn(examples()),
                         [](const testing::TestParamInfo<std::string> &example) {
                           std::string name = example.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

} // namespace

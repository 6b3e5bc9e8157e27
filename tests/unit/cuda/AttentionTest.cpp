// Attention kernels from NVRTC's PTX, in the simulator, against the float64 oracle.
#include "tests/unit/cuda/Support.h"

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

TEST_P(CudaExample, is_right_on_hard_cases_in_the_simulator) {
  EXPECT_GT(Simulated(textOf(GetParam())).verifyHardCases(), 0u);
}

TEST_P(CudaExample, compiles_for_every_chip) {
  for (const char *arch : {"sm_86", "sm_89", "sm_90", "sm_100", "sm_120"}) {
    SCOPED_TRACE(arch);
    Simulated compiled(textOf(GetParam()), arch);
    for (const llmopt::bundle::Kernel &kernel : compiled.program.kernels)
      EXPECT_EQ(compiled.program.images[kernel.image].format, llmopt::bundle::ImageFormat::Cubin);
  }
}

INSTANTIATE_TEST_SUITE_P(Specs, CudaExample, testing::ValuesIn(examples()),
                         [](const testing::TestParamInfo<std::string> &example) {
                           std::string name = example.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

} // namespace

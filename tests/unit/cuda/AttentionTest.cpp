// Attention kernels from NVRTC's PTX, in the simulator, against the float64 oracle.
#include "tests/unit/cuda/Support.h"

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

/// Any spec file, by hand: LLMOPT_CUDA_SPEC=file cuda-tests --gtest_also_run_disabled_tests.
TEST_F(CudaAttention, DISABLED_hard_cases_of_a_file) {
  const char *list = std::getenv("LLMOPT_CUDA_SPEC");
  ASSERT_TRUE(list);
  const char *arch = std::getenv("LLMOPT_CUDA_ARCH");
  std::stringstream files(list);
  for (std::string file; std::getline(files, file, ' ');) {
    SCOPED_TRACE(file);
    std::ifstream in(file);
    std::stringstream text;
    text << in.rdbuf();
    try {
      Simulated kernel(text.str(), arch ? arch : "sm_80");
      for (const llmopt::bundle::Image &image : kernel.program.images)
        if (image.format == llmopt::bundle::ImageFormat::Cubin)
          std::printf("%s: registers %u, stack %u, spills %u %u, cubin %zu\n", file.c_str(),
                      image.figures.registers, image.figures.stackBytes,
                      image.figures.spillStoreBytes, image.figures.spillLoadBytes,
                      image.bytes.size());
      size_t cases = kernel.verifyHardCases();
      std::printf("%s: %zu cases\n", file.c_str(), cases);
    } catch (const std::exception &error) {
      ADD_FAILURE() << file << ": " << error.what();
    }
    std::fflush(stdout);
  }
}

} // namespace

// The driver fails in the middle of a request: the status names the call, and the next request
// is right, as long as the device is not lost. Kernels are those that NVRTC compiled.
#include "codegen/cuda/nvrtc/Nvrtc.h"
#include "tests/unit/cuda-device/Fake.h"
#include "tools/harness/Check.h"
#include "tools/llm-opt/Prepare.h"
#include "tools/llm-opt/SpecFile.h"
#include "tools/llm-opt/StagedCall.h"

#include "runtime/device/cuda/CudaDevice.h"

#include <gtest/gtest.h>

using namespace llmopt;
using cudatest::Fake;

namespace {

const char *const kSpec = R"(
func.func @decode(%q: tensor<?x4x64xbf16>, %k: tensor<?x2x64xbf16>, %v: tensor<?x2x64xbf16>,
                  %slots: tensor<?xi64>, %kv: !attn.kv_cache<2x64xbf16, page = 16>,
                  %seq: !attn.sequences) -> tensor<?x4x64xbf16> {
  attn.append %k, %v, %slots, %kv
    : tensor<?x2x64xbf16>, tensor<?x2x64xbf16>, tensor<?xi64>, !attn.kv_cache<2x64xbf16, page = 16>
  %o = attn.attention %q, %kv, %seq mask(causal)
    : tensor<?x4x64xbf16>, !attn.kv_cache<2x64xbf16, page = 16>, !attn.sequences
      -> tensor<?x4x64xbf16>
  return %o : tensor<?x4x64xbf16>
})";

std::string textOf(llvm::Error error) { return llvm::toString(std::move(error)); }

class Recovery : public testing::Test {
protected:
  Fake fake;
  std::shared_ptr<runtime::CudaDevice> device;
  std::unique_ptr<cli::SpecFile> file = cli::SpecFile::parse(kSpec, "recovery");
  std::unique_ptr<cli::Runner> runner;
  harness::Spec spec;

  void SetUp() override {
    if (!cuda::Nvrtc::load())
      GTEST_SKIP() << "no NVRTC";
    ::setenv("LLMOPT_CUDA_LIBRARY", FAKE_CUDA, 1);
    fake.reset();
    open();
  }
  void TearDown() override { ::unsetenv("LLMOPT_CUDA_LIBRARY"); }

  void open() {
    auto opened = runtime::CudaDevice::open();
    ASSERT_TRUE(opened) << opened.status().toString();
    device = *opened;
    llvm::Expected<cli::Prepared> prepared =
        cli::prepare(file->specs().front(), {.device = device, .cache = nullptr});
    ASSERT_TRUE(bool(prepared)) << textOf(prepared.takeError());
    runner = std::move(prepared->runner);
    spec = prepared->spec;
  }

  harness::Call call() const {
    harness::Shape shape;
    shape.queryLengths = {1, 3, 1};
    shape.keyLengths = {40, 70, 3};
    return std::move(llvm::cantFail(cli::prepareCall(spec, shape)).call);
  }

  /// One request from its arrays to its results; the failure's text, or nothing.
  std::string request(cli::StagedCall::Launch launch = cli::StagedCall::Launch::Direct) {
    harness::Call made = call();
    auto staged = cli::StagedCall::make(*runner, made, launch);
    if (!staged)
      return textOf(staged.takeError());
    if (llvm::Error error = (*staged)->run())
      return textOf(std::move(error));
    harness::Report report = llvm::cantFail(harness::check(spec, made));
    return report.passed ? "" : report.failure;
  }
};

struct Failure {
  const char *call;
  int result;
  const char *says; ///< part of the status
};

constexpr Failure kFailures[] = {
    {"cuMemAllocFromPoolAsync", 2, "no memory for "},
    {"cuMemcpyHtoDAsync", 1, "cuMemcpyHtoDAsync failed: invalid argument"},
    {"cuLaunchKernel", 1, "of program 'decode': cuLaunchKernel failed: invalid argument"},
    {"cuLaunchKernel", 2, "cuLaunchKernel failed: out of memory (CUDA_ERROR_OUT_OF_MEMORY)"},
    {"cuMemcpyDtoHAsync", 1, "cuMemcpyDtoHAsync failed: invalid argument"},
    {"cuStreamSynchronize", 999, "cuStreamSynchronize failed: unknown error"},
};

constexpr Failure kCaptureFailures[] = {
    {"cuStreamBeginCapture", 900, "cuStreamBeginCapture failed: operation not permitted"},
    {"cuStreamEndCapture", 901, "cuStreamEndCapture failed: operation failed due to"},
    {"cuGraphInstantiateWithFlags", 2, "cuGraphInstantiateWithFlags failed: out of memory"},
    {"cuGraphLaunch", 2, "cuGraphLaunch failed: out of memory"},
};

} // namespace

TEST_F(Recovery, AFailedCallFailsItsRequestAndNotTheNext) {
  ASSERT_EQ(request(), "");
  for (const Failure &failure : kFailures)
    for (int skip : {0, 2}) { // the first such call, and one in the middle of a request
      fake.fail(failure.call, failure.result, skip);
      std::string text = request();
      EXPECT_NE(text.find(failure.says), std::string::npos) << failure.call << ": " << text;
      EXPECT_EQ(request(), "") << "after " << failure.call;
    }
}

TEST_F(Recovery, AFailedCaptureFailsItsRequestAndNotTheNext) {
  using Launch = cli::StagedCall::Launch;
  ASSERT_EQ(request(Launch::Captured), "");
  for (const Failure &failure : kCaptureFailures) {
    fake.fail(failure.call, failure.result, 0);
    std::string text = request(Launch::Captured);
    EXPECT_NE(text.find(failure.says), std::string::npos) << failure.call << ": " << text;
    EXPECT_EQ(request(Launch::Captured), "") << "after " << failure.call;
  }
}

TEST_F(Recovery, MemoryThatRunsOutAtAnyPointIsGivenBack) {
  ASSERT_EQ(request(), "");
  int before = fake.live();
  for (int skip = 0; skip < 12; ++skip) {
    fake.fail("cuMemAllocFromPoolAsync", 2, skip);
    std::string text = request();
    EXPECT_TRUE(text.empty() || text.find("out of memory") != std::string::npos) << text;
    EXPECT_EQ(fake.live(), before) << "after failure " << skip;
  }
}

TEST_F(Recovery, AProgramWhoseModulesDoNotLoadMayLoadLater) {
  bundle::Program program = runner->program();
  for (int skip : {0, 1}) {
    fake.fail("cuModuleGetFunction", 500, skip);
    EXPECT_NE(device->load(program).status().message().find("cuModuleGetFunction failed: named "
                                                            "symbol not found"),
              std::string::npos);
    EXPECT_TRUE(device->load(program));
  }
  EXPECT_EQ(request(), "");
}

TEST_F(Recovery, AKernelThatReadsOutsideItsArraysLosesTheDevice) {
  ASSERT_EQ(request(), "");
  harness::Call made = call();
  made.find("block_table")->set({0, 0}, 1e6); // nobody checks it: `run` does, with validatePages
  auto staged = cli::StagedCall::make(*runner, made, cli::StagedCall::Launch::Direct);
  ASSERT_TRUE(bool(staged));
  std::string text = textOf((*staged)->run());
  EXPECT_NE(text.find("failed: an illegal memory access was encountered: "), std::string::npos)
      << text;
  EXPECT_NE(text.find("start the process anew"), std::string::npos) << text;
  EXPECT_NE(request().find("start the process anew"), std::string::npos) << "it stays lost";
  staged->reset(), runner.reset(), device.reset();
  fake.reset(); // a process that is started anew
  open();
  EXPECT_EQ(request(), "");
}

TEST_F(Recovery, ALostDeviceIsToldAtTheNextCall) {
  for (int result : {700, 702, 716, 719}) {
    fake.fail("cuLaunchKernel", result, 0);
    EXPECT_NE(request().find("failed: "), std::string::npos) << result;
    EXPECT_NE(request(), "") << "it stays lost";
    runner.reset(), device.reset();
    fake.reset();
    open();
    EXPECT_EQ(request(), "") << "a process that is started anew";
  }
}

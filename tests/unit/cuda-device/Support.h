// The substitute driver under the runtime, for one test.
#pragma once

#include "tests/unit/cuda-device/Fake.h"
#include "tests/unit/runtime/device/cpu/CallTestUtil.h"

#include "runtime/device/Devices.h"
#include "runtime/device/StagedArrays.h"
#include "runtime/device/cuda/CudaDevice.h"

#include <cstdlib>

namespace cudatest {

using namespace calltest;

struct CudaTest : testing::Test {
  Fake fake;

  void SetUp() override {
    ::setenv("LLMOPT_CUDA_LIBRARY", FAKE_CUDA, 1);
    fake.reset();
  }
  void TearDown() override {
    EXPECT_EQ(fake.live(), 0) << "handles, memory and contexts are given back";
    ::unsetenv("LLMOPT_CUDA_LIBRARY");
  }

  static std::shared_ptr<CudaDevice> open() {
    StatusOr<std::shared_ptr<CudaDevice>> device = CudaDevice::open();
    EXPECT_TRUE(device) << device.status().toString();
    return device ? *device : nullptr;
  }
};

/// The program of CallTestUtil.h with its image as "machine code" and as "PTX".
inline Program cudaProgram(const Spec &spec, const char *arch = "sm_80",
                           const char *virtualArch = "compute_80") {
  Program program = makeProgram(spec);
  program.target = std::string("cuda:") + arch;
  std::vector<uint8_t> object = program.images[0].bytes,
                       text = {'/', '/', 'P', 'T', 'X', ' ', ' ', ' '};
  text.insert(text.end(), object.begin(), object.end());
  program.images = {{"nvptx64-nvidia-cuda", arch, "", object, ImageFormat::Cubin, 13000, {}},
                    {"nvptx64-nvidia-cuda", virtualArch, "", text, ImageFormat::Ptx, 13000, {}}};
  for (Kernel &kernel : program.kernels) {
    kernel.otherImages = {1};
    kernel.blockThreads = 128;
    kernel.sharedBytes = kernel.kind == KernelKind::Attend ? 65536 : 0;
  }
  return program;
}

} // namespace cudatest

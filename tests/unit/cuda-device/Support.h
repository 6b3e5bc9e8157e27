// The substitute driver under the runtime, for one test.
#pragma once

#include "tests/support/fake-cuda/FakeCuda.h"
#include "tests/unit/runtime/device/cpu/CallTestUtil.h"

#include "runtime/device/Devices.h"
#include "runtime/device/StagedArrays.h"
#include "runtime/device/cuda/CudaDevice.h"

#include <cstdlib>
#include <dlfcn.h>

namespace cudatest {

using namespace calltest;

/// The control functions of the library that the runtime opens.
struct Fake {
  decltype(&fake_cuda_log) log;
  decltype(&fake_cuda_reset) reset;
  decltype(&fake_cuda_fail) fail;
  decltype(&fake_cuda_set) set;
  decltype(&fake_cuda_live) live;

  Fake() {
    void *library = ::dlopen(FAKE_CUDA, RTLD_NOW);
    auto find = [&](auto &function, const char *name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(library, name));
      if (!function)
        std::abort();
    };
    find(log, "fake_cuda_log"), find(reset, "fake_cuda_reset"), find(fail, "fake_cuda_fail");
    find(set, "fake_cuda_set"), find(live, "fake_cuda_live");
  }

  /// Lines of the log that begin with one of the names.
  std::vector<std::string> calls(std::initializer_list<std::string_view> names) const {
    std::vector<std::string> lines;
    std::string_view text = log();
    while (!text.empty()) {
      std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(line.size() + 1);
      for (std::string_view name : names)
        if (line.substr(0, line.find(' ')) == name)
          lines.emplace_back(line);
    }
    return lines;
  }
};

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

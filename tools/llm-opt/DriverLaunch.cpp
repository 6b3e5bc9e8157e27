// See DriverLaunch.h.
#include "tools/llm-opt/DriverLaunch.h"

#include "runtime/device/Devices.h"
#include "runtime/device/cuda/CudaDevice.h"

#include <cstring>

namespace llmopt::cli {
namespace {

using namespace runtime;

/// A module while it is loaded.
struct LoadedModule {
  const cuda::Driver &driver;
  cuda::ModuleHandle handle = nullptr;
  ~LoadedModule() {
    if (handle)
      driver.cuModuleUnload(handle);
  }
};

/// The parameters with device addresses in place of the host's.
std::vector<std::byte> paramsOn(const sim::KernelInfo &kernel, const SimLaunch &launch,
                                const std::vector<DeviceMemory> &memory) {
  std::vector<std::byte> params = launch.params;
  for (const sim::KernelParam &param : kernel.params) {
    uint64_t value = 0;
    if (param.size != sizeof(value))
      continue;
    std::memcpy(&value, params.data() + param.offset, sizeof(value));
    size_t index = 0;
    for (const SimArray &array : launch.arrays) {
      auto device = reinterpret_cast<uint64_t>(memory[index++].data());
      if (value == reinterpret_cast<uint64_t>(array.array.bytes.data()))
        std::memcpy(params.data() + param.offset, &device, sizeof(device));
    }
  }
  return params;
}

Status launchKernel(const cuda::Driver &driver, cuda::Function function, const SimLaunch &launch,
                    std::vector<std::byte> &params) {
  const auto &[kernel, grid, block, shared, unused, cluster] = launch.launch;
  constexpr int kMaxDynamicShared = 8; // of CUfunction_attribute
  if (shared)
    LLMOPT_CUDA_TRY(driver, cuFuncSetAttribute, function, kMaxDynamicShared,
                    static_cast<int>(shared));
  size_t bytes = params.size();
  void *extra[] = {reinterpret_cast<void *>(1), params.data(), reinterpret_cast<void *>(2), &bytes,
                   nullptr};
  LLMOPT_CUDA_TRY(driver, cuLaunchKernel, function, grid[0], grid[1], grid[2], block[0], block[1],
                  block[2], shared, nullptr, nullptr, extra);
  LLMOPT_CUDA_TRY(driver, cuStreamSynchronize, nullptr);
  return {};
}

} // namespace

Status runOnDriver(const std::string &name, const std::vector<uint8_t> &ptx,
                   const sim::Module &module, SimLaunch &launch) {
  if (launch.tensorMaps || launch.launch.cluster[0])
    return invalidArgument("device '{}': tensor maps and clusters of a launch description are for "
                           "the device sim alone",
                           name);
  StatusOr<std::shared_ptr<Device>> opened = openDevice(name);
  if (!opened)
    return opened.status();
  auto device = std::dynamic_pointer_cast<CudaDevice>(*opened);
  if (!device)
    return invalidArgument("device '{}' runs no PTX; sim, cuda and cuda:NUMBER do", name);
  StatusOr<std::unique_ptr<Stream>> stream = device->useStream(nullptr);
  if (!stream)
    return stream.status();
  std::vector<DeviceMemory> memory;
  for (const SimArray &array : launch.arrays) {
    StatusOr<DeviceMemory> place = device->allocate(array.array.bytes.size());
    if (!place)
      return place.status();
    memory.push_back(*std::move(place));
    LLMOPT_RETURN_IF_ERROR((*stream)->copyIn(memory.back().data(), array.array.bytes.data(),
                                             array.array.bytes.size()));
  }
  cuda::Current current(*device);
  LLMOPT_RETURN_IF_ERROR(current.status());
  const cuda::Driver &driver = device->driver();
  std::vector<uint8_t> text = ptx;
  text.push_back(0);
  char log[4096] = "";
  const int options[] = {5, 6}; // CU_JIT_ERROR_LOG_BUFFER and its size
  void *values[] = {log, reinterpret_cast<void *>(sizeof(log) - 1)};
  LoadedModule loaded{driver};
  if (Status status =
          driver.check(driver.cuModuleLoadDataEx(&loaded.handle, text.data(), 2, options, values),
                       "cuModuleLoadDataEx");
      !status.ok())
    return makeStatus(status.code(), "{}{}{}", status.message(), *log ? ": " : "", log);
  cuda::Function function = nullptr;
  LLMOPT_CUDA_TRY(driver, cuModuleGetFunction, &function, loaded.handle, launch.kernel.c_str());
  std::vector<std::byte> params = paramsOn(*module.kernel(launch.kernel), launch, memory);
  LLMOPT_RETURN_IF_ERROR(launchKernel(driver, function, launch, params));
  size_t index = 0;
  for (SimArray &array : launch.arrays) {
    const DeviceMemory &place = memory[index++];
    if (array.writable)
      LLMOPT_RETURN_IF_ERROR(
          (*stream)->copyOut(array.array.bytes.data(), place.data(), array.array.bytes.size()));
  }
  return (*stream)->synchronize();
}

} // namespace llmopt::cli

// A CUDA device through the driver API: its primary context (which other libraries of the
// process share), a pool of memory, modules from a bundle's images, graphs.
#pragma once

#include "runtime/device/Device.h"
#include "runtime/device/cuda/Driver.h"
#include "runtime/target/CudaArch.h"

#include <memory>

namespace llmopt::runtime {

class CudaDevice final : public Device {
public:
  /// Device `ordinal` of the driver. Unavailable says what is missing.
  static StatusOr<std::shared_ptr<CudaDevice>> open(uint32_t ordinal = 0);
  static StatusOr<std::shared_ptr<CudaDevice>> open(std::shared_ptr<const cuda::Driver> driver,
                                                    uint32_t ordinal);
  ~CudaDevice() override;

  const DeviceFacts &facts() const override { return described; }
  StatusOr<DeviceMemory> allocate(size_t bytes) override;
  StatusOr<std::unique_ptr<Stream>> createStream() override;
  StatusOr<std::unique_ptr<Stream>> useStream(void *native) override;
  StatusOr<std::shared_ptr<DeviceProgram>> load(bundle::Program program) override;

  const cuda::Driver &driver() const { return *api; }
  const CudaArch &chip() const { return arch; }
  /// Most dynamic shared memory that a block may ask for.
  uint32_t sharedBytes() const { return maxShared; }
  cuda::Context context() const { return primary; }

private:
  CudaDevice(std::shared_ptr<const cuda::Driver> driver, cuda::DeviceId id)
      : api(std::move(driver)), id(id) {}
  Status initialise();
  Status describe();
  Status createPool();
  void release(void *memory, size_t bytes) noexcept override;
  std::shared_ptr<CudaDevice> self() {
    return std::static_pointer_cast<CudaDevice>(shared_from_this());
  }

  std::shared_ptr<const cuda::Driver> api;
  cuda::DeviceId id;
  DeviceFacts described;
  CudaArch arch;
  uint32_t maxShared = 0;
  cuda::Context primary = nullptr;
  cuda::Pool pool = nullptr;               ///< null where the device has no pools
  cuda::StreamHandle allocation = nullptr; ///< in whose order the pool gives and takes
};

namespace cuda {

/// Makes the device's context current for a scope, and then again what was current before:
/// the caller may have a context of its own.
class Current {
public:
  explicit Current(const CudaDevice &device)
      : driver(device.driver()), result(driver.cuCtxPushCurrent_v2(device.context())) {}
  Current(const Current &) = delete;
  Current &operator=(const Current &) = delete;
  ~Current() {
    Context popped;
    if (result == 0)
      driver.cuCtxPopCurrent_v2(&popped);
  }
  Status status() const { return driver.check(result, "cuCtxPushCurrent"); }

private:
  const Driver &driver;
  Result result;
};

std::unique_ptr<Stream> makeStream(std::shared_ptr<CudaDevice> device, StreamHandle handle,
                                   bool owned);
StatusOr<std::shared_ptr<DeviceProgram>> loadProgram(std::shared_ptr<CudaDevice> device,
                                                     bundle::Program program);

} // namespace cuda

/// Leaves the calling function with the failure of a driver call, if it has one.
#define LLMOPT_CUDA_TRY(driver, name, ...)                                                         \
  LLMOPT_RETURN_IF_ERROR((driver).check((driver).name(__VA_ARGS__), #name))

} // namespace llmopt::runtime

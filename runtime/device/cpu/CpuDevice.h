// The CPU as a device: its memory is the host's, workers run on a pool of threads, and a
// stream has run its work when the call returns.
#pragma once

#include "runtime/device/Device.h"
#include "runtime/device/cpu/CpuProgram.h"
#include "runtime/device/cpu/ThreadPool.h"

#include <memory>

namespace llmopt::runtime {

class CpuDevice final : public Device {
public:
  /// With a pool of its own. `threads` as ThreadPool takes them.
  static StatusOr<std::shared_ptr<CpuDevice>> create(uint32_t threads = 0);
  /// With a pool that others use too.
  static StatusOr<std::shared_ptr<CpuDevice>> create(std::shared_ptr<ThreadPool> pool);

  const DeviceFacts &facts() const override { return described; }
  StatusOr<DeviceMemory> allocate(size_t bytes) override;
  StatusOr<std::unique_ptr<Stream>> createStream() override;
  StatusOr<std::unique_ptr<Stream>> useStream(void *native) override;
  StatusOr<std::shared_ptr<DeviceProgram>> load(bundle::Program program) override;

  ThreadPool &threads() { return *pool; }

private:
  CpuDevice(std::shared_ptr<ThreadPool> pool, DeviceFacts facts)
      : pool(std::move(pool)), described(std::move(facts)) {}
  void release(void *memory, size_t bytes) noexcept override;

  std::shared_ptr<ThreadPool> pool;
  DeviceFacts described;
};

} // namespace llmopt::runtime

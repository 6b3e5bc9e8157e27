// The simulator as a device, for tests of compiled kernels.
#pragma once

#include "runtime/device/HostStream.h"
#include "runtime/device/sim/Simulator.h"

#include <mutex>

namespace llmopt::test {

class SimDevice final : public runtime::Device {
public:
  explicit SimDevice(uint64_t seed = 0) : seed(seed) {
    known.kind = runtime::DeviceKind::Sim;
    known.name = "simulator", known.arch = "sm_80", known.units = 4;
  }

  const runtime::DeviceFacts &facts() const override { return known; }
  runtime::StatusOr<runtime::DeviceMemory> allocate(size_t bytes) override;
  runtime::StatusOr<std::unique_ptr<runtime::Stream>> createStream() override;
  runtime::StatusOr<std::unique_ptr<runtime::Stream>> useStream(void *) override;
  runtime::StatusOr<std::shared_ptr<runtime::DeviceProgram>> load(bundle::Program program) override;

  sim::GlobalMemory memory;
  sim::Counters counters; ///< of all launches
  uint64_t seed;

private:
  void release(void *memory, size_t bytes) noexcept override;

  runtime::DeviceFacts known;
};

} // namespace llmopt::test

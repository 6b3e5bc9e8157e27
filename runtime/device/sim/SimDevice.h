// The simulator as a device: what CUDA programs do without a GPU. Its memory is
// apart from the host's and every allocation is a buffer of its own, so that a
// kernel that leaves its arrays is stopped where it does. A stream has run its
// work when the call returns; a fault of a kernel is the failure of its launch.
#pragma once

#include "runtime/device/Device.h"
#include "runtime/device/sim/Simulator.h"
#include "runtime/target/CudaArch.h"

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace llmopt::runtime {

class SimDevice final : public Device {
public:
  /// `chip` decides which PTX is taken; without one, each program runs as on
  /// the chip that it was compiled for.
  static std::shared_ptr<SimDevice> create(std::optional<CudaArch> chip = {},
                                           const sim::Options &options = {});

  const DeviceFacts &facts() const override { return described; }
  StatusOr<DeviceMemory> allocate(size_t bytes) override;
  StatusOr<std::unique_ptr<Stream>> createStream() override;
  StatusOr<std::unique_ptr<Stream>> useStream(void *native) override;
  StatusOr<std::shared_ptr<DeviceProgram>> load(bundle::Program program) override;

  /// What the kernels of all launches since the last call did, by entry.
  std::map<std::string, sim::Counters> takeCounters();
  /// From now on launches are profiled; profiles collect until they are taken.
  void startProfiling();
  std::map<std::string, sim::Profile> takeProfiles();
  /// The last fault, for programs that want more than its text.
  std::optional<sim::Fault> lastFault() const;

private:
  friend class SimStream;
  friend class SimProgram;

  SimDevice(std::optional<CudaArch> chip, const sim::Options &options);
  StatusOr<DeviceMemory> allocateLarge(size_t bytes);
  void release(void *memory, size_t bytes) noexcept override;
  std::shared_ptr<SimDevice> self() {
    return std::static_pointer_cast<SimDevice>(shared_from_this());
  }
  /// Start and size of the allocation that holds the address.
  std::optional<std::pair<uint64_t, uint64_t>> allocationOf(uint64_t address) const;

  std::optional<CudaArch> chip;
  sim::Options options;
  DeviceFacts described;
  mutable std::mutex mutex; ///< over what follows
  std::map<uint64_t, uint64_t> allocations;
  std::map<std::string, sim::Counters> counters;
  bool profiling = false;
  std::map<std::string, sim::Profile> profiles;
  std::optional<sim::Fault> fault;
};

} // namespace llmopt::runtime

// A bundle's PTX images, decoded for the simulator.
#pragma once

#include "runtime/device/sim/SimDevice.h"

#include <vector>

namespace llmopt::runtime {

class SimProgram final : public DeviceProgram {
public:
  SimProgram(std::shared_ptr<SimDevice> device, bundle::Program program)
      : simDevice(device), owner(std::move(device)), held(std::move(program)) {}
  Status initialise(const std::optional<CudaArch> &chip);

  const bundle::Program &program() const override { return held; }
  const std::shared_ptr<Device> &device() const override { return owner; }
  uint32_t residentWorkers() const override { return owner->facts().units; }
  std::string imageChoice() const override { return choice; }

  /// Runs one kernel to its end, one block for each worker.
  Status run(const KernelCall &call, uint32_t workers) const;

private:
  StatusOr<uint32_t> chooseImage(const bundle::Kernel &kernel, const CudaArch &chip) const;
  StatusOr<std::shared_ptr<const sim::Module>> moduleOf(uint32_t image);
  Status registerBuffers(const KernelCall &call) const;
  void forgetBuffers() const;

  std::shared_ptr<SimDevice> simDevice;
  std::shared_ptr<Device> owner;
  bundle::Program held;
  std::map<uint32_t, std::shared_ptr<const sim::Module>> images; ///< by number
  std::vector<std::shared_ptr<const sim::Module>> modules;       ///< one for each kernel
  std::string choice;
  mutable std::mutex running; ///< one launch of the program at a time
  /// Lives as long as the program, as the variables of its modules do.
  mutable sim::GlobalMemory memory;
  mutable std::vector<uint64_t> registered;
};

} // namespace llmopt::runtime

// A bundle's CUDA images as loaded modules.
#pragma once

#include "runtime/device/cuda/CudaDevice.h"

#include <vector>

namespace llmopt::runtime::cuda {

class CudaProgram final : public DeviceProgram {
public:
  CudaProgram(std::shared_ptr<CudaDevice> device, bundle::Program program)
      : cudaDevice(device), owner(std::move(device)), held(std::move(program)) {}
  ~CudaProgram() override;
  /// Loads images and finds the entries. The device's context is current.
  Status initialise();

  const bundle::Program &program() const override { return held; }
  const std::shared_ptr<Device> &device() const override { return owner; }
  /// Of the Attend kernels, which take the time, where there are any.
  uint32_t residentWorkers() const override { return residentAttend ? residentAttend : resident; }
  std::string imageChoice() const override { return choice; }

  Function function(uint32_t kernel) const { return functions[kernel]; }

private:
  struct Module {
    uint32_t image;
    ModuleHandle handle;
  };

  Status loadKernel(const bundle::Kernel &kernel);
  StatusOr<Function> findFunction(const bundle::Kernel &kernel, uint32_t image);
  StatusOr<ModuleHandle> moduleOf(uint32_t image);
  Status prepare(const bundle::Kernel &kernel, Function function);

  std::shared_ptr<CudaDevice> cudaDevice;
  std::shared_ptr<Device> owner;
  bundle::Program held;
  std::vector<Module> modules;
  std::vector<Function> functions; ///< one for each kernel
  uint32_t residentAttend = 0, resident = 0;
  std::string choice;
};

} // namespace llmopt::runtime::cuda

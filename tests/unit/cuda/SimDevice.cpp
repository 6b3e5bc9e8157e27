#include "tests/unit/cuda/SimDevice.h"

namespace llmopt::test {
namespace {

using namespace runtime;

class SimProgram final : public DeviceProgram {
public:
  SimProgram(std::shared_ptr<Device> device, bundle::Program program)
      : owner(std::move(device)), loaded(std::move(program)) {}

  Status decode() {
    for (const bundle::Kernel &kernel : loaded.kernels) {
      std::vector<uint32_t> images = kernel.otherImages;
      images.push_back(kernel.image);
      for (uint32_t image : images) {
        if (loaded.images[image].format != bundle::ImageFormat::Ptx)
          continue;
        const std::vector<uint8_t> &bytes = loaded.images[image].bytes;
        std::string_view text(reinterpret_cast<const char *>(bytes.data()), bytes.size());
        auto module = sim::loadPtx(text, kernel.entry);
        if (!module)
          return module.status();
        modules.push_back(*module);
        break;
      }
    }
    return {};
  }

  const bundle::Program &program() const override { return loaded; }
  const std::shared_ptr<Device> &device() const override { return owner; }
  uint32_t residentWorkers() const override { return 4; }
  std::string imageChoice() const override { return "PTX"; }

  std::vector<std::shared_ptr<const sim::Module>> modules;

private:
  std::shared_ptr<Device> owner;
  bundle::Program loaded;
};

class SimStream final : public HostStream {
public:
  explicit SimStream(std::shared_ptr<Device> device) : HostStream(std::move(device)) {}

private:
  Status runKernels(const DeviceProgram &program, std::span<const KernelCall> kernels,
                    uint32_t workers) override {
    const auto &loaded = static_cast<const SimProgram &>(program);
    auto &owner = static_cast<SimDevice &>(*device());
    for (const KernelCall &call : kernels) {
      const bundle::Kernel &kernel = loaded.program().kernels[call.kernel];
      sim::Launch launch;
      launch.kernel = kernel.entry;
      launch.grid = {workers, 1, 1};
      launch.block = {kernel.blockThreads, 1, 1};
      launch.dynamicShared = kernel.sharedBytes;
      launch.params = std::as_bytes(call.params);
      sim::Options options;
      options.threads = 1;
      options.seed = owner.seed;
      auto counters = sim::run(*loaded.modules[call.kernel], owner.memory, launch, options);
      if (!counters)
        return counters.status();
    }
    return {};
  }
};

} // namespace

StatusOr<DeviceMemory> SimDevice::allocate(size_t bytes) {
  StatusOr<DeviceMemory> result = allocateHost(shared_from_this(), bytes);
  if (result && bytes)
    if (Status added = memory.add(result->data(), bytes, "allocation", sim::Access::ReadWrite);
        !added.ok())
      return added;
  return result;
}

void SimDevice::release(void *data, size_t) noexcept {
  (void)memory.remove(data);
  releaseHost(data);
}

StatusOr<std::unique_ptr<Stream>> SimDevice::createStream() {
  return std::unique_ptr<Stream>(std::make_unique<SimStream>(shared_from_this()));
}

StatusOr<std::unique_ptr<Stream>> SimDevice::useStream(void *) {
  return makeStatus(StatusCode::Unsupported, "the simulator has no streams of its own");
}

StatusOr<std::shared_ptr<DeviceProgram>> SimDevice::load(bundle::Program program) {
  auto loaded = std::make_shared<SimProgram>(shared_from_this(), std::move(program));
  if (Status status = loaded->decode(); !status.ok())
    return status;
  return std::shared_ptr<DeviceProgram>(loaded);
}

} // namespace llmopt::test

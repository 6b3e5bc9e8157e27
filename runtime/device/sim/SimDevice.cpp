#include "runtime/device/sim/SimDevice.h"

#include "runtime/bundle/BundleIO.h"
#include "runtime/device/HostStream.h"
#include "runtime/device/sim/SimProgram.h"
#include "runtime/device/sim/UnwrittenMemory.h"

#include <cstring>

namespace llmopt::runtime {

namespace {

/// Blocks that a plan may count on running at a time: enough for every way to
/// split work to come up, few enough that small batches stay quick.
constexpr uint32_t kUnits = 8;

/// Allocations from here on take no memory until they are written.
constexpr size_t kLarge = size_t{64} << 20;

} // namespace

/// Runs kernels one after another.
class SimStream final : public HostStream {
public:
  explicit SimStream(std::shared_ptr<SimDevice> device)
      : HostStream(device), simDevice(std::move(device)) {}

private:
  Status runKernels(const DeviceProgram &program, std::span<const KernelCall> kernels,
                    uint32_t workers) override {
    for (const KernelCall &call : kernels)
      LLMOPT_RETURN_IF_ERROR(static_cast<const SimProgram &>(program).run(call, workers));
    return {};
  }

  std::shared_ptr<SimDevice> simDevice;
};

SimDevice::SimDevice(std::optional<CudaArch> chip, const sim::Options &options)
    : chip(chip), options(options) {
  described.kind = DeviceKind::Sim;
  described.name = chip ? fmt::format("simulated {}", chip->name()) : "simulated GPU";
  described.arch = chip ? chip->name() : "";
  described.units = kUnits;
}

std::shared_ptr<SimDevice> SimDevice::create(std::optional<CudaArch> chip,
                                             const sim::Options &options) {
  return std::shared_ptr<SimDevice>(new SimDevice(chip, options));
}

StatusOr<DeviceMemory> SimDevice::allocate(size_t bytes) {
  StatusOr<DeviceMemory> memory =
      bytes < kLarge ? allocateHost(shared_from_this(), bytes) : allocateLarge(bytes);
  if (!memory || bytes == 0)
    return memory;
  if (bytes < kLarge)
    std::memset(memory->data(), 0xff, bytes); // NaN in every format, until it is written
  std::lock_guard lock(mutex);
  allocations[reinterpret_cast<uint64_t>(memory->data())] = bytes;
  return memory;
}

StatusOr<DeviceMemory> SimDevice::allocateLarge(size_t bytes) {
  StatusOr<void *> memory = sim::mapUnwritten(bytes);
  if (!memory)
    return memory.status().withContext(fmt::format("device '{}'", described.name));
  return DeviceMemory(shared_from_this(), *memory, bytes);
}

void SimDevice::release(void *memory, size_t bytes) noexcept {
  {
    std::lock_guard lock(mutex);
    allocations.erase(reinterpret_cast<uint64_t>(memory));
  }
  if (bytes < kLarge)
    releaseHost(memory);
  else
    sim::unmapUnwritten(memory, bytes);
}

std::optional<std::pair<uint64_t, uint64_t>> SimDevice::allocationOf(uint64_t address) const {
  std::lock_guard lock(mutex);
  auto it = allocations.upper_bound(address);
  if (it == allocations.begin() || address >= (--it)->first + it->second)
    return std::nullopt;
  return *it;
}

StatusOr<std::unique_ptr<Stream>> SimDevice::createStream() {
  return std::unique_ptr<Stream>(std::make_unique<SimStream>(self()));
}

StatusOr<std::unique_ptr<Stream>> SimDevice::useStream(void *) {
  return makeStatus(StatusCode::Unsupported, "the simulator has no streams of its own; create one");
}

StatusOr<std::shared_ptr<DeviceProgram>> SimDevice::load(bundle::Program program) {
  LLMOPT_RETURN_IF_ERROR(bundle::checkLoadable(program));
  std::string context = fmt::format("program '{}'", program.name);
  auto loaded = std::make_shared<SimProgram>(self(), std::move(program));
  if (Status status = loaded->initialise(chip); !status.ok())
    return status.withContext(context);
  return std::shared_ptr<DeviceProgram>(std::move(loaded));
}

std::map<std::string, sim::Counters> SimDevice::takeCounters() {
  std::lock_guard lock(mutex);
  return std::exchange(counters, {});
}

void SimDevice::startProfiling() {
  std::lock_guard lock(mutex);
  profiling = true;
}

std::map<std::string, sim::Profile> SimDevice::takeProfiles() {
  std::lock_guard lock(mutex);
  return std::exchange(profiles, {});
}

std::optional<sim::Fault> SimDevice::lastFault() const {
  std::lock_guard lock(mutex);
  return fault;
}

} // namespace llmopt::runtime

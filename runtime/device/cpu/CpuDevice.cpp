#include "runtime/device/cpu/CpuDevice.h"

#include "runtime/base/AlignedBuffer.h"
#include "runtime/device/HostStream.h"

#include <algorithm>
#include <atomic>
#include <new>

namespace llmopt::runtime {

namespace {

class LoadedCpuProgram final : public DeviceProgram {
public:
  LoadedCpuProgram(std::shared_ptr<CpuDevice> device, CpuProgram program)
      : owner(std::move(device)), pool(&std::static_pointer_cast<CpuDevice>(owner)->threads()),
        loaded(std::move(program)) {
    constexpr uint64_t kLine = AlignedBuffer::kAlignment;
    for (const bundle::Kernel &kernel : loaded.program().kernels)
      scratchBytes = std::max(scratchBytes, (kernel.scratchBytes + kLine - 1) / kLine * kLine);
  }

  const bundle::Program &program() const override { return loaded.program(); }
  const std::shared_ptr<Device> &device() const override { return owner; }
  uint32_t residentWorkers() const override { return pool->size(); }
  std::string imageChoice() const override {
    const std::vector<bundle::Image> &images = loaded.program().images;
    if (images.empty())
      return "no image";
    return fmt::format("object for {} ({})", images.front().triple, images.front().cpu);
  }

  bundle::CpuEntry entry(size_t kernel) const { return loaded.entry(kernel); }
  /// Of one thread.
  uint64_t scratch() const { return scratchBytes; }

private:
  std::shared_ptr<Device> owner;
  ThreadPool *pool;
  CpuProgram loaded;
  uint64_t scratchBytes = 0;
};

class CpuStream final : public HostStream {
public:
  CpuStream(std::shared_ptr<Device> device, ThreadPool &pool)
      : HostStream(std::move(device)), pool(pool) {}

private:
  /// All kernels in one pass over the workers: the planner has balanced them together.
  Status runKernels(const DeviceProgram &program, std::span<const KernelCall> kernels,
                    uint32_t workers) override {
    const auto &loaded = static_cast<const LoadedCpuProgram &>(program);
    uint64_t each = loaded.scratch();
    LLMOPT_RETURN_IF_ERROR(reserveScratch(each * pool.size()));
    // First failure: kernel and result, for the message.
    std::atomic<uint64_t> failure{0};
    pool.parallelFor(workers, [&](uint32_t worker, uint32_t thread) {
      uint8_t *own = scratch.data() ? scratch.data() + thread * each : nullptr;
      for (const KernelCall &call : kernels) {
        int result = loaded.entry(call.kernel)(call.params.data(), worker, own);
        uint64_t none = 0;
        if (result != 0)
          failure.compare_exchange_strong(none, (uint64_t{call.kernel} + 1) << 32 |
                                                    static_cast<uint32_t>(result));
      }
    });
    if (uint64_t failed = failure.load())
      return makeStatus(StatusCode::Internal, "kernel '{}' of program '{}' returned {}",
                        program.program().kernels[(failed >> 32) - 1].entry, program.program().name,
                        static_cast<int32_t>(failed & 0xffffffff));
    return {};
  }

  Status reserveScratch(uint64_t bytes) {
    if (scratch.size() >= bytes)
      return {};
    try {
      scratch = AlignedBuffer(bytes);
      return {};
    } catch (const std::bad_alloc &) {
      return makeStatus(StatusCode::ResourceExhausted, "no memory for {} bytes of scratch", bytes);
    }
  }

  ThreadPool &pool;
  AlignedBuffer scratch;
};

} // namespace

StatusOr<std::shared_ptr<CpuDevice>> CpuDevice::create(uint32_t threads) {
  return create(std::make_shared<ThreadPool>(threads));
}

StatusOr<std::shared_ptr<CpuDevice>> CpuDevice::create(std::shared_ptr<ThreadPool> pool) {
  StatusOr<CpuInfo> cpu = hostCpu();
  if (!cpu)
    return cpu.status();
  DeviceFacts facts{.kind = DeviceKind::Cpu,
                    .name = cpu->brand,
                    .arch = "x86_64",
                    .driver = "",
                    .units = pool->size(),
                    .memoryBytes = 0,
                    .hostMemory = true};
  return std::shared_ptr<CpuDevice>(new CpuDevice(std::move(pool), std::move(facts)));
}

StatusOr<DeviceMemory> CpuDevice::allocate(size_t bytes) {
  return allocateHost(shared_from_this(), bytes);
}

void CpuDevice::release(void *memory, size_t) noexcept { releaseHost(memory); }

StatusOr<std::unique_ptr<Stream>> CpuDevice::createStream() {
  return std::unique_ptr<Stream>(std::make_unique<CpuStream>(shared_from_this(), *pool));
}

StatusOr<std::unique_ptr<Stream>> CpuDevice::useStream(void *) {
  return makeStatus(StatusCode::Unsupported, "a CPU has no streams of its own; create one");
}

StatusOr<std::shared_ptr<DeviceProgram>> CpuDevice::load(bundle::Program program) {
  StatusOr<CpuProgram> loaded = CpuProgram::load(std::move(program));
  if (!loaded)
    return loaded.status();
  return std::shared_ptr<DeviceProgram>(std::make_shared<LoadedCpuProgram>(
      std::static_pointer_cast<CpuDevice>(shared_from_this()), *std::move(loaded)));
}

} // namespace llmopt::runtime

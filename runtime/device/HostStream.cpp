#include "runtime/device/HostStream.h"

#include "runtime/base/AlignedBuffer.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>

namespace llmopt::runtime {

namespace {

using Clock = std::chrono::steady_clock;

/// All work before it was done when it was made.
class HostEvent final : public Event {
public:
  Status synchronize() override { return {}; }
  StatusOr<double> secondsSince(const Event &earlier) const override {
    const auto *other = dynamic_cast<const HostEvent *>(&earlier);
    if (!other)
      return invalidArgument("the earlier event is of another kind of device");
    return std::chrono::duration<double>(time - other->time).count();
  }

private:
  Clock::time_point time = Clock::now();
};

/// Parameter blocks of a launch, kept for its replays.
struct KeptLaunch {
  std::vector<AlignedBuffer> blocks;
  std::vector<KernelCall> calls;

  explicit KeptLaunch(std::span<const KernelCall> kernels) {
    for (const KernelCall &kernel : kernels) {
      AlignedBuffer &block = blocks.emplace_back(kernel.params.size());
      if (!kernel.params.empty())
        std::memcpy(block.data(), kernel.params.data(), kernel.params.size());
      calls.push_back({kernel.kernel, {block.data(), block.size()}});
    }
  }
};

} // namespace

class HostStream::Recording final : public Graph {
public:
  std::vector<Work> work;
};

HostStream::HostStream(std::shared_ptr<Device> device) : owner(std::move(device)) {}

HostStream::~HostStream() = default;

template <typename Body> Status HostStream::give(Body body) {
  if (!capturing)
    return body(*this);
  try {
    capturing->work.emplace_back(std::move(body));
    return {};
  } catch (const std::bad_alloc &) {
    return makeStatus(StatusCode::ResourceExhausted, "no memory to capture more work");
  }
}

Status HostStream::copy(void *to, const void *from, size_t bytes) {
  return give([=](HostStream &) -> Status {
    if (bytes)
      std::memmove(to, from, bytes);
    return {};
  });
}

Status HostStream::copyIn(void *to, const void *from, size_t bytes) {
  return copy(to, from, bytes);
}

Status HostStream::copyOut(void *to, const void *from, size_t bytes) {
  return copy(to, from, bytes);
}

Status HostStream::copyWithin(void *to, const void *from, size_t bytes) {
  return copy(to, from, bytes);
}

Status HostStream::fill(void *to, uint8_t value, size_t bytes) {
  return give([=](HostStream &) -> Status {
    if (bytes)
      std::memset(to, value, bytes);
    return {};
  });
}

Status HostStream::launch(const DeviceProgram &program, std::span<const KernelCall> kernels,
                          uint32_t workers) {
  if (program.device() != owner)
    return invalidArgument("program '{}' was loaded on another device than the stream's",
                           program.program().name);
  if (workers == 0 || kernels.empty())
    return {};
  if (!capturing)
    return runKernels(program, kernels, workers);
  try {
    auto kept = std::make_shared<KeptLaunch>(kernels);
    return give([held = program.shared_from_this(), kept, workers](HostStream &stream) {
      return stream.runKernels(*held, kept->calls, workers);
    });
  } catch (const std::bad_alloc &) {
    return makeStatus(StatusCode::ResourceExhausted, "no memory to capture a launch");
  }
}

StatusOr<std::unique_ptr<Event>> HostStream::record() {
  return std::unique_ptr<Event>(std::make_unique<HostEvent>());
}

Status HostStream::wait(const Event &) { return {}; }

Status HostStream::synchronize() {
  if (capturing)
    return invalidArgument("the stream is capturing; end the capture first");
  return {};
}

Status HostStream::beginCapture() {
  if (capturing)
    return invalidArgument("the stream is capturing already");
  capturing = std::make_unique<Recording>();
  return {};
}

StatusOr<std::unique_ptr<Graph>> HostStream::endCapture() {
  if (!capturing)
    return invalidArgument("the stream is not capturing; begin a capture first");
  return std::unique_ptr<Graph>(std::move(capturing));
}

Status HostStream::replay(const Graph &graph) {
  const auto *recording = dynamic_cast<const Recording *>(&graph);
  if (!recording)
    return invalidArgument("the graph was captured on another kind of device");
  if (capturing)
    return invalidArgument("the stream is capturing; end the capture first");
  for (const Work &work : recording->work)
    LLMOPT_RETURN_IF_ERROR(work(*this));
  return {};
}

StatusOr<DeviceMemory> allocateHost(std::shared_ptr<Device> device, size_t bytes) {
  if (bytes == 0)
    return DeviceMemory();
  try {
    void *memory = allocateAligned(bytes, DeviceMemory::kAlignment);
    return DeviceMemory(std::move(device), memory, bytes);
  } catch (const std::bad_alloc &) {
    return makeStatus(StatusCode::ResourceExhausted, "no memory for {} bytes on device '{}'", bytes,
                      device->facts().name);
  }
}

void releaseHost(void *memory) noexcept { std::free(memory); }

} // namespace llmopt::runtime

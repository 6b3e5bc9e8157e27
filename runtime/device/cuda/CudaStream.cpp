// A stream of a CUDA device, its events and graphs: each call is one call of the driver.
#include "runtime/device/cuda/CudaProgram.h"

namespace llmopt::runtime::cuda {

namespace {

// Of CUstreamCaptureMode: other threads' calls do not disturb a capture.
constexpr int kCaptureThreadLocal = 1;
// Keys of cuLaunchKernel's last argument.
void *const kParamsEnd = nullptr;
void *const kParamsPointer = reinterpret_cast<void *>(1);
void *const kParamsSize = reinterpret_cast<void *>(2);

Address addressOf(const void *memory) { return reinterpret_cast<Address>(memory); }

class CudaEvent final : public Event {
public:
  explicit CudaEvent(std::shared_ptr<CudaDevice> device) : owner(std::move(device)) {}
  ~CudaEvent() override {
    if (!handle)
      return;
    Current current(*owner);
    owner->driver().cuEventDestroy_v2(handle);
  }

  Status record(StreamHandle stream) {
    LLMOPT_CUDA_TRY(owner->driver(), cuEventCreate, &handle, 0);
    LLMOPT_CUDA_TRY(owner->driver(), cuEventRecord, handle, stream);
    return {};
  }
  Status synchronize() override {
    Current current(*owner);
    LLMOPT_RETURN_IF_ERROR(current.status());
    LLMOPT_CUDA_TRY(owner->driver(), cuEventSynchronize, handle);
    return {};
  }
  StatusOr<double> secondsSince(const Event &earlier) const override {
    const auto *other = dynamic_cast<const CudaEvent *>(&earlier);
    if (!other)
      return invalidArgument("the earlier event is of another kind of device");
    Current current(*owner);
    LLMOPT_RETURN_IF_ERROR(current.status());
    float milliseconds = 0;
    LLMOPT_CUDA_TRY(owner->driver(), cuEventElapsedTime, &milliseconds, other->handle, handle);
    return milliseconds * 1e-3;
  }

  EventHandle handle = nullptr;

private:
  std::shared_ptr<CudaDevice> owner;
};

class CudaGraph final : public Graph {
public:
  CudaGraph(std::shared_ptr<CudaDevice> device, GraphExec exec)
      : exec(exec), owner(std::move(device)) {}
  ~CudaGraph() override {
    Current current(*owner);
    owner->driver().cuGraphExecDestroy(exec);
  }

  const GraphExec exec;
  /// Modules of captured launches must stay loaded.
  std::vector<std::shared_ptr<const DeviceProgram>> programs;

private:
  std::shared_ptr<CudaDevice> owner;
};

class CudaStream final : public Stream {
public:
  CudaStream(std::shared_ptr<CudaDevice> device, StreamHandle handle, bool owned)
      : cudaDevice(device), owner(std::move(device)), driver(cudaDevice->driver()), handle(handle),
        owned(owned) {}
  ~CudaStream() override {
    if (!owned)
      return;
    Current current(*cudaDevice);
    driver.cuStreamDestroy_v2(handle);
  }

  const std::shared_ptr<Device> &device() const override { return owner; }

  Status copyIn(void *to, const void *from, size_t bytes) override {
    return bytes ? call("cuMemcpyHtoDAsync", driver.cuMemcpyHtoDAsync_v2, addressOf(to), from,
                        bytes, handle)
                 : Status();
  }
  Status copyOut(void *to, const void *from, size_t bytes) override {
    return bytes ? call("cuMemcpyDtoHAsync", driver.cuMemcpyDtoHAsync_v2, to, addressOf(from),
                        bytes, handle)
                 : Status();
  }
  Status copyWithin(void *to, const void *from, size_t bytes) override {
    return bytes ? call("cuMemcpyDtoDAsync", driver.cuMemcpyDtoDAsync_v2, addressOf(to),
                        addressOf(from), bytes, handle)
                 : Status();
  }
  Status fill(void *to, uint8_t value, size_t bytes) override {
    return bytes ? call("cuMemsetD8Async", driver.cuMemsetD8Async, addressOf(to), value, bytes,
                        handle)
                 : Status();
  }

  Status launch(const DeviceProgram &program, std::span<const KernelCall> kernels,
                uint32_t workers) override {
    if (program.device() != owner)
      return invalidArgument("program '{}' was loaded on another device than the stream's",
                             program.program().name);
    if (workers == 0 || kernels.empty())
      return {};
    if (capturing)
      captured.push_back(program.shared_from_this());
    Current current(*cudaDevice);
    LLMOPT_RETURN_IF_ERROR(current.status());
    for (const KernelCall &kernel : kernels)
      LLMOPT_RETURN_IF_ERROR(launchOne(static_cast<const CudaProgram &>(program), kernel, workers));
    return {};
  }

  StatusOr<std::unique_ptr<Event>> record() override {
    auto event = std::make_unique<CudaEvent>(cudaDevice);
    Current current(*cudaDevice);
    LLMOPT_RETURN_IF_ERROR(current.status());
    LLMOPT_RETURN_IF_ERROR(event->record(handle));
    return std::unique_ptr<Event>(std::move(event));
  }
  Status wait(const Event &event) override {
    const auto *other = dynamic_cast<const CudaEvent *>(&event);
    if (!other)
      return invalidArgument("the event is of another kind of device");
    return call("cuStreamWaitEvent", driver.cuStreamWaitEvent, handle, other->handle, 0);
  }
  Status synchronize() override {
    return call("cuStreamSynchronize", driver.cuStreamSynchronize, handle);
  }

  Status beginCapture() override {
    if (capturing)
      return invalidArgument("the stream is capturing already");
    LLMOPT_RETURN_IF_ERROR(
        call("cuStreamBeginCapture", driver.cuStreamBeginCapture_v2, handle, kCaptureThreadLocal));
    capturing = true;
    return {};
  }
  StatusOr<std::unique_ptr<Graph>> endCapture() override {
    if (!capturing)
      return invalidArgument("the stream is not capturing; begin a capture first");
    capturing = false;
    auto programs = std::move(captured);
    captured.clear();
    GraphExec exec = nullptr;
    {
      Current current(*cudaDevice);
      LLMOPT_RETURN_IF_ERROR(current.status());
      LLMOPT_RETURN_IF_ERROR(instantiate(exec));
    }
    auto graph = std::make_unique<CudaGraph>(cudaDevice, exec);
    graph->programs = std::move(programs);
    return std::unique_ptr<Graph>(std::move(graph));
  }
  Status replay(const Graph &graph) override {
    const auto *own = dynamic_cast<const CudaGraph *>(&graph);
    if (!own)
      return invalidArgument("the graph was captured on another kind of device");
    return call("cuGraphLaunch", driver.cuGraphLaunch, own->exec, handle);
  }

private:
  /// One call of the driver, with the device's context current.
  template <typename... Arguments>
  Status call(const char *name, Result (*function)(Arguments...),
              std::type_identity_t<Arguments>... arguments) {
    Current current(*cudaDevice);
    LLMOPT_RETURN_IF_ERROR(current.status());
    return driver.check(function(arguments...), name);
  }

  /// The parameter block is the kernel's only argument, by value.
  Status launchOne(const CudaProgram &program, const KernelCall &call, uint32_t workers) {
    const bundle::Kernel &kernel = program.program().kernels[call.kernel];
    size_t bytes = call.params.size();
    void *extra[] = {kParamsPointer, const_cast<uint8_t *>(call.params.data()), kParamsSize, &bytes,
                     kParamsEnd};
    Status status = driver.check(driver.cuLaunchKernel(program.function(call.kernel), workers, 1, 1,
                                                       kernel.blockThreads, 1, 1,
                                                       kernel.sharedBytes, handle, nullptr, extra),
                                 "cuLaunchKernel");
    return status.ok() ? status
                       : status.withContext(fmt::format("kernel '{}' of program '{}'", kernel.entry,
                                                        program.program().name));
  }

  Status instantiate(GraphExec &exec) {
    GraphHandle graph = nullptr;
    LLMOPT_CUDA_TRY(driver, cuStreamEndCapture, handle, &graph);
    Status status = driver.check(driver.cuGraphInstantiateWithFlags(&exec, graph, 0),
                                 "cuGraphInstantiateWithFlags");
    driver.cuGraphDestroy(graph);
    return status;
  }

  std::shared_ptr<CudaDevice> cudaDevice;
  std::shared_ptr<Device> owner;
  const Driver &driver;
  StreamHandle handle;
  bool owned, capturing = false;
  std::vector<std::shared_ptr<const DeviceProgram>> captured;
};

} // namespace

std::unique_ptr<Stream> makeStream(std::shared_ptr<CudaDevice> device, StreamHandle handle,
                                   bool owned) {
  return std::make_unique<CudaStream>(std::move(device), handle, owned);
}

} // namespace llmopt::runtime::cuda

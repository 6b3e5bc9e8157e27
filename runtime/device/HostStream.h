// What devices whose memory is the host's share: a stream that runs everything before the
// call returns, memory from the host's heap, and graphs that replay by giving the work
// again. A device adds how a kernel runs.
#pragma once

#include "runtime/device/Device.h"

#include <functional>
#include <vector>

namespace llmopt::runtime {

class HostStream : public Stream {
public:
  explicit HostStream(std::shared_ptr<Device> device);
  ~HostStream() override;

  const std::shared_ptr<Device> &device() const final { return owner; }
  Status copyIn(void *to, const void *from, size_t bytes) final;
  Status copyOut(void *to, const void *from, size_t bytes) final;
  Status copyWithin(void *to, const void *from, size_t bytes) final;
  Status fill(void *to, uint8_t value, size_t bytes) final;
  Status launch(const DeviceProgram &program, std::span<const KernelCall> kernels,
                uint32_t workers) final;
  StatusOr<std::unique_ptr<Event>> record() final;
  Status wait(const Event &event) final;
  Status synchronize() final;
  Status beginCapture() final;
  StatusOr<std::unique_ptr<Graph>> endCapture() final;
  Status replay(const Graph &graph) final;

protected:
  /// Runs the kernels to their end. `program` is of this stream's device.
  virtual Status runKernels(const DeviceProgram &program, std::span<const KernelCall> kernels,
                            uint32_t workers) = 0;

private:
  using Work = std::function<Status(HostStream &)>;
  class Recording;

  Status copy(void *to, const void *from, size_t bytes);
  /// Runs the work, or keeps it while capturing.
  template <typename Body> Status give(Body body);

  std::shared_ptr<Device> owner;
  std::unique_ptr<Recording> capturing;
};

/// Memory of the host's heap for a device: DeviceMemory around it, and the way back.
StatusOr<DeviceMemory> allocateHost(std::shared_ptr<Device> device, size_t bytes);
void releaseHost(void *memory) noexcept;

} // namespace llmopt::runtime

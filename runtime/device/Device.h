// What a device can do, behind one interface: memory, copies, streams, events, programs,
// and captured sequences of work. BoundCall.h runs whole calls on top of it.
//
//   StatusOr<std::shared_ptr<Device>> device = openDevice("auto");   // Devices.h
//   StatusOr<std::unique_ptr<Stream>> stream = (*device)->createStream();
//   StatusOr<DeviceMemory> memory = (*device)->allocate(bytes);
//   Status status = (*stream)->copyIn(memory->data(), host, bytes);
//
// Vocabulary. A *stream* is a queue of work that runs in the order in which it was given;
// streams run independently of each other unless an *event* orders them. What a stream is
// given may run before the call returns or later: host memory that a copy reads or writes
// must stay until the stream was synchronised. A failure of earlier work may be reported by
// any later call on the same device.
//
// Threads: a Device and a DeviceProgram may be used by any number of threads at a time, a
// Stream by one. Lifetimes: what a device makes keeps the device alive.
#pragma once

#include "runtime/base/Status.h"
#include "runtime/bundle/Program.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace llmopt::runtime {

enum class DeviceKind : uint8_t { Cpu, Cuda, Sim };

/// "cpu", "cuda", "sim".
std::string_view toString(DeviceKind kind);

struct DeviceFacts {
  DeviceKind kind = DeviceKind::Cpu;
  std::string name;         ///< the processor's brand: "NVIDIA H200"
  std::string arch;         ///< what images must be for: "x86_64", "sm_90"
  std::string driver;       ///< name and version; empty where there is none
  uint32_t units = 1;       ///< threads of the CPU's pool, multiprocessors of a GPU
  uint64_t memoryBytes = 0; ///< 0: not known
  uint32_t ordinal = 0;     ///< among the devices of its kind
  /// Device pointers are host pointers: arrays need no copy.
  bool hostMemory = false;
};

class Device;

/// Memory of a device, given back at the end of its scope. Work that uses it must have
/// finished by then. Uninitialised.
class DeviceMemory {
public:
  /// Of all memory, on every device: the widest vector access and a cache sector fit.
  static constexpr size_t kAlignment = 256;

  DeviceMemory() = default;
  DeviceMemory(std::shared_ptr<Device> device, void *memory, size_t bytes)
      : device(std::move(device)), memory(memory), bytes(bytes) {}
  DeviceMemory(DeviceMemory &&other) noexcept { swap(other); }
  DeviceMemory &operator=(DeviceMemory &&other) noexcept {
    DeviceMemory(std::move(other)).swap(*this);
    return *this;
  }
  ~DeviceMemory();

  /// An address of the device; null for 0 bytes.
  uint8_t *data() const { return static_cast<uint8_t *>(memory); }
  size_t size() const { return bytes; }

private:
  void swap(DeviceMemory &other) noexcept {
    std::swap(device, other.device);
    std::swap(memory, other.memory);
    std::swap(bytes, other.bytes);
  }

  std::shared_ptr<Device> device;
  void *memory = nullptr;
  size_t bytes = 0;
};

/// A program made executable on a device.
class DeviceProgram : public std::enable_shared_from_this<DeviceProgram> {
public:
  virtual ~DeviceProgram() = default;

  virtual const bundle::Program &program() const = 0;
  virtual const std::shared_ptr<Device> &device() const = 0;
  /// Workers that run at a time: a plan with as many keeps the device busy.
  virtual uint32_t residentWorkers() const = 0;
  /// Which of the bundle's images runs, and why: for logs and `llm-opt env`.
  virtual std::string imageChoice() const = 0;
};

/// One kernel of a launch, and its parameter block (bundle::ParamHeader and slots), which is
/// read before the launch returns.
struct KernelCall {
  uint32_t kernel = 0; ///< index in Program::kernels
  std::span<const uint8_t> params;
};

/// A point in the work of a stream.
class Event {
public:
  virtual ~Event() = default;
  /// Waits on the host until the work before it is done.
  virtual Status synchronize() = 0;
  /// Time between two recorded points of work that is done.
  virtual StatusOr<double> secondsSince(const Event &earlier) const = 0;
};

/// Work that was captured and can be replayed any number of times. Pointers and parameter
/// blocks are those of the capture; contents of memory are those of the replay.
class Graph {
public:
  virtual ~Graph() = default;
};

class Stream {
public:
  virtual ~Stream() = default;
  virtual const std::shared_ptr<Device> &device() const = 0;

  /// Host to device, device to host, within the device.
  virtual Status copyIn(void *to, const void *from, size_t bytes) = 0;
  virtual Status copyOut(void *to, const void *from, size_t bytes) = 0;
  virtual Status copyWithin(void *to, const void *from, size_t bytes) = 0;
  /// Sets every byte.
  virtual Status fill(void *to, uint8_t value, size_t bytes) = 0;

  /// Runs kernels of one program that do not depend on each other, each with `workers`
  /// workers; later work of the stream sees what they wrote. Zero workers run nothing.
  virtual Status launch(const DeviceProgram &program, std::span<const KernelCall> kernels,
                        uint32_t workers) = 0;

  virtual StatusOr<std::unique_ptr<Event>> record() = 0;
  /// Later work of this stream waits for the event, of whichever stream of the device.
  virtual Status wait(const Event &event) = 0;
  /// Waits on the host until all work is done, and reports its failure.
  virtual Status synchronize() = 0;

  /// Between these two, copies, fills and launches are kept and not run. Nothing else may be
  /// called in between. A device without graphs replays by giving the work again.
  virtual Status beginCapture() = 0;
  virtual StatusOr<std::unique_ptr<Graph>> endCapture() = 0;
  virtual Status replay(const Graph &graph) = 0;
};

/// Waits at the end of a scope for the work of a stream, whatever became of it: where a call was
/// refused, those before it still use the memory that is about to go. Declared behind what the
/// work uses.
class Settle {
public:
  explicit Settle(Stream &stream) : stream(stream) {}
  Settle(const Settle &) = delete;
  Settle &operator=(const Settle &) = delete;
  ~Settle() { static_cast<void>(stream.synchronize()); }

private:
  Stream &stream;
};

class Device : public std::enable_shared_from_this<Device> {
public:
  virtual ~Device() = default;

  virtual const DeviceFacts &facts() const = 0;

  /// Aligned to DeviceMemory::kAlignment. ResourceExhausted says how much was asked for.
  virtual StatusOr<DeviceMemory> allocate(size_t bytes) = 0;
  virtual StatusOr<std::unique_ptr<Stream>> createStream() = 0;
  /// A stream around the caller's own (a CUstream), which stays the caller's. Unsupported
  /// where a device has none.
  virtual StatusOr<std::unique_ptr<Stream>> useStream(void *native) = 0;

  /// Checks the program, chooses images and loads them. Unavailable says what this device
  /// lacks.
  virtual StatusOr<std::shared_ptr<DeviceProgram>> load(bundle::Program program) = 0;

private:
  friend class DeviceMemory;
  virtual void release(void *memory, size_t bytes) noexcept = 0;
};

} // namespace llmopt::runtime

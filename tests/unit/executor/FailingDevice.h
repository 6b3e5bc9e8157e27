// A device that fails on command: a launch, a copy, a byte of the host's memory, or all of it.
#pragma once

#include "runtime/device/Device.h"

#include <atomic>
#include <utility>

namespace llmopt::test {

using namespace llmopt::runtime;

class FailingDevice : public Device {
public:
  explicit FailingDevice(std::shared_ptr<Device> inner)
      : inner(std::move(inner)), shown(this->inner->facts()) {}

  /// The n-th launch from now on fails; 1 is the next.
  void failLaunchIn(int launches) { untilFailure = launches; }
  /// Whatever is asked of the present streams fails; new ones work.
  void lose() { lostUpTo = made.load(); }
  uint32_t streams() const { return made; }
  /// Copies within the device are left out.
  void skipCopies() { skipping = true; }
  /// One byte of the next copy to the host changes before the launch after it.
  void damageCopyOut() { damaging = true; }

  /// More than so many bytes at once are not to be had.
  void limitMemory(size_t bytes) { mostBytes = bytes; }

  /// As if its memory were its own.
  void hideHostMemory() { shown.hostMemory = false; }

  const DeviceFacts &facts() const override { return shown; }
  StatusOr<DeviceMemory> allocate(size_t bytes) override {
    if (bytes > mostBytes)
      return makeStatus(StatusCode::ResourceExhausted, "no memory for {} bytes", bytes);
    return inner->allocate(bytes);
  }
  StatusOr<std::unique_ptr<Stream>> useStream(void *native) override {
    return inner->useStream(native);
  }
  StatusOr<std::shared_ptr<DeviceProgram>> load(bundle::Program program) override {
    return inner->load(std::move(program));
  }
  StatusOr<std::unique_ptr<Stream>> createStream() override {
    StatusOr<std::unique_ptr<Stream>> stream = inner->createStream();
    if (!stream)
      return stream.status();
    return std::unique_ptr<Stream>(std::make_unique<FailingStream>(*this, *std::move(stream)));
  }

private:
  class FailingStream : public Stream {
  public:
    FailingStream(FailingDevice &owner, std::unique_ptr<Stream> inner)
        : owner(owner), inner(std::move(inner)), number(++owner.made) {}

    const std::shared_ptr<Device> &device() const override { return inner->device(); }
    Status copyIn(void *to, const void *from, size_t bytes) override {
      return lost() ? gone() : inner->copyIn(to, from, bytes);
    }
    Status copyOut(void *to, const void *from, size_t bytes) override {
      if (owner.damaging.exchange(false))
        owner.damaged = static_cast<uint8_t *>(to) + bytes / 2;
      return lost() ? gone() : inner->copyOut(to, from, bytes);
    }
    Status copyWithin(void *to, const void *from, size_t bytes) override {
      if (owner.skipping)
        return {};
      return lost() ? gone() : inner->copyWithin(to, from, bytes);
    }
    Status fill(void *to, uint8_t value, size_t bytes) override {
      return lost() ? gone() : inner->fill(to, value, bytes);
    }
    Status launch(const DeviceProgram &program, std::span<const KernelCall> kernels,
                  uint32_t workers) override {
      if (lost())
        return gone();
      if (uint8_t *byte = std::exchange(owner.damaged, nullptr))
        *byte ^= 1;
      if (owner.untilFailure > 0 && --owner.untilFailure == 0)
        return makeStatus(StatusCode::Internal, "a launch fails, as the test wants it");
      return inner->launch(program, kernels, workers);
    }
    StatusOr<std::unique_ptr<Event>> record() override { return inner->record(); }
    Status wait(const Event &event) override { return inner->wait(event); }
    Status synchronize() override { return lost() ? gone() : inner->synchronize(); }
    Status beginCapture() override { return inner->beginCapture(); }
    StatusOr<std::unique_ptr<Graph>> endCapture() override { return inner->endCapture(); }
    Status replay(const Graph &graph) override { return inner->replay(graph); }

  private:
    bool lost() const { return number <= owner.lostUpTo; }
    static Status gone() { return makeStatus(StatusCode::Internal, "the device is gone"); }

    FailingDevice &owner;
    std::unique_ptr<Stream> inner;
    uint32_t number;
  };

  void release(void *, size_t) noexcept override {} // memory is the inner device's

  std::shared_ptr<Device> inner;
  DeviceFacts shown;
  size_t mostBytes = SIZE_MAX;
  std::atomic<int> untilFailure = 0;
  std::atomic<uint32_t> made = 0, lostUpTo = 0;
  std::atomic<bool> skipping = false, damaging = false;
  uint8_t *damaged = nullptr; ///< of the executor's thread
};

} // namespace llmopt::test

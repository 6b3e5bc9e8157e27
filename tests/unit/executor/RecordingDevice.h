// A device that watches how a step is given to it. Memory is the host's, but it says otherwise:
// whatever is copied there goes through staging. Work waits in the stream until somebody waits
// for it, as on a GPU: a copy reads its source late.
//
// Once sealed it takes nothing new: a step is replays of what was captured, and copies to where
// copies went before. It faults on
//   - a launch outside of a capture, or with parameter bytes or a grid that no capture has;
//   - memory that is allocated, or a copy that does not lie inside of what was;
//   - a host read (copy to the host, or waiting) while a step runs and its model does not ask
//     for it.
#pragma once

#include "runtime/device/Device.h"

#include <deque>
#include <functional>
#include <set>
#include <string>

namespace llmopt::test {

using namespace llmopt::runtime;

class RecordingDevice : public Device {
public:
  explicit RecordingDevice(std::shared_ptr<Device> inner) : inner(std::move(inner)) {
    told = this->inner->facts();
    told.hostMemory = false;
  }

  void seal() { sealed = true; }
  /// A step begins or ends.
  void setInStep(bool in) { inStep = in; }
  /// The model looks at results of its own accord.
  void setReading(bool reads) { reading = reads; }
  /// Events say that all is done when it is not.
  void lieAboutEvents() { lying = true; }
  const std::vector<std::string> &faults() const { return found; }
  uint64_t replays() const { return replayed; }
  uint64_t launches() const { return launched; }

  const DeviceFacts &facts() const override { return told; }
  StatusOr<DeviceMemory> allocate(size_t bytes) override {
    if (sealed)
      found.push_back("memory is allocated");
    StatusOr<DeviceMemory> memory = inner->allocate(bytes);
    if (memory)
      ranges.push_back({memory->data(), bytes});
    return memory;
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
    return std::unique_ptr<Stream>(std::make_unique<Recorder>(*this, *std::move(stream)));
  }

private:
  using Work = std::function<Status(Stream &)>;

  /// A launch, with the bytes of its parameters.
  struct Launch {
    const DeviceProgram *program;
    uint32_t kernel, workers;
    std::vector<uint8_t> params;
    auto operator<=>(const Launch &) const = default;
  };

  class Recorded : public Graph {
  public:
    std::vector<Work> work;
  };

  class Recorder : public Stream {
  public:
    Recorder(RecordingDevice &owner, std::unique_ptr<Stream> inner)
        : owner(owner), inner(std::move(inner)) {}

    const std::shared_ptr<Device> &device() const override { return inner->device(); }
    Status copyIn(void *to, const void *from, size_t bytes) override {
      owner.checkRange(to, bytes);
      return give([=](Stream &s) { return s.copyIn(to, from, bytes); });
    }
    Status copyOut(void *to, const void *from, size_t bytes) override {
      owner.checkRead("copies to the host");
      LLMOPT_RETURN_IF_ERROR(flush());
      return inner->copyOut(to, from, bytes);
    }
    Status copyWithin(void *to, const void *from, size_t bytes) override {
      owner.checkRange(to, bytes);
      return give([=](Stream &s) { return s.copyWithin(to, from, bytes); });
    }
    Status fill(void *to, uint8_t value, size_t bytes) override {
      owner.checkRange(to, bytes);
      return give([=](Stream &s) { return s.fill(to, value, bytes); });
    }
    Status launch(const DeviceProgram &program, std::span<const KernelCall> kernels,
                  uint32_t workers) override {
      ++owner.launched;
      auto kept = std::make_shared<std::vector<Launch>>();
      for (const KernelCall &call : kernels)
        kept->push_back({&program, call.kernel, workers, {call.params.begin(), call.params.end()}});
      owner.checkLaunch(*kept, recording != nullptr);
      return give([kept, workers, held = program.shared_from_this()](Stream &s) {
        std::vector<KernelCall> calls;
        for (const Launch &launch : *kept)
          calls.push_back({launch.kernel, launch.params});
        return s.launch(*held, calls, workers);
      });
    }

    StatusOr<std::unique_ptr<Event>> record() override {
      StatusOr<std::unique_ptr<Event>> event = inner->record();
      if (!event)
        return event.status();
      return std::unique_ptr<Event>(std::make_unique<LateEvent>(*this, given, *std::move(event)));
    }
    Status wait(const Event &event) override { return inner->wait(event); }
    Status synchronize() override {
      owner.checkRead("waits");
      return flush();
    }
    Status beginCapture() override {
      recording = std::make_unique<Recorded>();
      return {};
    }
    StatusOr<std::unique_ptr<Graph>> endCapture() override {
      return std::unique_ptr<Graph>(std::move(recording));
    }
    Status replay(const Graph &graph) override {
      ++owner.replayed;
      for (const Work &work : static_cast<const Recorded &>(graph).work)
        LLMOPT_RETURN_IF_ERROR(give(work));
      return {};
    }

    Status flush(uint64_t upTo = UINT64_MAX) {
      for (; done < std::min(upTo, given); ++done) {
        Work work = std::move(queue.front());
        queue.pop_front();
        LLMOPT_RETURN_IF_ERROR(work(*inner));
      }
      return {};
    }

  private:
    class LateEvent : public Event {
    public:
      LateEvent(Recorder &stream, uint64_t at, std::unique_ptr<Event> inner)
          : stream(stream), at(at), inner(std::move(inner)) {}
      Status synchronize() override { return stream.owner.lying ? Status() : stream.flush(at); }
      StatusOr<double> secondsSince(const Event &earlier) const override {
        return inner->secondsSince(*static_cast<const LateEvent &>(earlier).inner);
      }

    private:
      Recorder &stream;
      uint64_t at;
      std::unique_ptr<Event> inner;
    };

    Status give(Work work) {
      if (recording) {
        recording->work.push_back(std::move(work));
        return {};
      }
      queue.push_back(std::move(work));
      ++given;
      return {};
    }

    RecordingDevice &owner;
    std::unique_ptr<Stream> inner;
    std::unique_ptr<Recorded> recording;
    std::deque<Work> queue;
    uint64_t given = 0, done = 0;
  };

  void checkRange(void *to, size_t bytes) {
    auto *at = static_cast<uint8_t *>(to);
    for (auto [first, size] : ranges)
      if (at >= first && at + bytes <= first + size)
        return;
    if (sealed && bytes)
      found.push_back("a copy goes to memory that was not there before");
  }
  void checkLaunch(const std::vector<Launch> &launches, bool capturing) {
    for (const Launch &launch : launches) {
      if (!sealed)
        known.insert(launch);
      else if (!capturing)
        found.push_back("a kernel is launched outside of what was captured");
      else if (!known.contains(launch))
        found.push_back("other parameters or another grid than before");
    }
  }
  void checkRead(const char *what) {
    if (sealed && inStep && !reading)
      found.push_back(std::string("the host ") + what + " during a step");
  }
  void release(void *, size_t) noexcept override {} // memory is the inner device's

  std::shared_ptr<Device> inner;
  DeviceFacts told;
  std::vector<std::pair<uint8_t *, size_t>> ranges;
  std::set<Launch> known;
  std::vector<std::string> found;
  uint64_t replayed = 0, launched = 0;
  bool sealed = false, inStep = false, reading = false, lying = false;
};

} // namespace llmopt::test

// The machine behind the substitute driver: its memory, streams and handles, and the failures
// that were asked for. Private to this folder.
#pragma once

#include "tests/support/fake-cuda/Image.h"

#include "runtime/device/cuda/Driver.h"
#include "runtime/device/sim/GlobalMemory.h"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fakecuda {

using llmopt::runtime::cuda::Address;
using llmopt::runtime::cuda::Result;
using Work = std::function<Result()>;

struct FakeGraph {
  std::vector<Work> work;
};
struct FakeStream {
  std::deque<Work> work;
  uint64_t done = 0; ///< pieces of work that have run
  FakeGraph *capture = nullptr;
  bool captureBroken = false; ///< by a call that a capture does not allow
};
/// Where the work of a stream stood.
struct Mark {
  std::weak_ptr<FakeStream> stream;
  uint64_t after = 0; ///< reached when so much of its work has run
};
struct FakeEvent {
  Mark mark;
  double seconds = -1; ///< when it was reached; negative before that
  bool captured = false;
};
struct FakeFunction {
  std::weak_ptr<const Image> image; ///< gone when its module is unloaded
  std::string name;
  uint32_t maxShared = 48 << 10; ///< what a launch may ask for
};

/// Everything, behind one lock.
struct State {
  std::string log;
  std::map<std::string, int> numbers;
  std::map<std::string, std::pair<Result, int>> failures;
  Result lost = 0;   ///< after a failed launch
  std::string fault; ///< why, if the simulator said so
  int contexts = 0, current = 0, pools = 0;
  std::map<void *, std::shared_ptr<FakeStream>> streams;
  std::set<FakeEvent *> events;
  std::set<FakeGraph *> graphs;
  std::map<void *, std::shared_ptr<const Image>> modules;
  std::vector<std::unique_ptr<FakeFunction>> functions;
  std::map<size_t, size_t> blocks; ///< offset and size of what is allocated
  llmopt::sim::GlobalMemory memory;
  std::shared_ptr<FakeStream> defaultStream;

  /// The standard device, changed by FAKE_CUDA_SET and FAKE_CUDA_FAIL.
  void reset();
};

std::recursive_mutex &mutex();
State &state();

/// Writes the call down; the failure that was asked for, or success.
Result begin(const char *call, const std::string &details = "");
template <typename... Args>
Result begin(const char *call, fmt::format_string<Args...> format, Args &&...args) {
  return begin(call, fmt::format(format, std::forward<Args>(args)...));
}

/// Device memory may be touched while this lives.
struct Open {
  Open();
  ~Open();
};

size_t memoryBytes();
bool isDevice(Address address, size_t bytes);
Result allocate(Address *out, size_t bytes);
Result release(Address address);

std::shared_ptr<FakeStream> streamOf(void *handle);
/// Behind the stream's other work, or into the graph that it captures.
Result enqueue(void *handle, Work work);
/// Runs the work of a stream up to where it stood, or all.
Result drain(const Mark &mark);
Result drain(const std::shared_ptr<FakeStream> &stream);
/// Whether the stream captures: then the call is not allowed, and the capture is lost.
bool breaksCapture(const std::shared_ptr<FakeStream> &stream);

} // namespace fakecuda

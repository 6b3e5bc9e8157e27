// The machine behind the substitute driver: its memory, streams and handles, and the failures
// that were asked for. Private to FakeCuda.cpp.
#pragma once

#include "runtime/bundle/WorkItem.h"
#include "runtime/device/cpu/ElfLoader.h"
#include "runtime/device/cuda/Driver.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <sys/mman.h>
#include <utility>
#include <vector>

namespace fakecuda {

using llmopt::runtime::cuda::Address;
using llmopt::runtime::cuda::Result;
using Work = std::function<Result()>;

constexpr Result kInvalidValue = 1, kInvalidContext = 201, kInvalidHandle = 400;
constexpr size_t kArenaBytes = size_t{64} << 20, kAlign = 256;

struct FakeStream {
  std::deque<Work> work;
  std::vector<Work> *capture = nullptr;
};
struct FakeEvent {
  FakeStream *stream = nullptr;
  size_t pending = 0; ///< work of the stream that is before it
};
struct FakeGraph {
  std::vector<Work> work;
};
struct FakeModule {
  llmopt::runtime::LoadedObject object;
};
struct FakeFunction {
  std::string name;
  llmopt::bundle::CpuEntry entry;
};

/// Everything, behind one lock.
struct State {
  std::string log;
  std::map<std::string, int> numbers;
  std::map<std::string, std::pair<Result, int>> failures;
  Result lost = 0; ///< after a failed launch
  int contexts = 0, current = 0, pools = 0;
  std::set<FakeStream *> streams;
  std::set<FakeEvent *> events;
  std::set<FakeGraph *> graphs;
  std::set<FakeModule *> modules;
  std::vector<std::unique_ptr<FakeFunction>> functions;
  std::map<size_t, size_t> blocks; ///< offset and size of what is allocated
  FakeStream defaultStream;

  void reset() {
    for (FakeStream *stream : streams)
      delete stream;
    for (FakeEvent *event : events)
      delete event;
    for (FakeGraph *graph : graphs)
      delete graph;
    for (FakeModule *module : modules)
      delete module;
    streams.clear(), events.clear(), graphs.clear(), modules.clear(), functions.clear();
    blocks.clear(), failures.clear(), log.clear();
    defaultStream = {};
    lost = 0, contexts = current = pools = 0;
    numbers = {{"version", 13000}, {"devices", 1}, {"major", 8},      {"minor", 0},
               {"pools", 1},       {"units", 4},   {"shared", 166912}};
  }
};

inline std::recursive_mutex mutex;

inline State &state() {
  static State *all = [] {
    auto *made = new State;
    made->reset();
    return made;
  }();
  return *all;
}

inline uint8_t *arena() {
  static auto *memory = static_cast<uint8_t *>(
      ::mmap(nullptr, kArenaBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  return memory;
}

/// Device memory may be touched while this lives.
struct Open {
  Open() { ::mprotect(arena(), kArenaBytes, PROT_READ | PROT_WRITE); }
  ~Open() { ::mprotect(arena(), kArenaBytes, PROT_NONE); }
};

/// Writes the call down; the failure that was asked for, or success.
template <typename... Args>
Result begin(const char *call, fmt::format_string<Args...> format, Args &&...args) {
  State &all = state();
  std::string details = fmt::format(format, std::forward<Args>(args)...);
  all.log += fmt::format("{}{}{}\n", call, details.empty() ? "" : " ", details);
  auto failure = all.failures.find(call);
  if (failure != all.failures.end() && failure->second.second-- <= 0) {
    Result result = failure->second.first;
    all.failures.erase(failure);
    return result;
  }
  return all.lost;
}

inline Result begin(const char *call) { return begin(call, ""); }

inline bool isDevice(Address address, size_t bytes) {
  size_t at = address - reinterpret_cast<Address>(arena());
  auto block = state().blocks.upper_bound(at);
  if (address < reinterpret_cast<Address>(arena()) || block == state().blocks.begin())
    return false;
  --block;
  return at + bytes <= block->first + block->second;
}

inline Result allocate(Address *out, size_t bytes) {
  size_t at = 0;
  for (const auto &[begin, size] : state().blocks) {
    if (begin >= at + bytes)
      break;
    at = (begin + size + kAlign - 1) / kAlign * kAlign;
  }
  if (bytes == 0 || at + bytes > kArenaBytes)
    return bytes == 0 ? kInvalidValue : 2;
  state().blocks[at] = bytes;
  *out = reinterpret_cast<Address>(arena()) + at;
  return 0;
}

inline Result release(Address address) {
  return state().blocks.erase(address - reinterpret_cast<Address>(arena())) ? 0 : kInvalidValue;
}

inline FakeStream *streamOf(void *handle) {
  if (!handle)
    return &state().defaultStream;
  auto *stream = static_cast<FakeStream *>(handle);
  return state().streams.contains(stream) ? stream : nullptr;
}

inline Result enqueue(void *handle, Work work) {
  FakeStream *stream = streamOf(handle);
  if (!stream)
    return kInvalidHandle;
  if (state().current == 0)
    return kInvalidContext;
  if (stream->capture)
    stream->capture->push_back(std::move(work));
  else
    stream->work.push_back(std::move(work));
  return 0;
}

/// Runs what is in a stream until `left` is left.
inline Result drain(FakeStream &stream, size_t left = 0) {
  while (stream.work.size() > left) {
    Work work = std::move(stream.work.front());
    stream.work.pop_front();
    if (Result result = work(); result != 0)
      return state().lost = result;
  }
  return state().lost;
}

} // namespace fakecuda

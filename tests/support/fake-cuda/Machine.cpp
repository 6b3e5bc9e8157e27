// See Machine.h.
#include "tests/support/fake-cuda/Machine.h"
#include "tests/support/fake-cuda/FakeCuda.h"
#include "tests/support/fake-cuda/Results.h"

#include <cstdlib>
#include <cstring>
#include <sstream>
#include <sys/mman.h>

namespace fakecuda {

namespace {

constexpr size_t kAlign = 256;

uint8_t *arena() {
  static auto *memory = static_cast<uint8_t *>(::mmap(
      nullptr, memoryBytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  return memory;
}

/// "name=number" by commas; numbers may have an "@number" behind them.
template <typename Use> void readSettings(const char *variable, Use use) {
  const char *text = std::getenv(variable);
  std::istringstream in(text ? text : "");
  for (std::string part; std::getline(in, part, ',');) {
    size_t equals = part.find('='), at = part.find('@');
    if (equals == std::string::npos) {
      fmt::print(stderr, "{}: '{}' is not NAME=NUMBER\n", variable, part);
      std::exit(2);
    }
    use(part.substr(0, equals), std::atoi(part.c_str() + equals + 1),
        at == std::string::npos ? 0 : std::atoi(part.c_str() + at + 1));
  }
}

/// With FAKE_CUDA_LOG, calls go to that file as well, each when it comes.
void writeThrough(const std::string &line) {
  static std::FILE *file = [] {
    const char *path = std::getenv("FAKE_CUDA_LOG");
    return path ? std::fopen(path, "a") : nullptr;
  }();
  if (!file)
    return;
  std::fputs(line.c_str(), file);
  std::fflush(file);
}

} // namespace

std::recursive_mutex &mutex() {
  static std::recursive_mutex one;
  return one;
}

State &state() {
  static State *all = [] {
    auto *made = new State;
    made->reset();
    return made;
  }();
  return *all;
}

void State::reset() {
  for (FakeEvent *event : events)
    delete event;
  for (FakeGraph *graph : graphs)
    delete graph;
  streams.clear(), events.clear(), graphs.clear(), modules.clear(), functions.clear();
  blocks.clear(), failures.clear(), log.clear(), fault.clear();
  memory = {};
  defaultStream = std::make_shared<FakeStream>();
  lost = 0, contexts = current = pools = 0;
  numbers = {{"version", 13000}, {"devices", 1}, {"major", 8},      {"minor", 0},
             {"pools", 1},       {"units", 4},   {"shared", 166912}};
  readSettings("FAKE_CUDA_SET", [&](const std::string &name, int n, int) { numbers[name] = n; });
  readSettings("FAKE_CUDA_FAIL", [&](const std::string &name, int result, int skip) {
    failures[name] = {result, skip};
  });
}

Result begin(const char *call, const std::string &details) {
  State &all = state();
  std::string line = fmt::format("{}{}{}\n", call, details.empty() ? "" : " ", details);
  all.log += line;
  writeThrough(line);
  auto failure = all.failures.find(call);
  if (failure != all.failures.end() && failure->second.second-- <= 0) {
    Result result = failure->second.first;
    all.failures.erase(failure);
    return result;
  }
  return all.lost;
}

size_t memoryBytes() {
  static size_t bytes = [] {
    const char *text = std::getenv("FAKE_CUDA_MEMORY");
    return text ? std::strtoull(text, nullptr, 10) : size_t{4} << 30;
  }();
  return bytes;
}

Open::Open() { ::mprotect(arena(), memoryBytes(), PROT_READ | PROT_WRITE); }
Open::~Open() { ::mprotect(arena(), memoryBytes(), PROT_NONE); }

bool isDevice(Address address, size_t bytes) {
  size_t at = address - reinterpret_cast<Address>(arena());
  auto block = state().blocks.upper_bound(at);
  if (address < reinterpret_cast<Address>(arena()) || block == state().blocks.begin())
    return false;
  --block;
  return at + bytes <= block->first + block->second;
}

Result allocate(Address *out, size_t bytes) {
  size_t at = 0;
  for (const auto &[begin, size] : state().blocks) {
    if (begin >= at + bytes)
      break;
    at = (begin + size + kAlign - 1) / kAlign * kAlign;
  }
  if (bytes == 0)
    return kInvalidValue;
  if (bytes > memoryBytes() || at > memoryBytes() - bytes)
    return kOutOfMemory;
  state().blocks[at] = bytes;
  *out = reinterpret_cast<Address>(arena()) + at;
  Open open;
  std::memset(arena() + at, 0xFF, bytes); // a NaN in every float format, until it is written
  static uint64_t count = 0;
  bool added = state()
                   .memory
                   .add(arena() + at, bytes, fmt::format("allocation {}", count++),
                        llmopt::sim::Access::ReadWrite)
                   .ok();
  return added ? 0 : kUnknown;
}

Result release(Address address) {
  auto block = state().blocks.find(address - reinterpret_cast<Address>(arena()));
  if (block == state().blocks.end())
    return kInvalidValue;
  static_cast<void>(state().memory.remove(arena() + block->first));
  // Whole pages of large blocks go back: to map and unmap what is resident takes time.
  constexpr size_t kPage = 4096, kLarge = size_t{1} << 20;
  if (block->second >= kLarge) {
    size_t first = (block->first + kPage - 1) / kPage * kPage;
    size_t last = (block->first + block->second) / kPage * kPage;
    ::madvise(arena() + first, last - first, MADV_DONTNEED);
  }
  state().blocks.erase(block);
  return 0;
}

std::shared_ptr<FakeStream> streamOf(void *handle) {
  if (!handle)
    return state().defaultStream;
  auto found = state().streams.find(handle);
  return found == state().streams.end() ? nullptr : found->second;
}

Result enqueue(void *handle, Work work) {
  std::shared_ptr<FakeStream> stream = streamOf(handle);
  if (!stream)
    return kInvalidHandle;
  if (state().current == 0)
    return kInvalidContext;
  if (stream->captureBroken)
    return kCaptureInvalidated;
  if (stream->capture)
    stream->capture->work.push_back(std::move(work));
  else
    stream->work.push_back(std::move(work));
  return 0;
}

Result drain(const Mark &mark) {
  std::shared_ptr<FakeStream> stream = mark.stream.lock();
  while (stream && stream->done < mark.after && !stream->work.empty()) {
    Work work = std::move(stream->work.front());
    stream->work.pop_front();
    Result result = state().lost ? state().lost : work();
    ++stream->done;
    if (result != 0)
      return state().lost = result;
  }
  return state().lost;
}

Result drain(const std::shared_ptr<FakeStream> &stream) {
  return drain({stream, stream->done + stream->work.size()});
}

bool breaksCapture(const std::shared_ptr<FakeStream> &stream) {
  if (stream->capture)
    stream->captureBroken = true;
  return stream->capture;
}

} // namespace fakecuda

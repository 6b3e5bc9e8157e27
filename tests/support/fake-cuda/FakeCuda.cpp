// See FakeCuda.h: the driver's functions, one after the other.
#include "tests/support/fake-cuda/FakeCuda.h"
#include "tests/support/fake-cuda/Machine.h"

#include <cstring>

using namespace llmopt;
using namespace fakecuda;

#define LOCK std::lock_guard lock(mutex)
#define BEGIN(...)                                                                                 \
  LOCK;                                                                                            \
  if (Result result = begin(__VA_ARGS__); result != 0)                                             \
  return result

extern "C" {

const char *fake_cuda_log() { return state().log.c_str(); }
void fake_cuda_reset() {
  LOCK;
  state().reset();
}
void fake_cuda_fail(const char *call, int result, int skip) {
  LOCK;
  state().failures[call] = {result, skip};
}
void fake_cuda_set(const char *what, int value) {
  LOCK;
  state().numbers[what] = value;
}
int fake_cuda_live() {
  LOCK;
  State &all = state();
  return static_cast<int>(all.streams.size() + all.events.size() + all.graphs.size() +
                          all.modules.size() + all.blocks.size()) +
         all.contexts + all.pools + all.current;
}

Result cuGetErrorName(Result result, const char **name) {
  *name = result == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_FAKE";
  return 0;
}
Result cuGetErrorString(Result result, const char **text) {
  *text = result == 2 ? "out of memory" : "a failure that was asked for";
  return 0;
}
Result cuInit(unsigned) {
  BEGIN("cuInit");
  return state().numbers["devices"] ? 0 : 100;
}
Result cuDriverGetVersion(int *version) {
  BEGIN("cuDriverGetVersion");
  *version = state().numbers["version"];
  return 0;
}
Result cuDeviceGetCount(int *count) {
  BEGIN("cuDeviceGetCount");
  *count = state().numbers["devices"];
  return 0;
}
Result cuDeviceGet(int *device, int ordinal) {
  BEGIN("cuDeviceGet", "{}", ordinal);
  *device = ordinal;
  return 0;
}
Result cuDeviceGetName(char *name, int, int) {
  BEGIN("cuDeviceGetName");
  std::strcpy(name, "Fake GPU");
  return 0;
}
Result cuDeviceGetAttribute(int *value, int attribute, int) {
  BEGIN("cuDeviceGetAttribute", "{}", attribute);
  const std::map<int, const char *> names = {
      {16, "units"}, {75, "major"}, {76, "minor"}, {97, "shared"}, {115, "pools"}};
  auto name = names.find(attribute);
  if (name == names.end())
    return kInvalidValue;
  *value = state().numbers[name->second];
  return 0;
}
Result cuDeviceTotalMem_v2(size_t *bytes, int) {
  BEGIN("cuDeviceTotalMem");
  *bytes = kArenaBytes;
  return 0;
}
Result cuDevicePrimaryCtxRetain(void **context, int) {
  BEGIN("cuDevicePrimaryCtxRetain");
  ++state().contexts;
  *context = &state();
  return 0;
}
Result cuDevicePrimaryCtxRelease_v2(int) {
  BEGIN("cuDevicePrimaryCtxRelease");
  --state().contexts;
  return 0;
}
// These two come with nearly every call: they are not written down.
Result cuCtxPushCurrent_v2(void *) {
  LOCK;
  ++state().current;
  return 0;
}
Result cuCtxPopCurrent_v2(void **) {
  LOCK;
  --state().current;
  return 0;
}
Result cuMemAlloc_v2(Address *address, size_t bytes) {
  BEGIN("cuMemAlloc", "{}", bytes);
  return allocate(address, bytes);
}
Result cuMemFree_v2(Address address) {
  BEGIN("cuMemFree");
  return release(address);
}
Result cuMemPoolCreate(void **pool, const runtime::cuda::PoolProperties *properties) {
  BEGIN("cuMemPoolCreate", "type {} location {}", properties->allocationType,
        properties->locationType);
  ++state().pools;
  *pool = &state().pools;
  return 0;
}
Result cuMemPoolSetAttribute(void *, int attribute, void *value) {
  BEGIN("cuMemPoolSetAttribute", "{} {:x}", attribute, *static_cast<uint64_t *>(value));
  return 0;
}
Result cuMemPoolDestroy(void *) {
  BEGIN("cuMemPoolDestroy");
  --state().pools;
  return 0;
}
Result cuMemAllocFromPoolAsync(Address *address, size_t bytes, void *, void *) {
  BEGIN("cuMemAllocFromPoolAsync", "{}", bytes);
  return allocate(address, bytes);
}
Result cuMemFreeAsync(Address address, void *) {
  BEGIN("cuMemFreeAsync");
  return release(address);
}
Result cuMemcpyHtoDAsync_v2(Address to, const void *from, size_t bytes, void *stream) {
  BEGIN("cuMemcpyHtoDAsync", "{}", bytes);
  if (!isDevice(to, bytes))
    return kInvalidValue;
  return enqueue(stream, [=] {
    Open open;
    std::memcpy(reinterpret_cast<void *>(to), from, bytes);
    return 0;
  });
}
Result cuMemcpyDtoHAsync_v2(void *to, Address from, size_t bytes, void *stream) {
  BEGIN("cuMemcpyDtoHAsync", "{}", bytes);
  if (!isDevice(from, bytes))
    return kInvalidValue;
  return enqueue(stream, [=] {
    Open open;
    std::memcpy(to, reinterpret_cast<void *>(from), bytes);
    return 0;
  });
}
Result cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, void *stream) {
  BEGIN("cuMemcpyDtoDAsync", "{}", bytes);
  if (!isDevice(to, bytes) || !isDevice(from, bytes))
    return kInvalidValue;
  return enqueue(stream, [=] {
    Open open;
    std::memmove(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), bytes);
    return 0;
  });
}
Result cuMemsetD8Async(Address to, unsigned char value, size_t bytes, void *stream) {
  BEGIN("cuMemsetD8Async", "{} {}", value, bytes);
  if (!isDevice(to, bytes))
    return kInvalidValue;
  return enqueue(stream, [=] {
    Open open;
    std::memset(reinterpret_cast<void *>(to), value, bytes);
    return 0;
  });
}
Result cuStreamCreate(void **stream, unsigned flags) {
  BEGIN("cuStreamCreate", "{}", flags);
  *stream = *state().streams.insert(new FakeStream).first;
  return 0;
}
Result cuStreamDestroy_v2(void *handle) {
  BEGIN("cuStreamDestroy");
  auto *stream = static_cast<FakeStream *>(handle);
  if (!state().streams.contains(stream))
    return kInvalidHandle;
  Result result = drain(*stream);
  state().streams.erase(stream);
  delete stream;
  return result;
}
Result cuStreamSynchronize(void *handle) {
  BEGIN("cuStreamSynchronize");
  FakeStream *stream = streamOf(handle);
  return stream ? drain(*stream) : kInvalidHandle;
}
Result cuStreamWaitEvent(void *handle, void *eventHandle, unsigned) {
  BEGIN("cuStreamWaitEvent");
  auto *event = static_cast<FakeEvent *>(eventHandle);
  if (!state().events.contains(event))
    return kInvalidHandle;
  FakeStream *source = event->stream;
  size_t after = source->work.size() - std::min(event->pending, source->work.size());
  return enqueue(handle, [=] { return drain(*source, after); });
}
Result cuStreamBeginCapture_v2(void *handle, int mode) {
  BEGIN("cuStreamBeginCapture", "{}", mode);
  FakeStream *stream = streamOf(handle);
  if (!stream || stream->capture)
    return kInvalidHandle;
  auto *graph = new FakeGraph;
  state().graphs.insert(graph);
  stream->capture = &graph->work;
  return 0;
}
Result cuStreamEndCapture(void *handle, void **graph) {
  BEGIN("cuStreamEndCapture");
  FakeStream *stream = streamOf(handle);
  for (FakeGraph *one : state().graphs)
    if (stream && stream->capture == &one->work) {
      stream->capture = nullptr;
      *graph = one;
      return 0;
    }
  return kInvalidHandle;
}
Result cuEventCreate(void **event, unsigned) {
  BEGIN("cuEventCreate");
  *event = *state().events.insert(new FakeEvent).first;
  return 0;
}
Result cuEventDestroy_v2(void *handle) {
  BEGIN("cuEventDestroy");
  auto *event = static_cast<FakeEvent *>(handle);
  if (!state().events.erase(event))
    return kInvalidHandle;
  delete event;
  return 0;
}
Result cuEventRecord(void *handle, void *stream) {
  BEGIN("cuEventRecord");
  auto *event = static_cast<FakeEvent *>(handle);
  event->stream = streamOf(stream);
  event->pending = event->stream->work.size();
  return 0;
}
Result cuEventSynchronize(void *handle) {
  BEGIN("cuEventSynchronize");
  return drain(*static_cast<FakeEvent *>(handle)->stream);
}
Result cuEventElapsedTime(float *milliseconds, void *, void *) {
  BEGIN("cuEventElapsedTime");
  *milliseconds = 2.5f;
  return 0;
}
Result cuModuleLoadDataEx(void **module, const void *image, unsigned, const int *options,
                          void **values) {
  BEGIN("cuModuleLoadDataEx");
  const auto *bytes = static_cast<const uint8_t *>(image);
  if (std::memcmp(bytes, "//PTX   ", 8) == 0)
    bytes += 8;
  if (std::memcmp(bytes,
                  "\x7f"
                  "ELF",
                  4) != 0) {
    std::strcpy(static_cast<char *>(values[0]), "the image is neither machine code nor PTX");
    return options[0] == 5 ? 200 : kInvalidValue;
  }
  // The section table ends an object.
  uint64_t sections;
  uint16_t size, count;
  std::memcpy(&sections, bytes + 40, sizeof(sections));
  std::memcpy(&size, bytes + 58, sizeof(size));
  std::memcpy(&count, bytes + 60, sizeof(count));
  std::vector<uint8_t> copy(bytes, bytes + sections + size_t{size} * count);
  auto object = runtime::LoadedObject::load(copy);
  if (!object)
    return 200;
  *module = *state().modules.insert(new FakeModule{*std::move(object)}).first;
  return 0;
}
Result cuModuleUnload(void *module) {
  BEGIN("cuModuleUnload");
  if (!state().modules.erase(static_cast<FakeModule *>(module)))
    return kInvalidHandle;
  delete static_cast<FakeModule *>(module);
  return 0;
}
Result cuModuleGetFunction(void **function, void *module, const char *name) {
  BEGIN("cuModuleGetFunction", "{}", name);
  auto entry = static_cast<FakeModule *>(module)->object.function(name);
  if (!entry)
    return 500;
  state().functions.push_back(std::make_unique<FakeFunction>(
      FakeFunction{name, reinterpret_cast<bundle::CpuEntry>(*entry)}));
  *function = state().functions.back().get();
  return 0;
}
Result cuFuncSetAttribute(void *function, int attribute, int value) {
  BEGIN("cuFuncSetAttribute", "{} {} {}", static_cast<FakeFunction *>(function)->name, attribute,
        value);
  return value > state().numbers["shared"] ? kInvalidValue : 0;
}
Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *, int threads,
                                                   size_t shared) {
  BEGIN("cuOccupancyMaxActiveBlocksPerMultiprocessor", "{} {}", threads, shared);
  *blocks = threads > 0 ? 1024 / threads : 0;
  return 0;
}
Result cuLaunchKernel(void *handle, unsigned gridX, unsigned, unsigned, unsigned blockX, unsigned,
                      unsigned, unsigned shared, void *stream, void **, void **extra) {
  LOCK;
  auto *function = static_cast<FakeFunction *>(handle);
  Result failure = begin("cuLaunchKernel", "{} grid {} block {} shared {}", function->name, gridX,
                         blockX, shared);
  if (failure != 0 && failure < 700)
    return failure;
  if (extra[0] != reinterpret_cast<void *>(1) || extra[2] != reinterpret_cast<void *>(2) ||
      extra[4] != nullptr)
    return kInvalidValue;
  const auto *params = static_cast<const uint8_t *>(extra[1]);
  size_t bytes = *static_cast<size_t *>(extra[3]);
  return enqueue(stream, [=, kept = std::vector<uint8_t>(params, params + bytes)]() -> Result {
    if (failure != 0)
      return failure;
    Open open;
    alignas(64) static uint8_t scratch[1 << 16];
    for (unsigned block = 0; block < gridX; ++block)
      if (function->entry(kept.data(), block, scratch) != 0)
        return 719;
    return 0;
  });
}
Result cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long) {
  BEGIN("cuGraphInstantiateWithFlags", "{} nodes", static_cast<FakeGraph *>(graph)->work.size());
  *exec = *state().graphs.insert(new FakeGraph(*static_cast<FakeGraph *>(graph))).first;
  return 0;
}
Result cuGraphLaunch(void *exec, void *stream) {
  BEGIN("cuGraphLaunch");
  for (const Work &work : static_cast<FakeGraph *>(exec)->work)
    if (Result result = enqueue(stream, work); result != 0)
      return result;
  return 0;
}
Result cuGraphExecDestroy(void *exec) {
  BEGIN("cuGraphExecDestroy");
  state().graphs.erase(static_cast<FakeGraph *>(exec));
  delete static_cast<FakeGraph *>(exec);
  return 0;
}
Result cuGraphDestroy(void *graph) {
  BEGIN("cuGraphDestroy");
  state().graphs.erase(static_cast<FakeGraph *>(graph));
  delete static_cast<FakeGraph *>(graph);
  return 0;
}
}

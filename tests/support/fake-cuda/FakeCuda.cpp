// See FakeCuda.h: the driver's functions, one after the other.
#include "tests/support/fake-cuda/FakeCuda.h"
#include "tests/support/fake-cuda/Machine.h"
#include "tests/support/fake-cuda/Results.h"

#include <algorithm>
#include <chrono>
#include <cstring>

using namespace llmopt;
using namespace fakecuda;

#define LOCK std::lock_guard lock(mutex())
#define BEGIN(...)                                                                                 \
  LOCK;                                                                                            \
  if (Result result = begin(__VA_ARGS__); result != 0)                                             \
  return result

namespace {

const ResultText *textOf(int result) {
  const auto *end = std::end(kResultTexts);
  const auto *found = std::find_if(std::begin(kResultTexts), end,
                                   [&](const ResultText &text) { return text.result == result; });
  return found == end ? nullptr : found;
}

double secondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

} // namespace

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
  const ResultText *found = textOf(result);
  *name = found ? found->name : nullptr;
  return found ? 0 : kInvalidValue;
}
Result cuGetErrorString(Result result, const char **text) {
  LOCK;
  const ResultText *found = textOf(result);
  static std::string longer; // with what the simulator found
  longer = found ? found->text : "";
  if (!state().fault.empty() && result == state().lost)
    longer += fmt::format(": {}", state().fault);
  *text = found ? longer.c_str() : nullptr;
  return found ? 0 : kInvalidValue;
}
Result cuInit(unsigned) {
  BEGIN("cuInit");
  return state().numbers["devices"] ? 0 : kNoDevice;
}
/// NVRTC asks any libcuda.so.1 of the process for tables of NVIDIA's own; there are none.
Result cuGetExportTable(const void **table, const void *) {
  *table = nullptr;
  return kNotFound;
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
  *bytes = memoryBytes();
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
  auto made = std::make_shared<FakeStream>();
  *stream = made.get();
  state().streams[made.get()] = made;
  return 0;
}
Result cuStreamDestroy_v2(void *handle) {
  BEGIN("cuStreamDestroy");
  std::shared_ptr<FakeStream> stream = streamOf(handle);
  if (!handle || !stream)
    return kInvalidHandle;
  Result result = drain(stream);
  state().streams.erase(handle);
  return result;
}
Result cuStreamSynchronize(void *handle) {
  LOCK;
  Result failure = begin("cuStreamSynchronize");
  std::shared_ptr<FakeStream> stream = streamOf(handle);
  if (!stream)
    return kInvalidHandle;
  if (breaksCapture(stream))
    return kCaptureUnsupported;
  Result result = drain(stream); // what was given runs, whatever is told of it
  return failure ? failure : result;
}
Result cuStreamWaitEvent(void *handle, void *eventHandle, unsigned) {
  BEGIN("cuStreamWaitEvent");
  auto *event = static_cast<FakeEvent *>(eventHandle);
  if (!state().events.contains(event))
    return kInvalidHandle;
  if (event->captured)
    return kCaptureUnsupported; // to join captures is nothing that the runtime does
  return enqueue(handle, [mark = event->mark] { return drain(mark); });
}
Result cuStreamBeginCapture_v2(void *handle, int mode) {
  BEGIN("cuStreamBeginCapture", "{}", mode);
  std::shared_ptr<FakeStream> stream = streamOf(handle);
  if (!stream || stream->capture)
    return kInvalidHandle;
  if (!handle)
    return kCaptureUnsupported; // the process's default stream
  stream->capture = *state().graphs.insert(new FakeGraph).first;
  return 0;
}
Result cuStreamEndCapture(void *handle, void **graph) {
  LOCK;
  Result failure = begin("cuStreamEndCapture");
  std::shared_ptr<FakeStream> stream = streamOf(handle);
  if (!stream || !stream->capture)
    return kInvalidHandle;
  FakeGraph *captured = std::exchange(stream->capture, nullptr);
  if (std::exchange(stream->captureBroken, false) && !failure)
    failure = kCaptureInvalidated;
  if (failure) { // the capture ends all the same
    state().graphs.erase(captured);
    delete captured;
    return failure;
  }
  *graph = captured;
  return 0;
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
Result cuEventRecord(void *handle, void *streamHandle) {
  BEGIN("cuEventRecord");
  auto *event = static_cast<FakeEvent *>(handle);
  std::shared_ptr<FakeStream> stream = streamOf(streamHandle);
  if (!state().events.contains(event) || !stream)
    return kInvalidHandle;
  event->captured = stream->capture;
  event->seconds = -1;
  Result result = enqueue(streamHandle, [event]() -> Result {
    if (state().events.contains(event))
      event->seconds = secondsNow();
    return 0;
  });
  event->mark = {stream, stream->done + stream->work.size()};
  return result;
}
Result cuEventSynchronize(void *handle) {
  BEGIN("cuEventSynchronize");
  auto *event = static_cast<FakeEvent *>(handle);
  if (!state().events.contains(event))
    return kInvalidHandle;
  return event->captured ? kCapturedEvent : drain(event->mark);
}
/// The host's time: of a simulated kernel it says nothing.
Result cuEventElapsedTime(float *milliseconds, void *fromHandle, void *toHandle) {
  BEGIN("cuEventElapsedTime");
  auto *from = static_cast<FakeEvent *>(fromHandle), *to = static_cast<FakeEvent *>(toHandle);
  if (!state().events.contains(from) || !state().events.contains(to))
    return kInvalidHandle;
  if (from->seconds < 0 || to->seconds < 0)
    return kNotReady;
  *milliseconds = static_cast<float>((to->seconds - from->seconds) * 1e3);
  return 0;
}
Result cuModuleLoadDataEx(void **module, const void *image, unsigned, const int *options,
                          void **values) {
  BEGIN("cuModuleLoadDataEx");
  auto number = [](const char *name) { return static_cast<uint32_t>(state().numbers[name]); };
  Loaded loaded = loadImage(static_cast<const uint8_t *>(image),
                            {number("major"), number("minor"), number("version")});
  if (!loaded.image) {
    constexpr int kErrorLog = 5;
    if (options[0] != kErrorLog)
      return kInvalidValue;
    size_t room = reinterpret_cast<size_t>(values[1]);
    std::strncpy(static_cast<char *>(values[0]), loaded.log.c_str(), room);
    return loaded.result;
  }
  *module = const_cast<Image *>(loaded.image.get());
  state().modules[*module] = loaded.image;
  return 0;
}
Result cuModuleUnload(void *module) {
  BEGIN("cuModuleUnload");
  return state().modules.erase(module) ? 0 : kInvalidHandle;
}
Result cuModuleGetFunction(void **function, void *module, const char *name) {
  BEGIN("cuModuleGetFunction", "{}", name);
  auto image = state().modules.find(module);
  if (image == state().modules.end())
    return kInvalidHandle;
  if (!image->second->has(name))
    return kNotFound;
  state().functions.push_back(
      std::make_unique<FakeFunction>(FakeFunction{.image = image->second, .name = name}));
  *function = state().functions.back().get();
  return 0;
}
Result cuFuncSetAttribute(void *handle, int attribute, int value) {
  auto *function = static_cast<FakeFunction *>(handle);
  BEGIN("cuFuncSetAttribute", "{} {} {}", function->name, attribute, value);
  constexpr int kMaxDynamicShared = 8;
  if (attribute != kMaxDynamicShared || value < 0 || value > state().numbers["shared"])
    return kInvalidValue;
  function->maxShared = static_cast<uint32_t>(value);
  return 0;
}
Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *, int threads,
                                                   size_t shared) {
  BEGIN("cuOccupancyMaxActiveBlocksPerMultiprocessor", "{} {}", threads, shared);
  *blocks = threads > 0 ? 1024 / threads : 0;
  return 0;
}
Result cuLaunchKernel(void *handle, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX,
                      unsigned blockY, unsigned blockZ, unsigned shared, void *stream, void **,
                      void **extra) {
  LOCK;
  auto *function = static_cast<FakeFunction *>(handle);
  Result failure = begin("cuLaunchKernel", "{} grid {} block {} shared {}", function->name, gridX,
                         blockX, shared);
  if (failure != 0 && (failure < kIllegalAddress || state().lost))
    return failure;
  if (extra[0] != reinterpret_cast<void *>(1) || extra[2] != reinterpret_cast<void *>(2) ||
      extra[4] != nullptr)
    return kInvalidValue;
  LaunchShape shape{{gridX, gridY, gridZ}, {blockX, blockY, blockZ}, shared};
  std::shared_ptr<const Image> image = function->image.lock();
  if (!image)
    return kInvalidHandle;
  if (Result result = image->check(function->name, shape); result != 0)
    return result;
  if (shared > std::max<uint32_t>(function->maxShared, 48 << 10))
    return kInvalidValue;
  const auto *params = static_cast<const uint8_t *>(extra[1]);
  size_t bytes = *static_cast<size_t *>(extra[3]);
  return enqueue(stream,
                 [=, image = function->image, name = function->name,
                  kept = std::vector<uint8_t>(params, params + bytes)]() -> Result {
                   if (failure != 0)
                     return failure;
                   std::shared_ptr<const Image> code = image.lock();
                   if (!code)
                     return kInvalidHandle; // unloaded before it ran
                   Open open;
                   return code->launch(name, shape, kept, state().fault);
                 });
}
Result cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long) {
  BEGIN("cuGraphInstantiateWithFlags", "{} nodes", static_cast<FakeGraph *>(graph)->work.size());
  *exec = *state().graphs.insert(new FakeGraph(*static_cast<FakeGraph *>(graph))).first;
  return 0;
}
Result cuGraphLaunch(void *exec, void *stream) {
  BEGIN("cuGraphLaunch");
  auto *graph = static_cast<FakeGraph *>(exec);
  if (!state().graphs.contains(graph))
    return kInvalidHandle;
  for (const Work &work : graph->work)
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

// NVIDIA's driver, opened at run time by name: the program starts and runs without it. One
// table lists what is used of it; its types are declared here, so that no CUDA header is
// needed to build.
#pragma once

#include "runtime/base/Status.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

namespace llmopt::runtime::cuda {

/// A CUresult: 0 is success.
using Result = int;
using DeviceId = int;
using Address = unsigned long long;
// Opaque handles.
using Context = void *;
using StreamHandle = void *;
using EventHandle = void *;
using ModuleHandle = void *;
using Function = void *;
using Pool = void *;
using GraphHandle = void *;
using GraphExec = void *;

/// CUmemPoolProps.
struct PoolProperties {
  int allocationType = 1; ///< pinned device memory, the only kind
  int handleTypes = 0;
  int locationType = 1; ///< a device
  int locationId = 0;
  void *securityAttributes = nullptr;
  uint8_t reserved[64] = {};
};
static_assert(sizeof(PoolProperties) == 88);

/// Names and C types, as in cuda.h 12.0. The error texts come first, so that what follows can
/// be explained.
#define LLMOPT_CUDA_SYMBOLS(X)                                                                     \
  X(cuGetErrorName, Result (*)(Result, const char **))                                             \
  X(cuGetErrorString, Result (*)(Result, const char **))                                           \
  X(cuInit, Result (*)(unsigned))                                                                  \
  X(cuDriverGetVersion, Result (*)(int *))                                                         \
  X(cuDeviceGetCount, Result (*)(int *))                                                           \
  X(cuDeviceGet, Result (*)(DeviceId *, int))                                                      \
  X(cuDeviceGetName, Result (*)(char *, int, DeviceId))                                            \
  X(cuDeviceGetAttribute, Result (*)(int *, int, DeviceId))                                        \
  X(cuDeviceTotalMem_v2, Result (*)(size_t *, DeviceId))                                           \
  X(cuDevicePrimaryCtxRetain, Result (*)(Context *, DeviceId))                                     \
  X(cuDevicePrimaryCtxRelease_v2, Result (*)(DeviceId))                                            \
  X(cuCtxPushCurrent_v2, Result (*)(Context))                                                      \
  X(cuCtxPopCurrent_v2, Result (*)(Context *))                                                     \
  X(cuMemAlloc_v2, Result (*)(Address *, size_t))                                                  \
  X(cuMemFree_v2, Result (*)(Address))                                                             \
  X(cuMemPoolCreate, Result (*)(Pool *, const PoolProperties *))                                   \
  X(cuMemPoolSetAttribute, Result (*)(Pool, int, void *))                                          \
  X(cuMemPoolDestroy, Result (*)(Pool))                                                            \
  X(cuMemAllocFromPoolAsync, Result (*)(Address *, size_t, Pool, StreamHandle))                    \
  X(cuMemFreeAsync, Result (*)(Address, StreamHandle))                                             \
  X(cuMemcpyHtoDAsync_v2, Result (*)(Address, const void *, size_t, StreamHandle))                 \
  X(cuMemcpyDtoHAsync_v2, Result (*)(void *, Address, size_t, StreamHandle))                       \
  X(cuMemcpyDtoDAsync_v2, Result (*)(Address, Address, size_t, StreamHandle))                      \
  X(cuMemsetD8Async, Result (*)(Address, unsigned char, size_t, StreamHandle))                     \
  X(cuStreamCreate, Result (*)(StreamHandle *, unsigned))                                          \
  X(cuStreamDestroy_v2, Result (*)(StreamHandle))                                                  \
  X(cuStreamSynchronize, Result (*)(StreamHandle))                                                 \
  X(cuStreamWaitEvent, Result (*)(StreamHandle, EventHandle, unsigned))                            \
  X(cuStreamBeginCapture_v2, Result (*)(StreamHandle, int))                                        \
  X(cuStreamEndCapture, Result (*)(StreamHandle, GraphHandle *))                                   \
  X(cuEventCreate, Result (*)(EventHandle *, unsigned))                                            \
  X(cuEventDestroy_v2, Result (*)(EventHandle))                                                    \
  X(cuEventRecord, Result (*)(EventHandle, StreamHandle))                                          \
  X(cuEventSynchronize, Result (*)(EventHandle))                                                   \
  X(cuEventElapsedTime, Result (*)(float *, EventHandle, EventHandle))                             \
  X(cuModuleLoadDataEx, Result (*)(ModuleHandle *, const void *, unsigned, const int *, void **))  \
  X(cuModuleUnload, Result (*)(ModuleHandle))                                                      \
  X(cuModuleGetFunction, Result (*)(Function *, ModuleHandle, const char *))                       \
  X(cuFuncSetAttribute, Result (*)(Function, int, int))                                            \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, Result (*)(int *, Function, int, size_t))         \
  X(cuLaunchKernel, Result (*)(Function, unsigned, unsigned, unsigned, unsigned, unsigned,         \
                               unsigned, unsigned, StreamHandle, void **, void **))                \
  X(cuGraphInstantiateWithFlags, Result (*)(GraphExec *, GraphHandle, unsigned long long))         \
  X(cuGraphLaunch, Result (*)(GraphExec, StreamHandle))                                            \
  X(cuGraphExecDestroy, Result (*)(GraphExec))                                                     \
  X(cuGraphDestroy, Result (*)(GraphHandle))

/// Results that are told apart.
inline constexpr Result kOutOfMemory = 2, kStubLibrary = 34, kNoDevice = 100, kInvalidImage = 200,
                        kNoBinary = 209, kInvalidPtx = 218, kUnsupportedPtx = 222;

/// The oldest driver that this runtime works with: CUDA 12.0.
inline constexpr int kLeastDriver = 12000;

class Driver {
public:
  /// Opens libcuda.so.1, or what LLMOPT_CUDA_LIBRARY names, and initialises it. Unavailable
  /// says what is missing: the library, a device, a newer version.
  static StatusOr<std::shared_ptr<const Driver>> load();

  /// Success, or the failure of a call with CUDA's own name and text for it.
  Status check(Result result, const char *call) const;

  /// 1000 * major + 10 * minor of the newest CUDA that the driver supports.
  int version() const { return cudaVersion; }
  const std::string &path() const { return file; }

#define LLMOPT_DECLARE(name, type) std::type_identity_t<type> name = nullptr;
  LLMOPT_CUDA_SYMBOLS(LLMOPT_DECLARE)
#undef LLMOPT_DECLARE

private:
  Driver() = default;
  Status initialise();

  int cudaVersion = 0;
  std::string file;
};

/// "12.4" of 12040.
std::string versionText(uint32_t version);

} // namespace llmopt::runtime::cuda

#include "runtime/device/cuda/CudaDevice.h"

namespace llmopt::runtime {

using cuda::Address;
using cuda::Current;
using cuda::Driver;

namespace {

// Of CUdevice_attribute and CUmemPool_attribute.
constexpr int kMultiprocessors = 16, kMajor = 75, kMinor = 76, kSharedPerBlock = 97,
              kPoolsSupported = 115, kReleaseThreshold = 4;
constexpr unsigned kNonBlocking = 1; ///< does not wait for the process's default stream

} // namespace

StatusOr<std::shared_ptr<CudaDevice>> CudaDevice::open(uint32_t ordinal) {
  StatusOr<std::shared_ptr<const Driver>> driver = Driver::load();
  if (!driver)
    return driver.status();
  return open(*driver, ordinal);
}

StatusOr<std::shared_ptr<CudaDevice>> CudaDevice::open(std::shared_ptr<const Driver> driver,
                                                       uint32_t ordinal) {
  int count = 0;
  LLMOPT_CUDA_TRY(*driver, cuDeviceGetCount, &count);
  if (count <= 0)
    return makeStatus(StatusCode::Unavailable, "no CUDA device: the driver '{}' finds none",
                      driver->path());
  if (ordinal >= static_cast<uint32_t>(count))
    return makeStatus(StatusCode::Unavailable, "there is no CUDA device {}; there are {}, from 0",
                      ordinal, count);
  cuda::DeviceId id = 0;
  LLMOPT_CUDA_TRY(*driver, cuDeviceGet, &id, static_cast<int>(ordinal));
  std::shared_ptr<CudaDevice> device(new CudaDevice(std::move(driver), id));
  LLMOPT_RETURN_IF_ERROR(device->initialise());
  return device;
}

Status CudaDevice::describe() {
  auto attribute = [&](int which, int &value) {
    return api->check(api->cuDeviceGetAttribute(&value, which, id), "cuDeviceGetAttribute");
  };
  int units = 0, major = 0, minor = 0, shared = 0;
  LLMOPT_RETURN_IF_ERROR(attribute(kMultiprocessors, units));
  LLMOPT_RETURN_IF_ERROR(attribute(kMajor, major));
  LLMOPT_RETURN_IF_ERROR(attribute(kMinor, minor));
  LLMOPT_RETURN_IF_ERROR(attribute(kSharedPerBlock, shared));
  char name[256] = "";
  LLMOPT_CUDA_TRY(*api, cuDeviceGetName, name, sizeof(name) - 1, id);
  size_t memory = 0;
  LLMOPT_CUDA_TRY(*api, cuDeviceTotalMem_v2, &memory, id);
  arch = {.major = static_cast<uint32_t>(major), .minor = static_cast<uint32_t>(minor)};
  maxShared = static_cast<uint32_t>(shared);
  described = {.kind = DeviceKind::Cuda,
               .name = name,
               .arch = arch.name(),
               .driver = fmt::format("CUDA {}", cuda::versionText(api->version())),
               .units = static_cast<uint32_t>(units),
               .memoryBytes = memory,
               .ordinal = static_cast<uint32_t>(id),
               .hostMemory = false};
  return {};
}

Status CudaDevice::createPool() {
  int supported = 0;
  LLMOPT_CUDA_TRY(*api, cuDeviceGetAttribute, &supported, kPoolsSupported, id);
  if (!supported)
    return {};
  // A pool of its own: settings of the default one belong to the whole process.
  cuda::PoolProperties properties{.locationId = id};
  LLMOPT_CUDA_TRY(*api, cuMemPoolCreate, &pool, &properties);
  uint64_t keepAll = ~uint64_t{0};
  LLMOPT_CUDA_TRY(*api, cuMemPoolSetAttribute, pool, kReleaseThreshold, &keepAll);
  LLMOPT_CUDA_TRY(*api, cuStreamCreate, &allocation, kNonBlocking);
  return {};
}

Status CudaDevice::initialise() {
  LLMOPT_RETURN_IF_ERROR(describe());
  LLMOPT_CUDA_TRY(*api, cuDevicePrimaryCtxRetain, &primary, id);
  Current current(*this);
  LLMOPT_RETURN_IF_ERROR(current.status());
  return createPool();
}

CudaDevice::~CudaDevice() {
  if (!primary)
    return;
  {
    Current current(*this);
    if (allocation)
      api->cuStreamDestroy_v2(allocation);
    if (pool)
      api->cuMemPoolDestroy(pool);
  }
  api->cuDevicePrimaryCtxRelease_v2(id);
}

StatusOr<DeviceMemory> CudaDevice::allocate(size_t bytes) {
  if (bytes == 0)
    return DeviceMemory();
  Current current(*this);
  LLMOPT_RETURN_IF_ERROR(current.status());
  Address address = 0;
  Status status;
  if (pool) {
    status = api->check(api->cuMemAllocFromPoolAsync(&address, bytes, pool, allocation),
                        "cuMemAllocFromPoolAsync");
    // Then every stream may use it at once; memory that the pool has costs no wait.
    if (status.ok())
      status = api->check(api->cuStreamSynchronize(allocation), "cuStreamSynchronize");
  } else {
    status = api->check(api->cuMemAlloc_v2(&address, bytes), "cuMemAlloc");
  }
  if (!status.ok())
    return status.withContext(
        fmt::format("no memory for {} bytes on device '{}'", bytes, described.name));
  return DeviceMemory(shared_from_this(), reinterpret_cast<void *>(address), bytes);
}

void CudaDevice::release(void *memory, size_t) noexcept {
  Current current(*this);
  auto address = reinterpret_cast<Address>(memory);
  if (pool)
    api->cuMemFreeAsync(address, allocation);
  else
    api->cuMemFree_v2(address);
}

StatusOr<std::unique_ptr<Stream>> CudaDevice::createStream() {
  Current current(*this);
  LLMOPT_RETURN_IF_ERROR(current.status());
  cuda::StreamHandle handle = nullptr;
  LLMOPT_CUDA_TRY(*api, cuStreamCreate, &handle, kNonBlocking);
  return cuda::makeStream(self(), handle, /*owned=*/true);
}

StatusOr<std::unique_ptr<Stream>> CudaDevice::useStream(void *native) {
  return cuda::makeStream(self(), native, /*owned=*/false);
}

StatusOr<std::shared_ptr<DeviceProgram>> CudaDevice::load(bundle::Program program) {
  Current current(*this);
  LLMOPT_RETURN_IF_ERROR(current.status());
  return cuda::loadProgram(self(), std::move(program));
}

} // namespace llmopt::runtime

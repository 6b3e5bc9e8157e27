#include "runtime/device/cuda/CudaProgram.h"

#include "runtime/bundle/BundleIO.h"
#include "runtime/device/ImageChoice.h"

#include <algorithm>

namespace llmopt::runtime::cuda {

namespace {

constexpr int kMaxDynamicShared = 8; ///< of CUfunction_attribute
// Of CUjit_option.
constexpr int kErrorLog = 5, kErrorLogBytes = 6;

} // namespace

CudaProgram::~CudaProgram() {
  Current current(*cudaDevice);
  for (const Module &module : modules)
    cudaDevice->driver().cuModuleUnload(module.handle);
}

StatusOr<ModuleHandle> CudaProgram::moduleOf(uint32_t index) {
  for (const Module &module : modules)
    if (module.image == index)
      return module.handle;
  const bundle::Image &image = held.images[index];
  const Driver &driver = cudaDevice->driver();
  std::vector<uint8_t> bytes = image.bytes;
  bytes.push_back(0); // PTX is text that ends with a zero
  char log[4096] = "";
  const int options[] = {kErrorLog, kErrorLogBytes};
  void *values[] = {log, reinterpret_cast<void *>(sizeof(log) - 1)};
  ModuleHandle handle = nullptr;
  Result result = driver.cuModuleLoadDataEx(&handle, bytes.data(), 2, options, values);
  Status status = driver.check(result, "cuModuleLoadDataEx");
  if (!status.ok())
    return makeStatus(status.code(), "{}: {}{}{}", describe(image), status.message(),
                      *log ? ": " : "", log);
  modules.push_back({index, handle});
  return handle;
}

StatusOr<Function> CudaProgram::findFunction(const bundle::Kernel &kernel, uint32_t image) {
  StatusOr<ModuleHandle> module = moduleOf(image);
  if (!module)
    return module.status();
  Function function = nullptr;
  LLMOPT_CUDA_TRY(cudaDevice->driver(), cuModuleGetFunction, &function, *module,
                  kernel.entry.c_str());
  return function;
}

/// Sets what a launch needs, and sees how many blocks run at a time.
Status CudaProgram::prepare(const bundle::Kernel &kernel, Function function) {
  const Driver &driver = cudaDevice->driver();
  if (kernel.sharedBytes > cudaDevice->sharedBytes())
    return makeStatus(StatusCode::Unavailable,
                      "kernel '{}' needs {} bytes of shared memory; the device has {}; compile for "
                      "{}",
                      kernel.entry, kernel.sharedBytes, cudaDevice->sharedBytes(),
                      cudaDevice->chip().name());
  if (kernel.clusterBlocks != 1)
    return makeStatus(StatusCode::Unsupported,
                      "kernel '{}' wants clusters of {} blocks; blocks by themselves are launched",
                      kernel.entry, kernel.clusterBlocks);
  LLMOPT_CUDA_TRY(driver, cuFuncSetAttribute, function, kMaxDynamicShared,
                  static_cast<int>(kernel.sharedBytes));
  int blocks = 0;
  LLMOPT_CUDA_TRY(driver, cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, function,
                  static_cast<int>(kernel.blockThreads), kernel.sharedBytes);
  if (blocks < 1)
    return makeStatus(StatusCode::Unavailable,
                      "kernel '{}' with {} threads and {} bytes of shared memory does not fit a "
                      "multiprocessor of '{}'",
                      kernel.entry, kernel.blockThreads, kernel.sharedBytes,
                      cudaDevice->facts().name);
  uint32_t workers = cudaDevice->facts().units * static_cast<uint32_t>(blocks);
  uint32_t &least = kernel.kind == bundle::KernelKind::Attend ? residentAttend : resident;
  least = least ? std::min(least, workers) : workers;
  return {};
}

/// The best image that loads: a driver may refuse machine code and still compile the PTX.
Status CudaProgram::loadKernel(const bundle::Kernel &kernel) {
  ImageChoice images = chooseImages(held, kernel, cudaDevice->chip(),
                                    static_cast<uint32_t>(cudaDevice->driver().version()));
  std::vector<std::string> reasons = std::move(images.rejected);
  for (uint32_t image : images.usable) {
    StatusOr<Function> function = findFunction(kernel, image);
    if (!function && function.status().code() != StatusCode::Unavailable)
      return function.status();
    if (!function) {
      reasons.push_back(function.status().message());
      continue;
    }
    functions.push_back(*function);
    choice += fmt::format("{}{}: {}", choice.empty() ? "" : "; ", kernel.entry,
                          describe(held.images[image]));
    if (!reasons.empty())
      choice += fmt::format(" ({})", fmt::join(reasons, "; "));
    return prepare(kernel, *function);
  }
  return makeStatus(StatusCode::Unavailable, "kernel '{}' has no image for '{}' ({}): {}",
                    kernel.entry, cudaDevice->facts().name, cudaDevice->chip().name(),
                    fmt::join(reasons, "; "));
}

Status CudaProgram::initialise() {
  for (const bundle::Kernel &kernel : held.kernels)
    LLMOPT_RETURN_IF_ERROR(loadKernel(kernel));
  return {};
}

StatusOr<std::shared_ptr<DeviceProgram>> loadProgram(std::shared_ptr<CudaDevice> device,
                                                     bundle::Program program) {
  LLMOPT_RETURN_IF_ERROR(bundle::checkLoadable(program));
  std::string context = fmt::format("program '{}'", program.name);
  auto loaded = std::make_shared<CudaProgram>(std::move(device), std::move(program));
  if (Status status = loaded->initialise(); !status.ok())
    return status.withContext(context);
  return std::shared_ptr<DeviceProgram>(std::move(loaded));
}

} // namespace llmopt::runtime::cuda

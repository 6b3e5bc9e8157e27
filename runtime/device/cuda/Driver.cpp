#include "runtime/device/cuda/Driver.h"

#include "runtime/base/DynamicLibrary.h"

#include <vector>

namespace llmopt::runtime::cuda {

namespace {

/// What a program can do about a result.
StatusCode codeOf(Result result) {
  switch (result) {
  case kOutOfMemory:
    return StatusCode::ResourceExhausted;
  case kStubLibrary:
  case kNoDevice:
  case 3:   // not initialised
  case 46:  // device busy or unavailable
  case 214: // memory error that was not corrected
  case 802: // system not ready
  case 803: // driver and library differ
    return StatusCode::Unavailable;
  case kInvalidImage:
  case kNoBinary:
  case kInvalidPtx:
  case kUnsupportedPtx:
    return StatusCode::Unavailable;
  default:
    return StatusCode::Internal;
  }
}

/// After these, no call of this process succeeds any more.
bool losesContext(Result result) {
  return result == 214 || result == 700 || (result >= 714 && result <= 719);
}

} // namespace

std::string versionText(uint32_t version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

Status Driver::check(Result result, const char *call) const {
  if (result == 0)
    return {};
  const char *name = nullptr, *text = nullptr;
  cuGetErrorName(result, &name);
  cuGetErrorString(result, &text);
  return makeStatus(codeOf(result), "{} failed: {} ({}){}", call, text ? text : "unknown error",
                    name ? name : std::to_string(result),
                    losesContext(result)
                        ? "; it or work before it has failed, and the device is lost to this "
                          "process; start the process anew"
                        : "");
}

Status Driver::initialise() {
  Result result = cuInit(0);
  if (result == kStubLibrary)
    return makeStatus(
        StatusCode::Unavailable,
        "no CUDA driver: '{}' is the toolkit's, for linking only; install NVIDIA's driver", file);
  if (cuDriverGetVersion(&cudaVersion) != 0)
    cudaVersion = 0;
  if (result == kNoDevice)
    return makeStatus(StatusCode::Unavailable, "no CUDA device: the driver '{}' finds none", file);
  LLMOPT_RETURN_IF_ERROR(check(result, "cuInit").withContext("no CUDA driver"));
  if (cudaVersion < kLeastDriver)
    return makeStatus(StatusCode::Unavailable,
                      "the CUDA driver '{}' supports CUDA {}; {} or later is needed; update it",
                      file, versionText(cudaVersion), versionText(kLeastDriver));
  return {};
}

StatusOr<std::shared_ptr<const Driver>> Driver::load() {
  std::vector<std::string> candidates = {"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"};
  if (std::string given = environment("LLMOPT_CUDA_LIBRARY"); !given.empty())
    candidates = {given};
  StatusOr<DynamicLibrary> library = DynamicLibrary::open(
      candidates, fmt::format("no CUDA driver: {} not found; install NVIDIA's driver, or name its "
                              "library with LLMOPT_CUDA_LIBRARY",
                              candidates.front()));
  if (!library)
    return library.status();
  std::shared_ptr<Driver> driver(new Driver);
  driver->file = library->path();
  const Symbol symbols[] = {
#define LLMOPT_SYMBOL(name, type) {#name, reinterpret_cast<void **>(&driver->name)},
      LLMOPT_CUDA_SYMBOLS(LLMOPT_SYMBOL)
#undef LLMOPT_SYMBOL
  };
  LLMOPT_RETURN_IF_ERROR(library->resolve(symbols).withContext("no usable CUDA driver"));
  LLMOPT_RETURN_IF_ERROR(driver->initialise());
  return std::shared_ptr<const Driver>(driver);
}

} // namespace llmopt::runtime::cuda

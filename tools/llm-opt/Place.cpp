// See Place.h.
#include "tools/llm-opt/Place.h"

#include "runtime/cache/BundleStore.h"
#include "runtime/device/Devices.h"

namespace llmopt::cli {
namespace {

runtime::KernelCache &kernelCache(uint64_t limit) {
  static runtime::KernelCache cache(
      {.folder = runtime::defaultCacheFolder(), .maxDiskBytes = limit});
  return cache;
}

} // namespace

llvm::Expected<Place> openPlace(const std::string &name, bool cached) {
  runtime::StatusOr<std::shared_ptr<runtime::Device>> device = runtime::openDevice(name);
  if (!device)
    return llvm::createStringError(device.status().message());
  if (!cached)
    return Place{*std::move(device), nullptr};
  runtime::StatusOr<uint64_t> limit = runtime::defaultCacheLimit();
  if (!limit)
    return llvm::createStringError(limit.status().message());
  return Place{*std::move(device), &kernelCache(*limit)};
}

llvm::Expected<CompileOptions> optionsFor(const runtime::Device *device) {
  if (!device || device->facts().kind == runtime::DeviceKind::Cpu)
    return hostOptions();
  llvm::Expected<CompileOptions> options = llmopt::optionsFor("cuda:" + device->facts().arch);
  if (options)
    options->ptxOnly = device->facts().kind == runtime::DeviceKind::Sim;
  return options;
}

} // namespace llmopt::cli

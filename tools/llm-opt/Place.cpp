// See Place.h.
#include "tools/llm-opt/Place.h"

#include "runtime/cache/BundleStore.h"
#include "runtime/device/Devices.h"

namespace llmopt::cli {
namespace {

runtime::KernelCache &kernelCache() {
  static runtime::KernelCache cache(
      {.folder = runtime::defaultCacheFolder(), .maxDiskBytes = runtime::defaultCacheLimit()});
  return cache;
}

} // namespace

llvm::Expected<Place> openPlace(const std::string &name, bool cached) {
  runtime::StatusOr<std::shared_ptr<runtime::Device>> device = runtime::openDevice(name);
  if (!device)
    return llvm::createStringError(device.status().message());
  return Place{*std::move(device), cached ? &kernelCache() : nullptr};
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

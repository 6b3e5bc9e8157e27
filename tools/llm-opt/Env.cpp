// llm-opt env: versions and the machine, for a bug report.
#include "codegen/cuda/nvrtc/Nvrtc.h"
#include "runtime/bundle/WorkItem.h"
#include "runtime/cache/BundleStore.h"
#include "runtime/device/cpu/ThreadPool.h"
#include "runtime/device/cuda/CudaDevice.h"
#include "runtime/target/CpuInfo.h"
#include "tools/import/Onnx.h"
#include "tools/llm-opt/Command.h"
#include "tools/llm-opt/DumpJson.h"
#include "tools/llm-opt/SpecFile.h"

#include "tools/llm-opt/Options.h"
#include "llvm/Config/llvm-config.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace llmopt::cli {
namespace {

using Json = nlohmann::ordered_json;

/// Version, file and architectures, or where it was looked for.
Json nvrtcFacts() {
  runtime::StatusOr<std::shared_ptr<const cuda::Nvrtc>> nvrtc = cuda::Nvrtc::load();
  if (!nvrtc)
    return nvrtc.status().message();
  return {
      {"version", (*nvrtc)->version()}, {"file", (*nvrtc)->path()}, {"archs", (*nvrtc)->archs()}};
}

Json driverFacts() {
  runtime::StatusOr<std::shared_ptr<const runtime::cuda::Driver>> driver =
      runtime::cuda::Driver::load();
  if (!driver)
    return driver.status().message();
  return {{"cuda", runtime::cuda::versionText(uint32_t((*driver)->version()))},
          {"file", (*driver)->path()}};
}

Json deviceFacts() {
  Json devices = Json::array();
  for (uint32_t ordinal = 0;; ++ordinal) {
    runtime::StatusOr<std::shared_ptr<runtime::CudaDevice>> device =
        runtime::CudaDevice::open(ordinal);
    if (!device)
      return devices;
    const runtime::DeviceFacts &facts = (*device)->facts();
    devices.push_back({{"name", facts.name},
                       {"arch", facts.arch},
                       {"multiprocessors", facts.units},
                       {"memory_bytes", facts.memoryBytes},
                       {"shared_bytes", (*device)->sharedBytes()}});
  }
}

Json cacheFacts() {
  std::string folder = runtime::defaultCacheFolder();
  if (folder.empty())
    return "none: set LLMOPT_CACHE_DIR or HOME";
  uint64_t bytes = 0;
  std::vector<runtime::BundleStore::Entry> entries = runtime::BundleStore(folder).list();
  for (const runtime::BundleStore::Entry &entry : entries)
    bytes += entry.bytes;
  return {{"folder", folder}, {"entries", entries.size()}, {"bytes", bytes}};
}

} // namespace

int envCommand(int argc, char **argv) {
  CLI::App app{"Versions and the machine, for a bug report", "llm-opt env"};
  bool json = false;
  app.add_flag("--json", json, "print JSON");
  if (std::optional<int> code = parseOptions(app, argc, argv))
    return *code;
  runtime::StatusOr<runtime::CpuInfo> cpu = runtime::hostCpu();
  if (!cpu)
    return fail("env", cpu.status().message());
  runtime::CpuTarget target = runtime::targetOf(*cpu);
  nlohmann::ordered_json facts = {
      {"llm-opt", LLMOPT_VERSION},
      {"llvm", LLVM_VERSION_STRING},
      {"abi", bundle::kAbiVersion},
      {"cpu", cpu->brand},
      {"cores", cpu->cores},
      {"threads", runtime::ThreadPool::defaultThreads()},
      {"vector_bits", target.vectorBits},
      {"bf16_dot", target.hasBf16Dot},
      {"slow_bf16_dot", target.slowBf16Dot},
      {"l2_bytes", target.l2Bytes},
      {"features", runtime::featureString(*cpu)},
      {"nvrtc", nvrtcFacts()},
      {"cuda_driver", driverFacts()},
      {"cuda_devices", deviceFacts()},
      {"kernel_cache", cacheFacts()},
      {"onnx_import",
       importer::onnxIsAvailable() ? "available" : "not in this build: libonnx-dev was missing"}};
  if (json) {
    fmt::print("{}\n", dumpJson(facts, 2));
    return 0;
  }
  for (const auto &[name, value] : facts.items())
    fmt::print("{:<12} {}\n", name, value.is_string() ? value.get<std::string>() : dumpJson(value));
  return 0;
}

} // namespace llmopt::cli

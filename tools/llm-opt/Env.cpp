// llm-opt env: versions and the machine, for a bug report.
#include "runtime/bundle/WorkItem.h"
#include "runtime/cache/BundleStore.h"
#include "runtime/device/cpu/ThreadPool.h"
#include "runtime/target/CpuInfo.h"
#include "tools/import/Onnx.h"
#include "tools/llm-opt/Command.h"
#include "tools/llm-opt/SpecFile.h"

#include "tools/llm-opt/Options.h"
#include "llvm/Config/llvm-config.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace llmopt::cli {

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
      {"l2_bytes", target.l2Bytes},
      {"features", runtime::featureString(*cpu)},
      {"cache", runtime::defaultCacheFolder()},
      {"cache_limit", runtime::defaultCacheLimit()},
      {"cuda", "not in this build"},
      {"onnx_import",
       importer::onnxIsAvailable() ? "available" : "not in this build: libonnx-dev was missing"}};
  if (json) {
    fmt::print("{}\n", facts.dump(2));
    return 0;
  }
  for (const auto &[name, value] : facts.items())
    fmt::print("{:<12} {}\n", name, value.is_string() ? value.get<std::string>() : value.dump());
  return 0;
}

} // namespace llmopt::cli

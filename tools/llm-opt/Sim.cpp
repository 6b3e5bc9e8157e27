// llm-opt sim: runs any kernel, from PTX or CUDA C++, on the simulator: what it computes, what
// it does wrong, and what it costs.
#include "runtime/base/File.h"
#include "runtime/device/sim/Simulator.h"
#include "tools/llm-opt/Command.h"
#include "tools/llm-opt/DriverLaunch.h"
#include "tools/llm-opt/Options.h"
#include "tools/llm-opt/SimLaunch.h"
#include "tools/llm-opt/SimProfile.h"
#include "tools/llm-opt/SimSource.h"
#include "tools/llm-opt/Validators.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace llmopt::cli {
namespace {

using nlohmann::ordered_json;

ordered_json toJson(const sim::Counters &counters) {
  ordered_json byClass = ordered_json::object();
  for (size_t i = 0; i < sim::kInstClasses; ++i)
    if (counters.warpByClass[i])
      byClass[std::string(toString(static_cast<sim::InstClass>(i)))] = counters.warpByClass[i];
  return {{"warp_instructions", counters.warpInstructions},
          {"lane_instructions", counters.laneInstructions},
          {"warp_instructions_by_class", byClass},
          {"global_load_bytes", counters.globalLoadBytes},
          {"global_store_bytes", counters.globalStoreBytes},
          {"global_sectors", counters.globalSectors},
          {"shared_wavefronts", counters.sharedWavefronts},
          {"shared_wavefronts_ideal", counters.sharedIdeal},
          {"mma", counters.mma},
          {"mma_multiply_adds", counters.mmaMultiplyAdds},
          {"barriers", counters.barriers},
          {"divergent_branches", counters.divergentBranches}};
}

ordered_json toJson(const sim::Fault &fault) {
  ordered_json result = {{"kind", toString(fault.kind)},
                         {"kernel", fault.kernel},
                         {"ptx", fault.module},
                         {"line", fault.line},
                         {"instruction", fault.instruction}};
  if (!fault.sourceFile.empty()) {
    result["source_file"] = fault.sourceFile;
    result["source_line"] = fault.sourceLine;
  }
  if (!fault.specFile.empty()) {
    result["spec_file"] = fault.specFile;
    result["spec_line"] = fault.specLine;
  }
  result["block"] = fault.block;
  result["warp"] = fault.warp;
  if (fault.lane)
    result["lane"] = *fault.lane;
  if (fault.address)
    result["address"] = fmt::format("{:#x}", *fault.address);
  if (!fault.buffer.empty())
    result["buffer"] = fault.buffer;
  result["detail"] = fault.detail;
  return result;
}

void printTable(const ordered_json &counters, const std::string &indent = "") {
  for (const auto &[name, value] : counters.items()) {
    if (value.is_object()) {
      fmt::print("{}{}\n", indent, name);
      printTable(value, indent + "  ");
    } else {
      fmt::print("{}{:<28} {}\n", indent, name, value.dump());
    }
  }
}

struct Settings {
  SimSource source;
  std::string savePtx, launch, device = "sim";
  bool json = false, profile = false, relaxed = false;
  sim::Options options;
};

runtime::Status simulate(const Settings &settings, const sim::Module &module, SimLaunch &launch,
                         sim::Fault &fault, sim::Counters &counters, sim::Profile &profile,
                         std::vector<sim::Fault> &warnings) {
  sim::GlobalMemory memory;
  for (SimArray &array : launch.arrays)
    LLMOPT_RETURN_IF_ERROR(
        memory.add(array.array.bytes.data(), array.array.bytes.size(), array.name,
                   array.writable ? sim::Access::ReadWrite : sim::Access::ReadOnly));
  runtime::StatusOr<sim::Counters> result =
      sim::run(module, memory, launch.launch, settings.options, &fault,
               settings.profile ? &profile : nullptr, &warnings);
  if (!result)
    return result.status();
  counters = *result;
  return {};
}

runtime::Status run(const Settings &settings, sim::Fault &fault, sim::Counters &counters,
                    sim::Profile &profile, std::vector<sim::Fault> &warnings) {
  runtime::StatusOr<SimText> text = readSimSource(settings.source);
  if (!text)
    return text.status();
  std::vector<uint8_t> ptx(text->ptx.begin(), text->ptx.end());
  if (!settings.savePtx.empty())
    LLMOPT_RETURN_IF_ERROR(runtime::writeFileAtomic(settings.savePtx, ptx));
  runtime::StatusOr<std::shared_ptr<const sim::Module>> module =
      sim::loadPtx(text->ptx, text->name);
  if (!module)
    return module.status();
  if ((*module)->kernels().empty())
    return runtime::invalidArgument("'{}' has no kernel; {}", settings.source.path,
                                    settings.source.isCuda()
                                        ? "one is a __global__ function; templates must be used"
                                        : "one is an .entry with a body");
  SimLaunch launch;
  LLMOPT_RETURN_IF_ERROR(readSimLaunch(settings.launch, **module, launch));
  LLMOPT_RETURN_IF_ERROR(
      settings.device == "sim"
          ? simulate(settings, **module, launch, fault, counters, profile, warnings)
          : runOnDriver(settings.device, ptx, **module, launch));
  for (const SimArray &array : launch.arrays)
    if (!array.output.empty())
      LLMOPT_RETURN_IF_ERROR(runtime::writeNpy(array.array, array.output));
  return {};
}

} // namespace

int simCommand(int argc, char **argv) {
  CLI::App app{"Runs a kernel from PTX or CUDA C++ without a GPU: every access checked, traffic "
               "counted",
               "llm-opt sim"};
  Settings settings;
  app.add_option(
         "kernel", settings.source.path,
         "PTX text, as NVRTC, nvcc or Triton write it; or CUDA C++ in a file NAME.cu, which "
         "NVRTC compiles")
      ->required();
  app.add_option("--launch", settings.launch, "kernel, grid, block and arrays, as JSON")
      ->required();
  app.add_option("--device", settings.device,
                 "sim; or cuda and cuda:NUMBER: the kernel on a GPU, to compare (sim)");
  app.add_option("--arch", settings.source.arch, "of CUDA C++: compile for it (sm_80)");
  app.add_option("-D,--define-macro", settings.source.defines, "of CUDA C++: NAME or NAME=VALUE")
      ->allow_extra_args(false);
  app.add_option("-I,--include-path", settings.source.includes,
                 "of CUDA C++: a folder of headers; there are none otherwise")
      ->allow_extra_args(false);
  app.add_option("--save-ptx", settings.savePtx,
                 "write the PTX here, in which faults and --json count lines");
  app.add_flag("--json", settings.json, "print JSON");
  app.add_option("--threads", settings.options.threads, "host threads; 0: all");
  app.add_option("--seed", settings.options.seed, "other than 0: another order of blocks and warps")
      ->check(notNegative());
  app.add_option("--orders", settings.options.orders,
                 "run in that many orders; results that differ are a fault (1)")
      ->check(positive());
  app.add_flag("--relaxed", settings.relaxed,
               "leave out the checks that take time: races, missing waits, what was never written");
  app.add_flag("--strict", settings.options.unprovenFaults,
               "what may be right on hardware, and cannot be decided here, is a fault and no "
               "warning");
  app.add_flag("--profile", settings.profile, "print what each source line and array saw");
  app.add_option("--budget", settings.options.stepBudget,
                 "warp instructions of a block before it counts as hanging")
      ->check(positive());
  if (std::optional<int> code = parseOptions(app, argc, argv))
    return *code;

  sim::Fault fault;
  sim::Counters counters;
  sim::Profile profile;
  settings.options.strict = !settings.relaxed;
  std::vector<sim::Fault> warnings;
  runtime::Status status = run(settings, fault, counters, profile, warnings);
  for (const sim::Fault &warning : warnings)
    fmt::print(stderr, "llm-opt sim: warning: {}\n", warning.message());
  if (settings.json && !fault.kernel.empty())
    fmt::print("{}\n", ordered_json{{"fault", toJson(fault)}}.dump(2));
  if (!status.ok()) {
    fmt::print(stderr, "llm-opt sim: {}\n", status.message());
    return 1;
  }
  if (settings.device != "sim")
    return 0;
  ordered_json result = {{"counters", toJson(counters)}};
  for (const sim::Fault &warning : warnings)
    result["warnings"].push_back(toJson(warning));
  if (settings.profile)
    result["profile"] = profileJson(profile);
  if (settings.json) {
    fmt::print("{}\n", result.dump(2));
    return 0;
  }
  printTable(result["counters"]);
  if (settings.profile)
    fmt::print("\n{}", profileText(profile));
  return 0;
}

} // namespace llmopt::cli

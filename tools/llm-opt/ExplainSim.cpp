// See ExplainSim.h.
#include "tools/llm-opt/ExplainSim.h"
#include "codegen/compile/ProgramFacts.h"
#include "runtime/device/sim/SimDevice.h"
#include "runtime/target/CudaTarget.h"
#include "tools/llm-opt/DumpJson.h"
#include "tools/llm-opt/Prepare.h"
#include "tools/llm-opt/SimProfile.h"
#include "tools/llm-opt/Tables.h"
#include "tools/llm-opt/Traffic.h"
#include "tools/llm-opt/Work.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace llmopt::cli {
namespace {

using nlohmann::ordered_json;
using Counters = std::map<std::string, sim::Counters>;

/// Times that each part of a chip would take by itself, in seconds; the longest is the
/// estimate. docs/simulator.md says what it leaves out.
struct Roofline {
  double memory, tensor, issue, shared;

  double time() const { return std::max({memory, tensor, issue, shared}); }
  std::string_view limit() const {
    if (time() == memory)
      return "memory";
    if (time() == tensor)
      return "tensor cores";
    return time() == issue ? "instructions" : "shared memory";
  }
};

Roofline rooflineOf(const runtime::CudaTarget &chip, const sim::Counters &counters,
                    const sim::Profile &profile) {
  constexpr double kIssuedAtOnce = 4;        // warps of a multiprocessor
  double lanes = chip.arch == 80 ? 64 : 128; // f32 units of a multiprocessor
  double clock = chip.plainRate / (2 * lanes * chip.sms);
  double bytes = 0;
  for (const sim::BufferProfile &buffer : profile.buffers)
    bytes += double(buffer.uniqueLoadBytes + buffer.uniqueStoreBytes);
  return {bytes / chip.bandwidth, 2 * double(counters.mmaMultiplyAdds) / chip.tensorRate,
          double(counters.warpInstructions) / (kIssuedAtOnce * chip.sms * clock),
          double(counters.sharedWavefronts) / (chip.sms * clock)};
}

ordered_json kernelJson(const std::string &entry, const sim::Counters &counters,
                        const sim::Profile &profile, const runtime::CudaTarget &chip) {
  Roofline roofline = rooflineOf(chip, counters, profile);
  auto share = [&](sim::InstClass c) {
    return double(counters.warpByClass[size_t(c)]) /
           std::max(1.0, double(counters.warpInstructions));
  };
  ordered_json classes = ordered_json::object();
  for (size_t i = 0; i < sim::kInstClasses; ++i)
    if (counters.warpByClass[i])
      classes[std::string(toString(sim::InstClass(i)))] = counters.warpByClass[i];
  ordered_json json = {{"entry", entry},
                       {"warp_instructions", counters.warpInstructions},
                       {"lane_instructions", counters.laneInstructions},
                       {"warp_instructions_by_class", classes},
                       {"mma_share", share(sim::InstClass::Matrix)},
                       {"global_load_bytes", counters.globalLoadBytes},
                       {"global_store_bytes", counters.globalStoreBytes},
                       {"global_sectors", counters.globalSectors},
                       {"shared_wavefronts", counters.sharedWavefronts},
                       {"shared_wavefronts_ideal", counters.sharedIdeal},
                       {"barriers", counters.barriers},
                       {"divergent_branches", counters.divergentBranches},
                       {"estimate_us",
                        {{"memory", roofline.memory * 1e6},
                         {"tensor_cores", roofline.tensor * 1e6},
                         {"instructions", roofline.issue * 1e6},
                         {"shared_memory", roofline.shared * 1e6},
                         {"time", roofline.time() * 1e6},
                         {"limit", roofline.limit()}}}};
  json.update(profileJson(profile));
  return json;
}

/// Names of the figures in JSON and in text; where `explain` on the CPU has the same, its names.
constexpr std::pair<const char *, const char *> kFigures[] = {
    {"kv_bytes", "K and V bytes"},
    {"kv_bytes_unique", "K and V bytes, each sector once"},
    {"qo_bytes", "Q, O, LSE and partial bytes"},
    {"other_bytes", "bytes of tables, plan and masks"},
    {"table_bytes_unique", "the same read, each sector once"},
    {"flops", "floating operations of mma"},
    {"shared_wavefronts", "shared wavefronts"},
};

void print(const ordered_json &facts, const Profiles &profiles) {
  fmt::print("spec @{} on {}: {}\n", facts["spec"].get<std::string>(),
             facts["device"].get<std::string>(), facts["shape"].get<std::string>());
  fmt::print("  {:<34}{:>15}{:>15}{:>15}\n", "", "counted", "predicted", "at least");
  for (const auto &[name, label] : kFigures) {
    const auto &row = facts["figures"][name];
    auto cell = [&](const char *column) {
      return row.contains(column) ? fmt::format("{:.0f}", row[column].get<double>())
                                  : std::string("-");
    };
    fmt::print("  {:<34}{:>15}{:>15}{:>15}\n", label, cell("counted"), cell("predicted"),
               cell("least"));
  }
  fmt::print("\n  {:<34}{:>15}{:>15}{:>15}\n", "bytes loaded of", "asked", "sectors once",
             "at least");
  for (const auto &[name, table] : facts["tables"].items())
    fmt::print("  {:<34}{:>15.0f}{:>15.0f}{:>15}\n", name, table["asked"].get<double>(),
               table["unique"].get<double>(),
               table.contains("least") ? fmt::format("{:.0f}", table["least"].get<double>()) : "-");
  for (const auto &kernel : facts["kernels"]) {
    const auto &estimate = kernel["estimate_us"];
    fmt::print("\nkernel {}: {} warp instructions, {:.1f} % mma; {} wavefronts ({} ideal); {} "
               "sectors; {} barriers; {} divergent branches\n",
               kernel["entry"].get<std::string>(), kernel["warp_instructions"].dump(),
               100 * kernel["mma_share"].get<double>(), kernel["shared_wavefronts"].dump(),
               kernel["shared_wavefronts_ideal"].dump(), kernel["global_sectors"].dump(),
               kernel["barriers"].dump(), kernel["divergent_branches"].dump());
    fmt::print("estimate {:.2f} us, limited by {} (memory {:.2f}, tensor cores {:.2f}, "
               "instructions {:.2f}, shared memory {:.2f})\n",
               estimate["time"].get<double>(), estimate["limit"].get<std::string>(),
               estimate["memory"].get<double>(), estimate["tensor_cores"].get<double>(),
               estimate["instructions"].get<double>(), estimate["shared_memory"].get<double>());
    for (const auto &[name, count] : kernel["warp_instructions_by_class"].items())
      fmt::print("  {:<14}{:>14}\n", name, count.dump());
    fmt::print("{}", profileText(profiles.at(kernel["entry"].get<std::string>()), 12));
  }
}

} // namespace

llvm::Error explainSimulated(mlir::func::FuncOp function, const std::string &device,
                             const harness::Shape &wanted, bool json) {
  llvm::Expected<Place> place = openPlace(device, /*cached=*/true);
  if (!place)
    return place.takeError();
  auto simulator = std::dynamic_pointer_cast<runtime::SimDevice>(place->device);
  if (!simulator)
    return llvm::createStringError(
        fmt::format("--device is '{}'; sim and sim:ARCH can be explained", device));
  llvm::Expected<Prepared> prepared = prepare(function, *place);
  if (!prepared)
    return prepared.takeError();
  llvm::Expected<PreparedCall> ready = prepareCall(prepared->spec, wanted);
  if (!ready)
    return ready.takeError();
  simulator->startProfiling();
  simulator->takeCounters();
  RunFigures figures;
  if (llvm::Error error = prepared->runner->run(ready->call, &figures))
    return error;
  Counters counters = simulator->takeCounters();
  Profiles profiles = simulator->takeProfiles();
  runtime::StatusOr<runtime::CudaTarget> chip = runtime::cudaTargetOf(simulator->facts().arch);
  if (!chip)
    return llvm::createStringError(chip.status().message());

  const bundle::Program &program = prepared->runner->program();
  Traffic traffic = trafficOf(program, profiles);
  sim::Counters all;
  for (const auto &[entry, one] : counters)
    all += one;
  ordered_json rows = ordered_json::object();
  bool attends = program.facts.kvHeads > 0;
  Work work = attends ? workOf(program, ready->shape, ready->call) : Work();
  Prediction prediction = predict(program, figures.plan, ready->call);
  rows["kv_bytes"] = {
      {"counted", traffic.keys}, {"predicted", prediction.keyBytes}, {"least", work.keyBytes}};
  rows["kv_bytes_unique"] = {{"counted", traffic.uniqueKeys}, {"least", work.keyBytes}};
  rows["qo_bytes"] = {{"counted", traffic.queries},
                      {"predicted", prediction.queryBytes},
                      {"least", work.queryBytes}};
  rows["other_bytes"] = {{"counted", traffic.others}};
  std::map<std::string, double> leastTables =
      leastOfTables(program, figures.plan, ready->shape, ready->call);
  double least = 0;
  bool allKnown = true;
  ordered_json tables = ordered_json::object();
  for (const auto &[name, table] : traffic.tables) {
    tables[name] = {{"asked", table.asked}, {"unique", table.unique}};
    std::optional<double> known = leastOf(leastTables, name);
    allKnown &= known.has_value();
    if (!known)
      continue;
    tables[name]["least"] = *known;
    least += *known;
  }
  rows["table_bytes_unique"] = {{"counted", traffic.uniqueTables()}};
  if (allKnown)
    rows["table_bytes_unique"]["least"] = least;
  rows["flops"] = {{"counted", 2 * double(all.mmaMultiplyAdds)}, {"least", work.flops}};
  rows["shared_wavefronts"] = {{"counted", double(all.sharedWavefronts)},
                               {"least", double(all.sharedIdeal)}};
  ordered_json kernels = ordered_json::array();
  for (const auto &[entry, one] : counters)
    kernels.push_back(kernelJson(entry, one, profiles[entry], *chip));
  ordered_json facts = {
      {"spec", program.name},
      {"device", device},
      {"shape", fmt::format("{} sequences, {} queries, {} keys", ready->shape.queryLengths.size(),
                            ready->shape.queryLengths[0], ready->shape.keyLengths[0])},
      {"figures", rows},
      {"tables", tables},
      {"kernels", kernels}};
  if (json)
    fmt::print("{}\n", dumpJson(facts));
  else
    print(facts, profiles);
  return llvm::Error::success();
}

} // namespace llmopt::cli

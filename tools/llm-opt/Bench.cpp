// llm-opt bench: how long a spec's kernels take on a device, beside what they must move and
// compute, and beside the rate at which the device copies its own memory, measured in the same
// run.
#include "tools/harness/Check.h"
#include "tools/llm-opt/Command.h"
#include "tools/llm-opt/CopyRate.h"
#include "tools/llm-opt/DumpJson.h"
#include "tools/llm-opt/Options.h"
#include "tools/llm-opt/Place.h"
#include "tools/llm-opt/Prepare.h"
#include "tools/llm-opt/SaveCall.h"
#include "tools/llm-opt/ShapeOption.h"
#include "tools/llm-opt/SpecFile.h"
#include "tools/llm-opt/StagedCall.h"
#include "tools/llm-opt/Work.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace llmopt::cli {
namespace {

struct Options {
  std::vector<std::string> specs, shapes;
  std::string device = "auto", function, save;
  unsigned repeats = 20;
  uint64_t seed = 1;
  bool direct = false, graph = false, check = false, json = false;
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

nlohmann::ordered_json rowOf(const std::string &name, const std::string &shape, bool graph,
                             const Work &work, const std::vector<double> &seconds, double copy) {
  double middle = std::max(median(seconds), 1e-12), bytes = work.keyBytes + work.queryBytes;
  return {{"spec", name},
          {"shape", shape},
          {"graph", graph},
          {"repeats", seconds.size()},
          {"ms", middle * 1e3},
          {"best_ms", *std::ranges::min_element(seconds) * 1e3},
          {"bytes", bytes},
          {"flops", work.flops},
          {"gb_per_s", bytes / middle * 1e-9},
          {"tflop_per_s", work.flops / middle * 1e-12},
          {"copy_gb_per_s", copy * 1e-9},
          {"share_of_copy", bytes / middle / copy}};
}

void print(const nlohmann::ordered_json &row, bool json) {
  if (json) {
    fmt::print("{}\n", dumpJson(row));
  } else {
    fmt::print("  {:<40}{:>11.4f} ms{:>10.1f} GB/s{:>10.2f} TFLOP/s{:>6.0f} % of a copy{}{}\n",
               row["shape"].get<std::string>(), row["ms"].get<double>(),
               row["gb_per_s"].get<double>(), row["tflop_per_s"].get<double>(),
               row["share_of_copy"].get<double>() * 100, row["graph"].get<bool>() ? ", graph" : "",
               row.contains("passed") ? row["passed"].get<bool>() ? ", right" : ", WRONG" : "");
  }
  std::fflush(stdout);
}

/// Times one shape in one way; false if it was checked and is wrong.
llvm::Expected<bool> benchLaunch(const Prepared &prepared, PreparedCall &ready,
                                 const std::string &name, const std::string &shapeText,
                                 StagedCall::Launch launch, const Options &options, double copy) {
  llvm::Expected<std::unique_ptr<StagedCall>> staged =
      StagedCall::make(*prepared.runner, ready.call, launch);
  if (!staged)
    return staged.takeError();
  llvm::Expected<std::vector<double>> seconds = (*staged)->time(options.repeats);
  if (!seconds)
    return seconds.takeError();
  nlohmann::ordered_json row =
      rowOf(name, shapeText, launch == StagedCall::Launch::Captured,
            workOf(prepared.runner->program(), ready.shape, ready.call), *seconds, copy);
  row["plan_ms"] = (*staged)->bindSeconds() * 1e3;
  bool passed = true;
  if (options.check) {
    if (llvm::Error error = (*staged)->run())
      return error;
    llvm::Expected<harness::Report> report =
        harness::check(prepared.spec, ready.call, options.seed);
    if (!report)
      return report.takeError();
    row["passed"] = passed = report->passed;
    row["rows_checked"] = report->rowsChecked;
    row["worst"] = report->worst;
    if (!passed)
      row["failure"] = report->failure;
  }
  if (!options.save.empty())
    if (llvm::Error error = saveCall(options.save, ready.call, **staged))
      return error;
  print(row, options.json);
  return passed;
}

/// Times one shape; false if it was checked and is wrong.
llvm::Expected<bool> benchShape(const Prepared &prepared, const std::string &name,
                                const std::string &shapeText, const Options &options, double copy) {
  llvm::Expected<harness::Shape> wanted = parseShape(shapeText, options.seed);
  if (!wanted)
    return wanted.takeError();
  wanted->contents = options.check; // the oracle reads them on the host
  llvm::Expected<PreparedCall> ready = prepareCall(prepared.spec, *wanted);
  if (!ready)
    return ready.takeError();
  bool passed = true;
  using Launch = StagedCall::Launch;
  for (Launch launch : {Launch::Direct, Launch::Captured}) {
    if (launch == Launch::Captured ? !options.graph : options.graph && !options.direct)
      continue;
    llvm::Expected<bool> one =
        benchLaunch(prepared, *ready, name, shapeText, launch, options, copy);
    if (!one)
      return one;
    passed &= *one;
  }
  return passed;
}

llvm::Expected<bool> benchSpec(mlir::func::FuncOp function, const std::string &path,
                               const Options &options, const Place &place, double copy) {
  llvm::Expected<Prepared> prepared = prepare(function, place);
  if (!prepared)
    return prepared.takeError();
  std::string name = fmt::format("{} @{}", path, function.getName().str());
  if (!options.json)
    fmt::print("{} ({})\n", name, prepared->runner->compileText());
  bool passed = true;
  for (const std::string &shape : options.shapes) {
    llvm::Expected<bool> one = benchShape(*prepared, name, shape, options, copy);
    if (!one)
      return llvm::createStringError(
          fmt::format("{}, {}: {}", name, shape, llvm::toString(one.takeError())));
    passed &= *one;
  }
  return passed;
}

int run(const Options &options) {
  // Before anything is measured: all files are there and hold specs.
  size_t functions = 0;
  std::vector<std::unique_ptr<SpecFile>> files;
  for (const std::string &path : options.specs) {
    files.push_back(SpecFile::open(path));
    if (!files.back() || files.back()->specs(options.function).empty())
      return 1;
    functions += files.back()->specs(options.function).size();
  }
  if (!options.save.empty() && (functions > 1 || options.shapes.size() > 1))
    return fail("bench", fmt::format("--save holds one call; {} specs and {} shapes are given",
                                     functions, options.shapes.size()));
  llvm::Expected<Place> place = openPlace(options.device, /*cached=*/true);
  if (!place)
    return fail("bench", place.takeError());
  const runtime::DeviceFacts &facts = place->device->facts();
  llvm::Expected<double> copy = copyRate(*place->device);
  if (!copy)
    return fail("bench", copy.takeError());
  if (!options.json)
    fmt::print(
        "{} ({}), copies {:.1f} GB/s, read and written{}\n", facts.name, facts.arch, *copy * 1e-9,
        facts.kind == runtime::DeviceKind::Sim ? "; a simulator: its times say nothing about a GPU"
                                               : "");
  bool passed = true;
  for (size_t i = 0; i < files.size(); ++i)
    for (mlir::func::FuncOp spec : files[i]->specs(options.function)) {
      llvm::Expected<bool> one = benchSpec(spec, options.specs[i], options, *place, *copy);
      if (!one)
        return fail("bench", one.takeError());
      passed &= *one;
    }
  return passed ? 0 : 1;
}

} // namespace

int benchCommand(int argc, char **argv) {
  CLI::App app{"Measured time of a spec's kernels, without copies and planning", "llm-opt bench"};
  Options options;
  app.add_option("SPEC", options.specs, "attn IR files, or - for standard input")->required();
  app.add_option("--device", options.device, kDeviceHelp);
  app.add_option("--func", options.function, "the spec function; default: all of a file");
  app.add_option("--shape", options.shapes,
                 "as verify takes it, and COUNTxLENGTH for equal lengths: q=32x1,kv=32x4096; "
                 "may be given more than once")
      ->required()
      ->allow_extra_args(false);
  app.add_option("--repeats", options.repeats, "runs that are timed; the median counts (20)")
      ->check(positive(kMostCases));
  app.add_option("--seed", options.seed, "of the random data")->check(notNegative());
  app.add_flag("--graph", options.graph, "replay a captured graph");
  app.add_flag("--direct", options.direct, "with --graph: launches without one, too");
  app.add_option("--save", options.save,
                 "folder for the arrays and results, for others to run on; one spec, one shape");
  app.add_flag("--check", options.check, "hold the result against the oracle as well");
  app.add_flag("--json", options.json, "one JSON object a shape");
  app.footer("GB/s: each visible row of K and V once, Q and O once. TFLOP/s: products of visible\n"
             "pairs. A copy counts what it reads and writes. Data stays in caches between runs\n"
             "where it fits. Without --check, K, V and Q are a block of random numbers over and\n"
             "over, made on the device.");
  if (std::optional<int> code = parseOptions(app, argc, argv))
    return *code;
  return run(options);
}

} // namespace llmopt::cli

// llm-opt explain: what was chosen for a spec, and what one run of it does, beside what it
// must do at least.
#include "passes/Passes.h"
#include "tools/llm-opt/Command.h"
#include "tools/llm-opt/Options.h"
#include "tools/llm-opt/Runner.h"
#include "tools/llm-opt/SpecFile.h"
#include "tools/llm-opt/Work.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace llmopt::cli {
namespace {

struct Options {
  std::string spec, target = "cpu", function;
  int64_t queries = 256, keys = 1024, sequences = 2;
  bool json = false;
};

nlohmann::ordered_json describe(const bundle::Program &program) {
  nlohmann::ordered_json kernels = nlohmann::ordered_json::array();
  for (const bundle::Kernel &kernel : program.kernels)
    kernels.push_back({{"entry", kernel.entry},
                       {"tile_rows", kernel.tileRows},
                       {"tile_keys", kernel.tileKeys},
                       {"scratch_bytes", kernel.scratchBytes}});
  nlohmann::ordered_json numbers = nlohmann::ordered_json::object();
  for (const bundle::Scalar &scalar : program.scalars)
    numbers[scalar.name] = scalar.type == bundle::ScalarType::F32
                               ? nlohmann::ordered_json(scalar.floatDefault)
                               : nlohmann::ordered_json(scalar.intDefault);
  return {{"spec", program.name},
          {"key", program.key},
          {"kernels", kernels},
          {"run_time_numbers", numbers},
          {"object_bytes", program.images.empty() ? 0 : program.images[0].bytes.size()}};
}

void print(const nlohmann::ordered_json &facts, const std::string &reason) {
  fmt::print("spec @{}  key {}\n", facts["spec"].get<std::string>(),
             facts["key"].get<std::string>().substr(0, 16));
  if (!reason.empty())
    fmt::print("schedule: {}\n", reason);
  for (const auto &kernel : facts["kernels"])
    fmt::print("  kernel {:<28} rows {:>4}  keys {:>4}  scratch {} bytes\n",
               kernel["entry"].get<std::string>(), kernel["tile_rows"].dump(),
               kernel["tile_keys"].dump(), kernel["scratch_bytes"].dump());
  fmt::print("run-time numbers: {}\n", facts["run_time_numbers"].dump());
  if (!facts.contains("run"))
    return;
  const auto &run = facts["run"];
  fmt::print("one run of {}:\n", run["shape"].get<std::string>());
  for (const auto &[name, value] : run.items())
    if (name != "shape")
      fmt::print("  {:<32} {}\n", name, value.dump());
}

/// Runs the spec once and adds what was counted beside what must be.
llvm::Error addRun(const Options &options, mlir::func::FuncOp function, Runner &runner,
                   nlohmann::ordered_json &facts) {
  llvm::Expected<harness::Spec> spec = harness::specOf(function);
  if (!spec)
    return spec.takeError();
  harness::Shape wanted;
  wanted.queryLengths.assign(options.sequences, options.queries);
  wanted.keyLengths.assign(options.sequences, options.keys);
  llvm::Expected<harness::Shape> shape = harness::fit(*spec, wanted);
  if (!shape)
    return shape.takeError();
  llvm::Expected<harness::Call> call = harness::generate(*spec, *shape);
  if (!call)
    return call.takeError();
  RunFigures figures;
  if (llvm::Error error = runner.run(*call, &figures))
    return error;
  Work work = workOf(runner.program(), *shape, *call);
  double tileElements = 0;
  for (const bundle::Kernel &kernel : runner.program().kernels)
    tileElements = std::max(tileElements, double(kernel.tileRows) * kernel.tileKeys);
  facts["run"] = {{"shape", fmt::format("{} sequences, {} queries, {} keys", options.sequences,
                                        options.queries, options.keys)},
                  {"tiles visited", figures.tilesVisited},
                  {"  of them with the mask", figures.tilesPredicated},
                  {"  without", figures.tilesVisited - figures.tilesPredicated},
                  {"visible pairs", work.pairs},
                  {"tiles they fill at least", std::ceil(work.pairs / tileElements)},
                  {"operations at least, flop", work.flops},
                  {"K and V bytes at least", work.keyBytes},
                  {"Q and O bytes at least", work.queryBytes},
                  {"run ms", figures.run * 1e3}};
  return llvm::Error::success();
}

llvm::Error explain(const Options &options, mlir::func::FuncOp function) {
  llvm::Expected<CompileOptions> host = hostOptions();
  if (!host)
    return host.takeError();
  llvm::Expected<std::unique_ptr<Runner>> runner = Runner::compile(function, *host);
  if (!runner)
    return runner.takeError();
  std::string reason;
  if (mlir::FailureOr<Signature> signature = Signature::of(function);
      mlir::succeeded(signature) && signature->attention)
    reason = chooseCpuSchedule(scheduleRequest(*signature), host->numbers).reason;
  nlohmann::ordered_json facts = describe((*runner)->program());
  facts["compile_ms"] = (*runner)->compileSeconds() * 1e3;
  facts["schedule"] = reason;
  if (!reason.empty())
    if (llvm::Error error = addRun(options, function, **runner, facts))
      return error;
  if (options.json)
    fmt::print("{}\n", facts.dump());
  else
    print(facts, reason);
  return llvm::Error::success();
}

} // namespace

int explainCommand(int argc, char **argv) {
  CLI::App app{"The schedule of a spec and what one run of it does", "llm-opt explain"};
  Options options;
  app.add_option("SPEC", options.spec, "attn IR file, or - for standard input")->required();
  app.add_option("--target", options.target, "cpu");
  app.add_option("--func", options.function, "the spec function; default: all of the file");
  app.add_option("--queries", options.queries, "queries of each sequence of the run (256)")
      ->check(positive());
  app.add_option("--keys", options.keys, "keys of each sequence (1024)")->check(positive());
  app.add_option("--sequences", options.sequences, "sequences (2)")->check(positive());
  app.add_flag("--json", options.json, "print JSON");
  if (std::optional<int> code = parseOptions(app, argc, argv))
    return *code;
  if (options.target != "cpu")
    return fail("explain",
                fmt::format("target '{}' is not available in this build; cpu is", options.target));
  std::unique_ptr<SpecFile> file = SpecFile::open(options.spec);
  std::vector<mlir::func::FuncOp> specs =
      file ? file->specs(options.function) : std::vector<mlir::func::FuncOp>();
  if (specs.empty())
    return 1;
  for (mlir::func::FuncOp spec : specs)
    if (llvm::Error error = explain(options, spec))
      return fail("explain", std::move(error));
  return 0;
}

} // namespace llmopt::cli

// llm-opt explain: what was chosen for a spec, and what one run of it on the CPU does, beside
// what it must do at least.
#include "codegen/compile/ProgramFacts.h"
#include "passes/Passes.h"
#include "tools/llm-opt/Command.h"
#include "tools/llm-opt/DumpJson.h"
#include "tools/llm-opt/ExplainCuda.h"
#include "tools/llm-opt/ExplainSim.h"
#include "tools/llm-opt/Options.h"
#include "tools/llm-opt/Prepare.h"
#include "tools/llm-opt/SpecFile.h"
#include "tools/llm-opt/Work.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>

namespace llmopt::cli {
namespace {

struct Options {
  std::string spec, target = "cpu", device, function;
  int64_t queries = 256, keys = 1024, sequences = 2;
  bool json = false;
};

nlohmann::ordered_json describe(const bundle::Program &program) {
  nlohmann::ordered_json kernels = nlohmann::ordered_json::array();
  for (const bundle::Kernel &kernel : program.kernels)
    kernels.push_back({{"entry", kernel.entry},
                       {"tile_rows", kernel.tileRows},
                       {"tile_keys", kernel.tileKeys},
                       {"item_heads", kernel.itemHeads},
                       {"scratch_bytes", kernel.scratchBytes}});
  nlohmann::ordered_json numbers = nlohmann::ordered_json::object();
  for (const bundle::Scalar &scalar : program.scalars)
    numbers[scalar.name] = scalar.required ? nlohmann::ordered_json() // null: each call gives it
                           : scalar.type == bundle::ScalarType::I64
                               ? nlohmann::ordered_json(scalar.intDefault)
                               : nlohmann::ordered_json(scalar.floatDefault);
  return {{"spec", program.name},
          {"key", program.key},
          {"kernels", kernels},
          {"run_time_numbers", numbers},
          {"object_bytes", program.images.empty() ? 0 : program.images[0].bytes.size()}};
}

/// Names of the figures in JSON and in text. Kernels count tiles; what follows from whole
/// tiles counts as counted, and so do the rows of Q in the items that were run, the partials
/// that went out and in, and the elements of O that were written.
constexpr std::pair<const char *, const char *> kFigures[] = {
    {"tiles_visited", "tiles visited"},
    {"tiles_full", "  full: no mask"},
    {"tiles_partial", "  partial: with mask"},
    {"tiles_empty", "tiles empty: skipped"},
    {"flops", "operations, of whole tiles"},
    {"kv_bytes", "K and V bytes, of whole tiles"},
    {"kv_bytes_of_rows", "  of rows that may be seen"},
    {"qo_bytes", "Q, O and partial bytes"},
};

void print(const nlohmann::ordered_json &facts, const std::string &reason) {
  fmt::print("spec @{}  key {}\n", facts["spec"].get<std::string>(),
             facts["key"].get<std::string>().substr(0, 16));
  if (!reason.empty())
    fmt::print("schedule: {}\n", reason);
  for (const auto &kernel : facts["kernels"])
    fmt::print("  kernel {:<28} rows {:>4}  keys {:>4}  heads {:>2}  scratch {} bytes\n",
               kernel["entry"].get<std::string>(), kernel["tile_rows"].dump(),
               kernel["tile_keys"].dump(), kernel["item_heads"].dump(),
               kernel["scratch_bytes"].dump());
  fmt::print("run-time numbers: {}\n", facts["run_time_numbers"].dump());
  if (!facts.contains("run"))
    return;
  const auto &run = facts["run"];
  fmt::print("one run of {}, {:.3f} ms:\n  {:<30}{:>15}{:>15}{:>15}\n",
             run["shape"].get<std::string>(), run["ms"].get<double>(), "", "counted", "predicted",
             "at least");
  for (const auto &[name, label] : kFigures) {
    const auto &row = run[name];
    auto cell = [&](const char *column) {
      return row.contains(column) ? fmt::format("{:.0f}", row[column].get<double>())
                                  : std::string("-");
    };
    fmt::print("  {:<30}{:>15}{:>15}{:>15}\n", label, cell("counted"), cell("predicted"),
               cell("least"));
  }
}

/// Elements of Q, K, V, O and biases of one sequence.
double elementsOf(const bundle::Program &program, const harness::Shape &shape) {
  const bundle::AttentionFacts &facts = program.facts;
  double queries = double(shape.queryLengths[0]), keys = double(shape.keyLengths[0]);
  double page = std::max<uint32_t>(1, facts.pageSize);
  double slots = std::ceil(keys / page) * page, width = facts.dQk + facts.dV;
  double elements = width * (queries * facts.queryHeads + slots * facts.kvHeads);
  for (const bundle::Buffer &buffer : program.buffers)
    if (buffer.role == bundle::BufferRole::Bias || buffer.role == bundle::BufferRole::DenseMask)
      elements += (buffer.extents[1] == 1 ? 1.0 : facts.queryHeads) *
                  (buffer.extents[2] == 1 ? 1 : queries) * (buffer.extents[3] == 1 ? 1 : keys);
  return elements;
}

/// As many of the wanted sequences as random data can be made for in a few seconds. They
/// are alike, so that figures of all follow by multiplication.
harness::Shape shapeToRun(const Options &options, const bundle::Program &program) {
  constexpr double kMostElements = 160e6;
  harness::Shape shape;
  shape.queryLengths = {options.queries};
  shape.keyLengths = {options.keys};
  double fitting = std::floor(kMostElements / std::max(1.0, elementsOf(program, shape)));
  auto count = int64_t(std::clamp(fitting, 1.0, double(options.sequences)));
  shape.queryLengths.assign(count, options.queries);
  shape.keyLengths.assign(count, options.keys);
  return shape;
}

nlohmann::ordered_json row(std::optional<double> counted, double predicted,
                           std::optional<double> least = std::nullopt) {
  nlohmann::ordered_json figure;
  if (counted)
    figure["counted"] = *counted;
  figure["predicted"] = predicted;
  if (least)
    figure["least"] = *least;
  return figure;
}

/// Q of every item, partials and their LSE out and in, and O.
double queryBytesOf(const bundle::Program &program, const runtime::Plan &plan,
                    const harness::Call &call) {
  double bytes = reference::sizeOf(call.find("q")->type), sum = 0;
  for (const runtime::AttendPlan &attend : plan.attends)
    for (const bundle::WorkItem &item : attend.items)
      sum += double(item.rowCount) * program.facts.dQk * bytes;
  sum += double(plan.partialRows) * (program.facts.dV + 1) * 2 * sizeof(float);
  // What was never written still is the NaN of all ones.
  std::vector<uint8_t> output = call.find("o")->elementBytes();
  auto size = size_t(bytes);
  for (size_t at = 0; at < output.size(); at += size)
    if (std::any_of(&output[at], &output[at] + size, [](uint8_t byte) { return byte != 0xFF; }))
      sum += bytes;
  return sum;
}

/// What the run counted, what its plan let expect, and what the spec asks for at least.
nlohmann::ordered_json figuresOf(const bundle::Program &program, const PreparedCall &ready,
                                 const RunFigures &figures) {
  const bundle::AttentionFacts &facts = program.facts;
  Prediction prediction = predict(program, figures.plan, ready.call);
  Work work = workOf(program, ready.shape, ready.call);
  double width = facts.dQk + facts.dV;
  TileClasses counted, predicted;
  double countedFlops = 0, predictedFlops = 0, countedKeys = 0, predictedKeys = 0, largest = 1;
  for (size_t i = 0; i < figures.kernels.size(); ++i) {
    const bundle::Kernel &kernel = program.kernels[figures.kernels[i].kernel];
    const TileClasses &tiles = prediction.tiles[i];
    auto visited = double(figures.kernels[i].visited);
    auto partial = double(figures.kernels[i].predicated);
    double area = double(kernel.tileRows) * kernel.tileKeys;
    if (tiles.visited() + tiles.empty > 0) // kernels that have work in this run
      largest = std::max(largest, area);
    counted.empty += tiles.empty + tiles.visited() - visited;
    counted.full += visited - partial;
    counted.partial += partial;
    predicted.empty += tiles.empty;
    predicted.full += tiles.full;
    predicted.partial += tiles.partial;
    countedFlops += visited * area * 2 * width;
    predictedFlops += tiles.visited() * area * 2 * width;
    countedKeys += visited * kernel.tileKeys;
    predictedKeys += tiles.visited() * kernel.tileKeys;
  }
  double bytes = reference::sizeOf(ready.call.find("q")->type);
  double least = std::ceil(work.pairs / largest);
  return {
      {"tiles_visited", row(counted.visited(), predicted.visited(), least)},
      {"tiles_full", row(counted.full, predicted.full)},
      {"tiles_partial", row(counted.partial, predicted.partial)},
      {"tiles_empty", row(counted.empty, predicted.empty)},
      {"flops", row(countedFlops, predictedFlops, work.flops)},
      {"kv_bytes", row(countedKeys * width * bytes, predictedKeys * width * bytes, work.keyBytes)},
      {"kv_bytes_of_rows", row(std::nullopt, prediction.keyBytes, work.keyBytes)},
      {"qo_bytes", row(queryBytesOf(program, figures.plan, ready.call), prediction.queryBytes,
                       work.queryBytes)}};
}

/// Runs the spec once and adds what was counted beside what must be.
llvm::Error addRun(const Options &options, Prepared &prepared, nlohmann::ordered_json &facts) {
  const bundle::Program &program = prepared.runner->program();
  llvm::Expected<PreparedCall> ready = prepareCall(prepared.spec, shapeToRun(options, program));
  if (!ready)
    return ready.takeError();
  RunFigures figures;
  if (llvm::Error error = prepared.runner->run(ready->call, &figures))
    return error;
  auto sequences = int64_t(ready->shape.queryLengths.size());
  std::string shape = fmt::format("{} sequences, {} queries, {} keys", sequences,
                                  ready->shape.queryLengths[0], ready->shape.keyLengths[0]);
  if (sequences < options.sequences)
    shape += fmt::format(" (of {} sequences, all alike)", options.sequences);
  facts["run"] = {{"shape", shape},
                  {"sequences", sequences},
                  {"sequences_wanted", options.sequences},
                  {"ms", figures.run * 1e3}};
  facts["run"].update(figuresOf(program, *ready, figures));
  return llvm::Error::success();
}

llvm::Error explainCuda(const Options &options, const CompileOptions &target,
                        mlir::func::FuncOp function) {
  llvm::Expected<nlohmann::ordered_json> facts = cudaFacts(function, target);
  if (!facts)
    return facts.takeError();
  if (options.json)
    fmt::print("{}\n", dumpJson(*facts));
  else
    printCudaFacts(*facts);
  return llvm::Error::success();
}

llvm::Error explain(const Options &options, const CompileOptions &host,
                    mlir::func::FuncOp function) {
  llvm::Expected<Prepared> prepared = prepare(function);
  if (!prepared)
    return prepared.takeError();
  nlohmann::ordered_json facts = describe(prepared->runner->program());
  facts["compile_ms"] = prepared->runner->compileSeconds() * 1e3;
  mlir::FailureOr<Signature> signature = Signature::of(function);
  std::string reason;
  if (mlir::succeeded(signature) && signature->attention) {
    reason = chooseCpuSchedule(scheduleRequest(*signature), host.numbers).reason;
    if (llvm::Error error = addRun(options, *prepared, facts))
      return error;
  }
  facts["schedule"] = reason;
  if (options.json)
    fmt::print("{}\n", dumpJson(facts));
  else
    print(facts, reason);
  return llvm::Error::success();
}

} // namespace

int explainCommand(int argc, char **argv) {
  CLI::App app{"The schedule of a spec, and what one run of it does or what its CUDA kernels need",
               "llm-opt explain"};
  constexpr uint64_t kMostLength = std::numeric_limits<int32_t>::max();
  Options options;
  app.add_option("SPEC", options.spec, "attn IR file, or - for standard input")->required();
  app.add_option("--target", options.target,
                 "cpu: tiles, bytes and operations of a run; or cuda:sm_80: registers, spills, "
                 "instructions of each kernel");
  app.add_option("--device", options.device,
                 "sim or sim:ARCH: what the simulator counts, by kernel and source line");
  app.add_option("--func", options.function, "the spec function; default: all of the file");
  app.add_option("--queries", options.queries, "queries of each sequence of the run (256)")
      ->check(positive(kMostLength));
  app.add_option("--keys", options.keys, "keys of each sequence (1024)")
      ->check(positive(kMostLength));
  app.add_option("--sequences", options.sequences, "sequences (2)")->check(positive());
  app.add_flag("--json", options.json, "print JSON");
  if (std::optional<int> code = parseOptions(app, argc, argv))
    return *code;
  llvm::Expected<CompileOptions> target = llmopt::optionsFor(options.target);
  if (!target)
    return fail("explain", target.takeError());
  for (const char *shape : {"--queries", "--keys", "--sequences", "--device"})
    if (!target->cudaArch.empty() && app.count(shape))
      return fail("explain", fmt::format("{} is for a run, and --target {} runs nothing", shape,
                                         options.target));
  std::unique_ptr<SpecFile> file = SpecFile::open(options.spec);
  std::vector<mlir::func::FuncOp> specs =
      file ? file->specs(options.function) : std::vector<mlir::func::FuncOp>();
  if (specs.empty())
    return 1;
  harness::Shape shape; // of a run on a device
  if (!options.device.empty()) {
    shape.queryLengths.assign(options.sequences, options.queries);
    shape.keyLengths.assign(options.sequences, options.keys);
  }
  for (mlir::func::FuncOp spec : specs)
    if (llvm::Error error = !target->cudaArch.empty() ? explainCuda(options, *target, spec)
                            : options.device.empty()
                                ? explain(options, *target, spec)
                                : explainSimulated(spec, options.device, shape, options.json))
      return fail("explain", std::move(error));
  return 0;
}

} // namespace llmopt::cli

// llm-opt demo: the main job on real models. Imports config.json files, compiles the
// prefill and decode attention of every layer kind, runs them on a ragged batch over a
// paged cache with shuffled pages, checks chosen rows against the oracle, and prints
// times beside the machine's limits measured in the same run.
#include "tools/bench/Roof.h"
#include "tools/harness/Cases.h"
#include "tools/import/Import.h"
#include "tools/llm-opt/Command.h"
#include "tools/llm-opt/CopyRate.h"
#include "tools/llm-opt/DumpJson.h"
#include "tools/llm-opt/Place.h"
#include "tools/llm-opt/Prepare.h"
#include "tools/llm-opt/SpecFile.h"
#include "tools/llm-opt/Work.h"

#include "runtime/base/File.h"
#include "runtime/device/cpu/ThreadPool.h"
#include "tools/llm-opt/Options.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <filesystem>

namespace llmopt::cli {
namespace {

/// 8 sequences from one key to 4096.
const std::vector<int64_t> kLengths = {1, 17, 128, 333, 1000, 2049, 3000, 4096};

constexpr uint64_t kMaxConfigBytes = 16 << 20;

struct Line {
  std::string kernel, shape;
  double compileMs = 0, runMs = 0;
  bool cached = false; ///< compiled by an earlier run
  double share = 0;    ///< of the limit named in `limit`
  std::string limit;   ///< "FMA", "bf16 dot", "read", "copy"; none: empty
  double flops = 0;    ///< each second
  harness::Report report;
};

struct Demo {
  Place place;
  bench::Roof roof;    ///< of the CPU, where the kernels run on it
  double copyRate = 0; ///< of a GPU, whose roof for products nobody measured
  std::vector<Line> lines;
  bool json = false;
};

void setShare(Line &line, const Demo &demo, const bundle::Program &program, const Work &work,
              bool decode) {
  double seconds = line.runMs / 1e3;
  line.flops = work.flops / seconds;
  if (demo.copyRate) {
    line.limit = decode ? "copy" : "";
    line.share = decode ? (work.keyBytes + work.queryBytes) / seconds / demo.copyRate : 0;
    return;
  }
  if (demo.roof.fmaFlops == 0)
    return;
  if (decode) {
    line.limit = "read";
    line.share = (work.keyBytes + work.queryBytes) / seconds / demo.roof.readBytes;
    return;
  }
  bool bf16 = false;
  for (const bundle::Buffer &buffer : program.buffers)
    bf16 |= buffer.role == bundle::BufferRole::Query && buffer.type == bundle::ElementType::BF16;
  bool dot = bf16 && demo.roof.bf16DotFlops > 0;
  line.limit = dot ? "bf16 dot" : "FMA";
  line.share = work.flops / seconds / (dot ? demo.roof.bf16DotFlops : demo.roof.fmaFlops);
}

llvm::Error runFunction(Demo &demo, const std::string &model, mlir::func::FuncOp function,
                        bool decode) {
  llvm::Expected<Prepared> prepared = prepare(function, demo.place);
  if (!prepared)
    return prepared.takeError();
  Runner &runner = *prepared->runner;
  harness::Shape wanted;
  wanted.keyLengths = kLengths;
  wanted.queryLengths = decode ? std::vector<int64_t>(kLengths.size(), 1) : kLengths;
  llvm::Expected<PreparedCall> ready = prepareCall(prepared->spec, wanted);
  if (!ready)
    return ready.takeError();
  RunFigures figures;
  if (llvm::Error error = runner.run(ready->call, &figures, decode ? 20 : 2))
    return error;
  const bundle::AttentionFacts &facts = runner.program().facts;
  Line line;
  line.kernel = fmt::format("{} {}", model, function.getName().str());
  line.shape = fmt::format("{}/{} heads, d {}, 8 sequences, keys 1..4096", facts.queryHeads,
                           facts.kvHeads, facts.dQk);
  line.compileMs = runner.compileSeconds() * 1e3;
  line.cached = runner.cached();
  line.runMs = figures.run * 1e3;
  setShare(line, demo, runner.program(), workOf(runner.program(), ready->shape, ready->call),
           decode);
  llvm::Expected<harness::Report> report = harness::check(prepared->spec, ready->call);
  if (!report)
    return report.takeError();
  line.report = *report;
  demo.lines.push_back(std::move(line));
  return llvm::Error::success();
}

llvm::Error runModel(Demo &demo, const std::string &path) {
  runtime::StatusOr<std::vector<uint8_t>> bytes = runtime::readFile(path, kMaxConfigBytes);
  if (!bytes)
    return llvm::createStringError(bytes.status().message());
  std::string text(bytes->begin(), bytes->end());
  std::string name = std::filesystem::path(path).stem().string();
  importer::StatusOr<importer::ImportResult> model = importer::importHuggingFace(text, path);
  if (!model)
    return llvm::createStringError(model.status().message());
  for (const std::string &note : model->notes)
    fmt::print(stderr, "{}: note: {}\n", path, note);
  std::unique_ptr<SpecFile> file = SpecFile::parse(model->ir, path);
  if (!file)
    return llvm::createStringError(fmt::format("{}: the imported IR does not parse", path));
  for (const importer::ImportedFunction &function : model->functions)
    for (mlir::func::FuncOp spec : file->specs(function.name))
      if (llvm::Error error = runFunction(demo, name, spec, function.phase == "decode"))
        return error;
  return llvm::Error::success();
}

void print(const Demo &demo) {
  if (demo.json) {
    for (const Line &line : demo.lines) {
      nlohmann::json row = {{"kernel", line.kernel},
                            {"shape", line.shape},
                            {"compile_ms", line.compileMs},
                            {"cached", line.cached},
                            {"run_ms", line.runMs},
                            {"tflop_per_s", line.flops * 1e-12},
                            {"error_over_tolerance", line.report.worst},
                            {"rows_checked", line.report.rowsChecked},
                            {"rows", line.report.rowsTotal},
                            {"passed", line.report.passed}};
      if (!line.limit.empty()) {
        row["share"] = line.share;
        row["limit"] = line.limit;
      }
      fmt::print("{}\n", dumpJson(row));
    }
    return;
  }
  if (demo.copyRate)
    fmt::print("{}: copies {:.1f} GB/s, read and written\n", demo.place.device->facts().name,
               demo.copyRate / 1e9);
  else if (demo.roof.fmaFlops == 0)
    fmt::print("{}: its limits are not measured\n", demo.place.device->facts().name);
  else
    fmt::print("{} threads, {}: FMA {:.0f} GFLOP/s, bf16 dot {:.0f} GFLOP/s, read {:.1f} GB/s\n",
               demo.roof.threads, demo.roof.isa, demo.roof.fmaFlops / 1e9,
               demo.roof.bf16DotFlops / 1e9, demo.roof.readBytes / 1e9);
  fmt::print("{:<26}{:<46}{:>11}{:>9}{:>17}{:>17}{:>15}\n", "kernel", "shape", "compile ms",
             "run ms", "of the roof", "error/tolerance", "rows checked");
  for (const Line &line : demo.lines)
    fmt::print("{:<26}{:<46}{:>11}{:>9.2f}{:>17}{:>17}{:>15}\n", line.kernel, line.shape,
               line.cached ? "cached" : fmt::format("{:.0f}", line.compileMs), line.runMs,
               line.limit.empty() ? fmt::format("{:.2f} TFLOP/s", line.flops * 1e-12)
                                  : fmt::format("{:.0f}% {}", line.share * 100, line.limit),
               line.report.passed ? fmt::format("{:.3f}", line.report.worst) : "FAILED",
               fmt::format("{}/{}", line.report.rowsChecked, line.report.rowsTotal));
}

} // namespace

int demoCommand(int argc, char **argv) {
  CLI::App app{"Real models' attention: import, compile, run, check, time", "llm-opt demo"};
  std::vector<std::string> models;
  std::string device = "auto";
  Demo demo;
  app.add_option("CONFIG", models, "Hugging Face config.json files")->required();
  app.add_option("--device", device, kDeviceHelp);
  app.add_flag("--json", demo.json, "one JSON object a kernel");
  if (std::optional<int> code = parseOptions(app, argc, argv))
    return *code;
  llvm::Expected<Place> place = openPlace(device, /*cached=*/true);
  if (!place)
    return fail("demo", place.takeError());
  demo.place = *place;
  if (!place->device || place->device->facts().kind == runtime::DeviceKind::Cpu) {
    demo.roof = bench::measureRoof(runtime::ThreadPool::defaultThreads());
  } else if (place->device->facts().kind == runtime::DeviceKind::Cuda) {
    llvm::Expected<double> copy = copyRate(*place->device);
    if (!copy)
      return fail("demo", copy.takeError());
    demo.copyRate = *copy;
  }
  for (const std::string &model : models)
    if (llvm::Error error = runModel(demo, model))
      return fail("demo", std::move(error));
  print(demo);
  for (const Line &line : demo.lines)
    if (!line.report.passed)
      return fail("demo", fmt::format("{}: {}", line.kernel, line.report.failure));
  return 0;
}

} // namespace llmopt::cli

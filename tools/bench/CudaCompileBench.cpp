// cuda-compile-bench: how long CUDA kernels take from spec to machine code, beside the marks
// that the project holds itself to. Needs NVRTC and no GPU. Prints a line a figure: time, what it
// is made of, and the mark. Times are the least of a few tries, since other work on the machine
// only adds.
#include "codegen/compile/CudaCompile.h"
#include "codegen/cuda/nvrtc/Nvrtc.h"
#include "runtime/base/File.h"
#include "runtime/cache/BundleStore.h"
#include "runtime/cache/KernelCache.h"
#include "tools/import/Import.h"
#include "tools/llm-opt/SpecFile.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>

namespace llmopt::cli {
namespace {

constexpr const char *kArchs[] = {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"};

// Marks in milliseconds.
constexpr double kKernel = 300, kNewerKernel = 400, kFirstExtra = 100, kDiskHit = 3, kModel = 2000;
constexpr double kThreadsGain = 1.5;

/// Decode of GQA 32/8 over a paged cache.
std::string specText(int64_t d, const std::string &name) {
  return fmt::format(
      "func.func @{1}(%q: tensor<?x32x{0}xbf16>, %kv: !attn.kv_cache<8x{0}xbf16, page = 16>,\n"
      "    %seq: !attn.sequences) -> tensor<?x32x{0}xbf16> {{\n"
      "  %o = attn.attention %q, %kv, %seq mask(causal) : tensor<?x32x{0}xbf16>,\n"
      "       !attn.kv_cache<8x{0}xbf16, page = 16>, !attn.sequences -> tensor<?x32x{0}xbf16>\n"
      "  return %o : tensor<?x32x{0}xbf16>\n}}\n",
      d, name);
}

/// Wall time, or the processor's for this process.
enum class Clock { Wall, Processor };

double millisecondsNow(Clock clock) {
  timespec now = {};
  clock_gettime(clock == Clock::Wall ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID, &now);
  return double(now.tv_sec) * 1e3 + double(now.tv_nsec) / 1e6;
}

double millisecondsOf(const std::function<void()> &work, int tries, Clock clock = Clock::Wall) {
  double best = 1e30;
  for (int i = 0; i < tries; ++i) {
    double start = millisecondsNow(clock);
    work();
    best = std::min(best, millisecondsNow(clock) - start);
  }
  return best;
}

const char *verdict(bool holds) { return holds ? "reached" : "missed"; }

class Bench {
public:
  Bench(std::shared_ptr<const cuda::Nvrtc> nvrtc, int tries, Clock clock)
      : nvrtc(std::move(nvrtc)), tries(tries), clock(clock) {}

  llvm::Error kernels(const std::string &filter);
  llvm::Error threads();
  llvm::Error disk();
  llvm::Error model(const std::string &path);

private:
  /// The texts of a spec's kernels.
  llvm::Expected<CudaBuild> textsOf(const std::string &spec, const std::string &arch) {
    std::unique_ptr<SpecFile> file = SpecFile::parse(spec, "bench");
    if (!file)
      return llvm::createStringError("the benchmark's spec does not parse");
    llvm::Expected<CompileOptions> options = llmopt::optionsFor("cuda:" + arch);
    if (!options)
      return options.takeError();
    llvm::Expected<CudaBuild> build = buildCudaText(file->specs().front(), *options);
    if (build) // their locations belong to the file's context
      for (cuda::KernelText &text : build->texts)
        text.places.clear();
    return build;
  }
  cuda::KernelSource sourceOf(const cuda::KernelText &text, const std::string &arch) {
    return {.text = text.text, .name = text.entry + ".cu", .arch = arch, .lineInfo = true};
  }

  std::shared_ptr<const cuda::Nvrtc> nvrtc;
  int tries;
  Clock clock; ///< of single kernels
};

/// Spec to machine code of each kernel at d 128, and where the time goes.
llvm::Error Bench::kernels(const std::string &filter) {
  fmt::print("{:<26}{:>9}{:>9}{:>9}{:>9}{:>10}{:>10}{:>10}  mark\n", "spec to cubin, ms", "text",
             "PTX", "cubin", "in all", "text kB", "PTX kB", "mma");
  bool first = true;
  for (const char *arch : kArchs) {
    if (std::string(arch).find(filter) == std::string::npos)
      continue;
    std::string spec = specText(128, "decode");
    llvm::Expected<CudaBuild> build = textsOf(spec, arch);
    if (!build)
      return build.takeError();
    double all =
        millisecondsOf([&] { llvm::consumeError(textsOf(spec, arch).takeError()); }, tries, clock);
    double front = all / double(build->texts.size());
    for (const cuda::KernelText &text : build->texts) {
      runtime::StatusOr<cuda::CompiledKernel> made = cuda::CompiledKernel();
      auto compile = [&](const std::string &target) {
        return [&, target] { made = nvrtc->compile(sourceOf(text, target)); };
      };
      std::string virtualArch = "compute_" + std::string(arch).substr(3);
      double mark = std::stoi(std::string(arch).substr(3)) >= 100 ? kNewerKernel : kKernel;
      if (first) {
        double cold = millisecondsOf(compile(arch), 1, clock) + front;
        fmt::print("{:<26}{:>36.0f}{:>32}{:.0f}: {}\n", "the first of the process", cold, "",
                   mark + kFirstExtra, verdict(cold <= mark + kFirstExtra));
        first = false;
      }
      double ptx = millisecondsOf(compile(virtualArch), tries, clock);
      double cubin = millisecondsOf(compile(arch), tries, clock);
      if (!made)
        return llvm::createStringError(made.status().message());
      fmt::print("{:<26}{:>9.1f}{:>9.0f}{:>9.0f}{:>9.0f}{:>10.1f}{:>10.1f}{:>10}  {:.0f}: {}\n",
                 fmt::format("{} {}", arch, text.entry), front, ptx, cubin - ptx, front + cubin,
                 double(text.text.size()) / 1e3, double(made->ptx.size()) / 1e3,
                 text.implied.products, mark, verdict(front + cubin <= mark));
    }
  }
  return llvm::Error::success();
}

/// Eight kernels in two threads beside one after another.
llvm::Error Bench::threads() {
  std::vector<cuda::KernelSource> sources;
  for (int64_t d : {64, 80, 96, 128}) {
    llvm::Expected<CudaBuild> build = textsOf(specText(d, fmt::format("d{}", d)), "sm_80");
    if (!build)
      return build.takeError();
    for (const cuda::KernelText &text : build->texts)
      if (text.implied.products > 0)
        sources.push_back(sourceOf(text, "sm_80"));
  }
  double times[2];
  for (unsigned threads : {1u, 2u})
    times[threads - 1] =
        millisecondsOf([&] { (void)nvrtc->compileAll(sources, threads); }, std::min(tries, 3));
  double gain = times[0] / times[1];
  fmt::print("{} kernels: one after another {:.0f} ms, in 2 threads {:.0f} ms, {:.2f} times faster"
             "   mark {}: {}\n",
             sources.size(), times[0], times[1], gain, kThreadsGain, verdict(gain >= kThreadsGain));
  return llvm::Error::success();
}

/// A new process' first look-up of a program that is on disk.
llvm::Error Bench::disk() {
  std::unique_ptr<SpecFile> file = SpecFile::parse(specText(128, "decode"), "bench");
  llvm::Expected<CompileOptions> options = llmopt::optionsFor("cuda:sm_80");
  if (!file || !options)
    return options ? llvm::createStringError("the spec does not parse") : options.takeError();
  llvm::Expected<bundle::Program> program = compileSpec(file->specs().front(), *options);
  if (!program)
    return program.takeError();
  char folder[] = "/tmp/cuda-compile-bench-XXXXXX";
  if (!::mkdtemp(folder))
    return llvm::createStringError("no folder can be made in /tmp");
  if (runtime::Status status = runtime::BundleStore(folder).publish(*program); !status.ok())
    return llvm::createStringError(status.message());
  bool found = true;
  double time = millisecondsOf(
      [&] {
        runtime::KernelCache cache({.folder = folder});
        auto hit = cache.get(program->key, [&]() -> runtime::StatusOr<bundle::Program> {
          return runtime::makeStatus(runtime::StatusCode::NotFound, "not on disk");
        });
        found = found && hit.ok();
      },
      std::max(tries, 5));
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  if (!found)
    return llvm::createStringError("the program was not found on disk");
  fmt::print("disk hit to usable bundle {:.2f} ms   mark {:.0f}: {}\n", time, kDiskHit,
             verdict(time <= kDiskHit));
  return llvm::Error::success();
}

/// A model's configuration to all its kernels, nothing kept.
llvm::Error Bench::model(const std::string &path) {
  runtime::StatusOr<std::vector<uint8_t>> config = runtime::readFile(path, 1 << 24);
  if (!config)
    return llvm::createStringError(config.status().message());
  llvm::Error failure = llvm::Error::success();
  size_t specs = 0, kernels = 0;
  double time = millisecondsOf(
      [&] {
        auto imported = importer::importHuggingFace(
            {reinterpret_cast<const char *>(config->data()), config->size()}, path);
        std::unique_ptr<SpecFile> file = imported ? SpecFile::parse(imported->ir, path) : nullptr;
        llvm::Expected<CompileOptions> options = llmopt::optionsFor("cuda:sm_80");
        if (!file || !options) {
          failure = llvm::joinErrors(std::move(failure), llvm::createStringError("no specs"));
          llvm::consumeError(options.takeError());
          return;
        }
        auto programs = compileSpecs(file->specs(), *options);
        if (!programs) {
          failure = llvm::joinErrors(std::move(failure), programs.takeError());
          return;
        }
        specs = programs->size(), kernels = 0;
        for (const bundle::Program &program : *programs)
          kernels += program.kernels.size();
      },
      std::min(tries, 2));
  if (failure)
    return failure;
  fmt::print("{}: {} specs, {} kernels in {:.0f} ms   mark {:.0f}: {}\n",
             std::filesystem::path(path).filename().string(), specs, kernels, time, kModel,
             verdict(time <= kModel));
  return llvm::Error::success();
}

int run(int argc, char **argv) {
  CLI::App app{"Compile times of CUDA kernels beside their marks", "cuda-compile-bench"};
  std::string filter;
  std::vector<std::string> models;
  int tries = 5;
  app.add_option("FILTER", filter, "only architectures whose name holds this");
  app.add_option("--model", models, "config.json files to compile whole");
  app.add_option("--tries", tries, "of each figure; the least time counts (5)")
      ->check(CLI::Range(1, 100));
  bool processor = false;
  app.add_flag("--processor-time", processor,
               "single kernels by the processor's time: for a machine with other work");
  CLI11_PARSE(app, argc, argv);
  auto nvrtc = cuda::Nvrtc::load();
  if (!nvrtc)
    return fail("cuda-compile-bench", nvrtc.status().message());
  fmt::print("NVRTC {}, {}\n", (*nvrtc)->version(), (*nvrtc)->path());
  Bench bench(*nvrtc, tries, processor ? Clock::Processor : Clock::Wall);
  if (llvm::Error error = bench.kernels(filter))
    return fail("kernels", std::move(error));
  if (llvm::Error error = bench.threads())
    return fail("threads", std::move(error));
  if (llvm::Error error = bench.disk())
    return fail("disk", std::move(error));
  for (const std::string &model : models)
    if (llvm::Error error = bench.model(model))
      return fail(model, std::move(error));
  return 0;
}

} // namespace
} // namespace llmopt::cli

int main(int argc, char **argv) { return llmopt::cli::run(argc, argv); }

// See ExplainCuda.h.
#include "tools/llm-opt/ExplainCuda.h"

#include "codegen/compile/CudaCompile.h"

#include <fmt/format.h>

#include <chrono>

namespace llmopt::cli {
namespace {

using Json = nlohmann::ordered_json;

Json pair(int64_t found, int64_t implied) { return {{"found", found}, {"implied", implied}}; }

const char *nameOf(bundle::KernelKind kind) {
  switch (kind) {
  case bundle::KernelKind::Attend:
    return "attend";
  case bundle::KernelKind::Merge:
    return "merge";
  case bundle::KernelKind::Append:
    return "append";
  case bundle::KernelKind::Combine:
    return "combine";
  }
  return "";
}

/// The kernel's images: machine code, if there is any, and PTX.
const bundle::Image *imageOf(const bundle::Program &program, const bundle::Kernel &kernel,
                             bundle::ImageFormat format) {
  if (program.images[kernel.image].format == format)
    return &program.images[kernel.image];
  for (uint32_t image : kernel.otherImages)
    if (program.images[image].format == format)
      return &program.images[image];
  return nullptr;
}

Json describe(const CudaBuild &build, size_t index, const runtime::CudaTarget &target) {
  const bundle::Kernel &kernel = build.program.kernels[index];
  const cuda::KernelText &text = build.texts[index];
  const bundle::Image &ptx = *imageOf(build.program, kernel, bundle::ImageFormat::Ptx);
  const bundle::Image *cubin = imageOf(build.program, kernel, bundle::ImageFormat::Cubin);
  cuda::InstructionCounts found =
      cuda::foundIn({reinterpret_cast<const char *>(ptx.bytes.data()), ptx.bytes.size()});
  Json facts{{"entry", kernel.entry}, {"kind", nameOf(kernel.kind)}};
  bool attends = kernel.kind == bundle::KernelKind::Attend;
  if (attends)
    facts.update({{"tile_rows", kernel.tileRows},
                  {"tile_keys", kernel.tileKeys},
                  {"item_heads", kernel.itemHeads},
                  {"slices", build.names[index].slices}});
  facts.update({{"block_threads", kernel.blockThreads}, {"shared_bytes", kernel.sharedBytes}});
  if (cubin) { // an architecture that NVRTC does not know gets PTX alone
    const bundle::ImageFigures &figures = cubin->figures;
    runtime::Residency resident = runtime::residentBlocks(
        target, {kernel.blockThreads, figures.registers, kernel.sharedBytes + figures.sharedBytes});
    facts.update({{"registers", figures.registers},
                  {"register_budget",
                   runtime::registerBudget(target, kernel.blockThreads, uint32_t(text.blocks))},
                  {"spill_store_bytes", figures.spillStoreBytes},
                  {"spill_load_bytes", figures.spillLoadBytes},
                  {"stack_bytes", figures.stackBytes},
                  {"blocks_per_sm", resident.blocks},
                  {"blocks_wanted", text.blocks},
                  {"blocks_limited_by", resident.limit},
                  {"warnings", figures.warnings},
                  {"cubin_bytes", cubin->bytes.size()}});
  }
  if (attends)
    facts.update({{"mma", pair(found.products, text.implied.products)},
                  {"ldmatrix", pair(found.matrixLoads, text.implied.matrixLoads)},
                  {"copies_of_16_bytes", pair(found.wideCopies, text.implied.wideCopies)}});
  facts.update({{"ptx_bytes", ptx.bytes.size()}, {"text_bytes", text.text.size()}});
  return facts;
}

/// "128 mma", or "130 mma (its tiles imply 128)".
std::string counted(const Json &kernel, const char *key, const char *what) {
  int64_t found = kernel[key]["found"], implied = kernel[key]["implied"];
  return fmt::format("{} {}", found, what) +
         (found == implied ? "" : fmt::format(" (its tiles imply {})", implied));
}

void printKernel(const Json &kernel) {
  auto number = [&](const char *key) { return kernel[key].get<int64_t>(); };
  fmt::print("  {}\n", kernel["entry"].get<std::string>());
  if (kernel.contains("tile_rows"))
    fmt::print("    tile       {} packed rows x {} keys{}\n", number("tile_rows"),
               number("tile_keys"),
               number("slices") > 1 ? fmt::format(", keys in {} slices", number("slices")) : "");
  fmt::print("    block      {} threads, {} bytes of shared memory\n", number("block_threads"),
             number("shared_bytes"));
  if (kernel.contains("registers")) {
    fmt::print("    registers  {} of {}, spilled {} bytes stored and {} loaded, stack {} bytes\n",
               number("registers"), number("register_budget"), number("spill_store_bytes"),
               number("spill_load_bytes"), number("stack_bytes"));
    fmt::print("    blocks     {} on a multiprocessor, limited by {}; {} wanted\n",
               number("blocks_per_sm"), kernel["blocks_limited_by"].get<std::string>(),
               number("blocks_wanted"));
  }
  if (kernel.contains("mma")) {
    fmt::print("    products   {}, {}\n", counted(kernel, "mma", "mma"),
               counted(kernel, "ldmatrix", "ldmatrix"));
    fmt::print("    K, V, Q    {}; rows off 16 bytes or with strides go by elements\n",
               counted(kernel, "copies_of_16_bytes", "copies of 16 bytes"));
  }
  fmt::print("    size       {} bytes of text, {} of PTX{}\n", number("text_bytes"),
             number("ptx_bytes"),
             kernel.contains("cubin_bytes")
                 ? fmt::format(", {} of machine code", number("cubin_bytes"))
                 : "; no machine code, since NVRTC does not know this architecture");
  for (const Json &warning : kernel.value("warnings", Json::array()))
    fmt::print("    warning    {}\n", warning.get<std::string>());
}

} // namespace

llvm::Expected<Json> cudaFacts(mlir::func::FuncOp spec, const CompileOptions &options) {
  auto start = std::chrono::steady_clock::now();
  llvm::Expected<std::vector<CudaBuild>> builds = buildCuda(spec, options);
  if (!builds)
    return builds.takeError();
  const CudaBuild &build = builds->front();
  std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - start;
  Json kernels = Json::array();
  for (size_t i = 0; i < build.texts.size(); ++i)
    kernels.push_back(describe(build, i, options.cudaNumbers));
  return Json{{"spec", build.program.name},      {"key", build.program.key},
              {"target", build.program.target},  {"schedule", build.schedule.reason},
              {"stages", build.schedule.stages}, {"workers", build.schedule.workers},
              {"compile_ms", spent.count()},     {"kernels", kernels}};
}

void printCudaFacts(const Json &facts) {
  fmt::print("spec @{}  key {}  for {}, compiled in {:.0f} ms\n", facts["spec"].get<std::string>(),
             facts["key"].get<std::string>().substr(0, 16), facts["target"].get<std::string>(),
             facts["compile_ms"].get<double>());
  if (std::string reason = facts["schedule"]; !reason.empty())
    fmt::print("schedule: {}\n", reason);
  for (const Json &kernel : facts["kernels"])
    printKernel(kernel);
}

} // namespace llmopt::cli

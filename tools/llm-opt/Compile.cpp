// llm-opt compile: a spec to any stage's text, or to a bundle.
#include "codegen/compile/Compile.h"
#include "runtime/base/File.h"
#include "runtime/bundle/BundleIO.h"
#include "tools/llm-opt/Command.h"
#include "tools/llm-opt/Options.h"
#include "tools/llm-opt/SpecFile.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <map>

namespace llmopt::cli {
namespace {

const std::map<std::string, Stage> kStages = {
    {"ir", Stage::Attn}, {"tile", Stage::Tile}, {"vector", Stage::Vector}, {"llvm", Stage::Llvm},
    {"asm", Stage::Asm}, {"gpu", Stage::Gpu},   {"cuda", Stage::Cuda},     {"ptx", Stage::Ptx}};

bool isFor(Stage stage, bool cuda) {
  if (stage == Stage::Attn || stage == Stage::Tile)
    return true;
  return (stage == Stage::Gpu || stage == Stage::Cuda || stage == Stage::Ptx) == cuda;
}

/// Where results go, and the object that --json prints of them.
struct Output {
  std::string path = "-"; ///< "-": standard output
  bool json = false;
  nlohmann::ordered_json facts;

  /// A file that has been written.
  void note(const std::string &file, uint64_t bytes) {
    facts["files"].push_back({{"file", file}, {"bytes", bytes}});
  }
  int write(const std::string &file, const std::string &text);
};

int Output::write(const std::string &file, const std::string &text) {
  if (file == "-") {
    if (json)
      facts["text"] = text;
    else
      fmt::print("{}", text);
    return 0;
  }
  if (runtime::Status written = runtime::writeFileAtomic(
          file, {reinterpret_cast<const uint8_t *>(text.data()), text.size()});
      !written.ok())
    return fail("compile", written.message());
  note(file, text.size());
  return 0;
}

int emitBundle(std::vector<mlir::func::FuncOp> specs, const CompileOptions &options,
               Output &output) {
  if (specs.size() != 1)
    return fail("compile",
                fmt::format("the file holds {} specs; a bundle holds one; choose with --func",
                            specs.size()));
  if (output.path == "-")
    return fail("compile", "a bundle is binary; name a file with -o");
  llvm::Expected<bundle::Program> program = compileSpec(specs.front(), options);
  if (!program)
    return fail("compile", llvm::toString(program.takeError()));
  runtime::Status saved = bundle::saveBundle(*program, output.path);
  if (!saved.ok())
    return fail("compile", saved.message());
  std::error_code error;
  output.note(output.path, std::filesystem::file_size(output.path, error));
  output.facts["key"] = program->key;
  for (const bundle::Kernel &kernel : program->kernels)
    output.facts["kernels"].push_back(kernel.entry);
  return 0;
}

/// Machine code of each kernel of the specs: the file itself, or one a kernel if there are more.
int emitCubin(const std::vector<mlir::func::FuncOp> &specs, const CompileOptions &options,
              Output &output) {
  if (output.path == "-")
    return fail("compile", "a cubin is binary; name a file with -o");
  std::vector<std::pair<std::string, const bundle::Image *>> all;
  llvm::Expected<std::vector<bundle::Program>> programs = compileSpecs(specs, options);
  if (!programs)
    return fail("compile", programs.takeError());
  for (const bundle::Program &program : *programs)
    for (const bundle::Kernel &kernel : program.kernels)
      all.push_back({kernel.entry, &program.images[kernel.image]});
  for (auto &[entry, image] : all) {
    if (image->format != bundle::ImageFormat::Cubin)
      return fail("compile", fmt::format("NVRTC makes no machine code for {}", options.cudaArch));
    std::string file = all.size() == 1 ? output.path : fmt::format("{}.{}", output.path, entry);
    if (int code = output.write(file, std::string(image->bytes.begin(), image->bytes.end())))
      return code;
    output.facts["kernels"].push_back(entry);
  }
  return 0;
}

int emitText(const std::vector<mlir::func::FuncOp> &specs, Stage stage, const std::string &path,
             const CompileOptions &options, Output &output) {
  std::string all;
  for (mlir::func::FuncOp spec : specs) {
    llvm::Expected<std::string> text = stageText(spec, stage, options);
    if (!text)
      return fail("compile", llvm::toString(text.takeError()));
    all += *text + "\n";
  }
  return output.write(path, all);
}

int dump(const std::vector<mlir::func::FuncOp> &specs, const std::string &folder,
         const CompileOptions &options, Output &output) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    return fail("compile", fmt::format("cannot make folder '{}': {}", folder, error.message()));
  for (const auto &[name, stage] : kStages) {
    if (!isFor(stage, !options.cudaArch.empty()))
      continue;
    if (int code = emitText(specs, stage, folder + "/" + name + ".txt", options, output))
      return code;
  }
  return 0;
}

int emitAll(const std::vector<mlir::func::FuncOp> &specs, const std::string &emit,
            const CompileOptions &options, Output &output) {
  if (emit == "bundle")
    return emitBundle(specs, options, output);
  if (emit == "cubin")
    return emitCubin(specs, options, output);
  return emitText(specs, kStages.at(emit), output.path, options, output);
}

} // namespace

int compileCommand(int argc, char **argv) {
  CLI::App app{"Lower a spec and emit a stage of it", "llm-opt compile"};
  std::string spec, target = "cpu", emit = "bundle", folder, function;
  Output output;
  app.add_option("SPEC", spec, "attn IR file, or - for standard input")->required();
  app.add_option("--target", target, "cpu, or a CUDA architecture: cuda:sm_80");
  app.add_option("--emit", emit,
                 "ir, tile or bundle; for cpu vector, llvm, asm; for CUDA gpu, cuda, ptx, cubin");
  app.add_option("-o", output.path, "file to write; - is standard output");
  app.add_option("--dump-dir", folder, "also write the text of every stage into this folder");
  app.add_option("--func", function, "the spec function; default: all of the file");
  app.add_flag("--json", output.json,
               "print what was made as JSON, with the text if no file has it");
  if (std::optional<int> code = parseOptions(app, argc, argv))
    return *code;
  llvm::Expected<CompileOptions> options = optionsFor(target);
  if (!options)
    return fail("compile", options.takeError());
  bool cuda = !options->cudaArch.empty();
  auto stage = kStages.find(emit);
  bool known = emit == "bundle" || (emit == "cubin" && cuda) ||
               (stage != kStages.end() && isFor(stage->second, cuda));
  if (!known)
    return fail("compile",
                fmt::format("cannot emit '{}' for {}; ir, tile, {} and bundle can be had", emit,
                            target, cuda ? "gpu, cuda, ptx, cubin" : "vector, llvm, asm"));
  std::unique_ptr<SpecFile> file = SpecFile::open(spec);
  if (!file)
    return 1;
  std::vector<mlir::func::FuncOp> specs = file->specs(function);
  if (specs.empty())
    return 1;
  output.facts = {{"target", target}, {"emit", emit}};
  for (mlir::func::FuncOp one : specs)
    output.facts["specs"].push_back(one.getName().str());
  output.facts["files"] = nlohmann::ordered_json::array();
  if (!folder.empty())
    if (int code = dump(specs, folder, *options, output))
      return code;
  if (int code = emitAll(specs, emit, *options, output))
    return code;
  if (output.json)
    fmt::print("{}\n", output.facts.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  return 0;
}

} // namespace llmopt::cli

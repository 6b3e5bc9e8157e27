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

/// The targets that --target lists: "cuda:sm_80,sm_90" are two of one kind. A list with CUDA in it
/// ends with PTX for compute_80, where no other PTX runs on every chip: code for sm_90a or sm_100a
/// runs on no later one.
llvm::Expected<std::vector<std::string>> targetsOf(llvm::StringRef list) {
  std::vector<std::string> targets;
  bool cuda = false, generic = false;
  llvm::SmallVector<llvm::StringRef> parts;
  list.split(parts, ',');
  for (llvm::StringRef part : parts) {
    std::string target = part.str();
    bool bare = part.starts_with("sm_") || part.starts_with("compute_");
    if (bare && cuda)
      target = "cuda:" + target;
    cuda |= llvm::StringRef(target).starts_with("cuda:");
    generic |= target == "cuda:sm_80" || target == "cuda:compute_80";
    if (llvm::is_contained(targets, target))
      return llvm::createStringError("--target names '%s' twice", target.c_str());
    targets.push_back(std::move(target));
  }
  if (cuda && !generic && targets.size() > 1)
    targets.push_back("cuda:compute_80");
  return targets;
}

/// Options of each target.
llvm::Expected<std::vector<CompileOptions>> allOptions(const std::string &list) {
  llvm::Expected<std::vector<std::string>> targets = targetsOf(list);
  if (!targets)
    return targets.takeError();
  std::vector<CompileOptions> all;
  for (const std::string &target : *targets) {
    llvm::Expected<CompileOptions> options = optionsFor(target);
    if (!options)
      return options.takeError();
    all.push_back(std::move(*options));
  }
  return all;
}

int emitBundle(std::vector<mlir::func::FuncOp> specs, const std::vector<CompileOptions> &targets,
               Output &output) {
  if (specs.size() != 1)
    return fail("compile",
                fmt::format("the file holds {} specs; a bundle holds one; choose with --func",
                            specs.size()));
  if (output.path == "-")
    return fail("compile", "a bundle is binary; name a file with -o");
  std::vector<bundle::Program> family;
  for (const CompileOptions &options : targets) {
    llvm::Expected<bundle::Program> program = compileSpec(specs.front(), options);
    if (!program)
      return fail("compile", llvm::toString(program.takeError()));
    family.push_back(std::move(*program));
  }
  runtime::Status saved = bundle::saveFamily(family, output.path);
  if (!saved.ok())
    return fail("compile", saved.message());
  std::error_code error;
  output.note(output.path, std::filesystem::file_size(output.path, error));
  output.facts["key"] = family.front().key;
  for (const bundle::Program &program : family)
    for (const bundle::Kernel &kernel : program.kernels)
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
            const std::vector<CompileOptions> &targets, Output &output) {
  if (emit == "bundle")
    return emitBundle(specs, targets, output);
  if (emit == "cubin")
    return emitCubin(specs, targets.front(), output);
  return emitText(specs, kStages.at(emit), output.path, targets.front(), output);
}

} // namespace

int compileCommand(int argc, char **argv) {
  CLI::App app{"Lower a spec and emit a stage of it", "llm-opt compile"};
  std::string spec, target = "cpu", emit = "bundle", folder, function;
  Output output;
  app.add_option("SPEC", spec, "attn IR file, or - for standard input")->required();
  app.add_option("--target", target,
                 "cpu, or a CUDA architecture: cuda:sm_80; a bundle may hold several: "
                 "cpu,cuda:sm_80,sm_90a");
  app.add_option("--emit", emit,
                 "ir, tile or bundle; for cpu vector, llvm, asm; for CUDA gpu, cuda, ptx, cubin");
  app.add_option("-o", output.path, "file to write; - is standard output");
  app.add_option("--dump-dir", folder, "also write the text of every stage into this folder");
  app.add_option("--func", function, "the spec function; default: all of the file");
  app.add_flag("--json", output.json,
               "print what was made as JSON, with the text if no file has it");
  if (std::optional<int> code = parseOptions(app, argc, argv))
    return *code;
  llvm::Expected<std::vector<CompileOptions>> targets = allOptions(target);
  if (!targets)
    return fail("compile", targets.takeError());
  if (targets->size() > 1 && (emit != "bundle" || !folder.empty()))
    return fail("compile", fmt::format("{} takes one target; only a bundle holds several: '{}'",
                                       folder.empty() ? "--emit " + emit : "--dump-dir", target));
  const CompileOptions *options = &targets->front();
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
  if (int code = emitAll(specs, emit, *targets, output))
    return code;
  if (output.json)
    fmt::print("{}\n", output.facts.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  return 0;
}

} // namespace llmopt::cli

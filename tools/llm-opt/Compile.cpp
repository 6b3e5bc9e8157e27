// llm-opt compile: a spec to any stage's text, or to a bundle.
#include "codegen/compile/Compile.h"
#include "runtime/bundle/BundleIO.h"
#include "tools/llm-opt/Command.h"
#include "tools/llm-opt/Options.h"
#include "tools/llm-opt/SpecFile.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <map>

namespace llmopt::cli {
namespace {

const std::map<std::string, Stage> kStages = {{"ir", Stage::Attn},
                                              {"tile", Stage::Tile},
                                              {"vector", Stage::Vector},
                                              {"llvm", Stage::Llvm},
                                              {"asm", Stage::Asm}};

bool writeText(const std::string &path, const std::string &text) {
  if (path == "-") {
    fmt::print("{}", text);
    return true;
  }
  std::ofstream out(path, std::ios::binary);
  out << text;
  return bool(out.flush());
}

int emitBundle(std::vector<mlir::func::FuncOp> specs, const std::string &path) {
  if (specs.size() != 1)
    return fail("compile",
                fmt::format("the file holds {} specs; a bundle holds one; choose with --func",
                            specs.size()));
  if (path == "-")
    return fail("compile", "a bundle is binary; name a file with -o");
  llvm::Expected<CompileOptions> options = hostOptions();
  if (!options)
    return fail("compile", options.takeError());
  llvm::Expected<bundle::Program> program = compileSpec(specs.front(), *options);
  if (!program)
    return fail("compile", llvm::toString(program.takeError()));
  runtime::Status saved = bundle::saveBundle(*program, path);
  return saved.ok() ? 0 : fail("compile", saved.message());
}

int emitText(const std::vector<mlir::func::FuncOp> &specs, Stage stage, const std::string &path) {
  llvm::Expected<CompileOptions> options = hostOptions();
  if (!options)
    return fail("compile", options.takeError());
  std::string all;
  for (mlir::func::FuncOp spec : specs) {
    llvm::Expected<std::string> text = stageText(spec, stage, *options);
    if (!text)
      return fail("compile", llvm::toString(text.takeError()));
    all += *text + "\n";
  }
  return writeText(path, all) ? 0 : fail("compile", fmt::format("cannot write '{}'", path));
}

int dump(const std::vector<mlir::func::FuncOp> &specs, const std::string &folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    return fail("compile", fmt::format("cannot make folder '{}': {}", folder, error.message()));
  for (const auto &[name, stage] : kStages)
    if (int code = emitText(specs, stage, folder + "/" + name + ".txt"))
      return code;
  return 0;
}

} // namespace

int compileCommand(int argc, char **argv) {
  CLI::App app{"Lower a spec and emit a stage of it", "llm-opt compile"};
  std::string spec, target = "cpu", emit = "bundle", output = "-", folder, function;
  app.add_option("SPEC", spec, "attn IR file, or - for standard input")->required();
  app.add_option("--target", target, "cpu");
  app.add_option("--emit", emit, "ir, tile, vector, llvm, asm or bundle");
  app.add_option("-o", output, "file to write; - is standard output");
  app.add_option("--dump-dir", folder, "also write the text of every stage into this folder");
  app.add_option("--func", function, "the spec function; default: all of the file");
  if (std::optional<int> code = parseOptions(app, argc, argv))
    return *code;
  if (target != "cpu")
    return fail("compile",
                fmt::format("target '{}' is not available in this build; cpu is", target));
  auto stage = kStages.find(emit);
  if (emit != "bundle" && stage == kStages.end())
    return fail(
        "compile",
        fmt::format("cannot emit '{}'; ir, tile, vector, llvm, asm and bundle can be had", emit));
  std::unique_ptr<SpecFile> file = SpecFile::open(spec);
  if (!file)
    return 1;
  std::vector<mlir::func::FuncOp> specs = file->specs(function);
  if (specs.empty())
    return 1;
  if (!folder.empty())
    if (int code = dump(specs, folder))
      return code;
  return emit == "bundle" ? emitBundle(specs, output) : emitText(specs, stage->second, output);
}

} // namespace llmopt::cli

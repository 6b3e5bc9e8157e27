// llm-opt opt: mlir-opt with this project's dialects and passes, and with --json.
#include "tools/llm-opt/Command.h"

#include "codegen/compile/Nesting.h"
#include "codegen/cpu/Passes.h"
#include "codegen/cuda/Passes.h"
#include "dialect/attn/AttnDialect.h"
#include "dialect/tile/TileDialect.h"
#include "passes/Passes.h"
#include "passes/tile/Passes.h"
#include "runtime/base/File.h"
#include "runtime/bundle/BundleIO.h"

#include "mlir/IR/DialectRegistry.h"
#include "mlir/InitAllDialects.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/ToolOutputFile.h"

#include <cstdio>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace {

/// Why an argument, if it is a file, cannot be IR; empty where it may be.
std::string problemOf(const char *argument) {
  if (llmopt::bundle::isBundleFile(argument))
    return ": this is a compiled bundle; IR text is wanted";
  constexpr uint64_t kMost = uint64_t{1} << 30;
  llmopt::runtime::StatusOr<std::vector<uint8_t>> bytes =
      llmopt::runtime::readFile(argument, kMost);
  if (bytes)
    if (auto place =
            llmopt::irNestedTooDeep({reinterpret_cast<const char *>(bytes->data()), bytes->size()}))
      return fmt::format(":{}:{}: nested too deeply; {} levels are allowed", place->first,
                         place->second, llmopt::kMaxIrNesting);
  return "";
}

int failed(const std::string &message) {
  fmt::print(stderr, "llm-opt opt: {}\n", message);
  return 1;
}

/// The result as one object on standard output. Nothing of it is printed, and nothing is written,
/// where something failed: diagnostics are on stderr as ever.
int runForJson(const std::string &input, const std::string &output,
               mlir::DialectRegistry &registry) {
  std::string error, ir;
  std::unique_ptr<llvm::MemoryBuffer> buffer = mlir::openInputFile(input, &error);
  if (!buffer)
    return failed(error);
  llvm::raw_string_ostream stream(ir);
  if (mlir::failed(mlir::MlirOptMain(stream, std::move(buffer), registry,
                                     mlir::MlirOptMainConfig::createFromCLOptions())))
    return 1;
  nlohmann::ordered_json result = {{"file", input}};
  if (output == "-") {
    result["ir"] = ir;
  } else {
    std::unique_ptr<llvm::ToolOutputFile> file = mlir::openOutputFile(output, &error);
    if (!file)
      return failed(error);
    file->os() << ir;
    file->keep();
    result["output"] = output;
    result["bytes"] = ir.size();
  }
  fmt::print("{}\n", result.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  return 0;
}

} // namespace

int llmopt::runOpt(int argc, char **argv) {
  for (int i = 1; i < argc; ++i)
    if (std::string problem = problemOf(argv[i]); !problem.empty()) {
      std::fprintf(stderr, "llm-opt opt: %s%s\n", argv[i], problem.c_str());
      return 1;
    }
  mlir::DialectRegistry registry;
  mlir::registerAllDialects(registry);
  registry.insert<attn::AttnDialect, tile::TileDialect>();
  mlir::registerTransformsPasses();
  registerLlmOptPasses();
  tile::registerTilePasses();
  cpu::registerCpuPasses();
  cuda::registerCudaPasses();
  llvm::cl::opt<bool> json("json", llvm::cl::desc("Print the result as a JSON object"));
  auto [input, output] =
      mlir::registerAndParseCLIOptions(argc, argv, "attention compiler driver\n", registry);
  if (json)
    return runForJson(input, output, registry);
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, input, output, registry));
}

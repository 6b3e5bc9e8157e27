// llm-opt opt: mlir-opt with this project's dialects and passes.
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
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"

#include <cstdio>
#include <fmt/format.h>

using namespace llmopt;

/// Why an argument, if it is a file, cannot be IR; empty where it may be.
static std::string problemOf(const char *argument) {
  if (bundle::isBundleFile(argument))
    return ": this is a compiled bundle; IR text is wanted";
  constexpr uint64_t kMost = uint64_t{1} << 30;
  runtime::StatusOr<std::vector<uint8_t>> bytes = runtime::readFile(argument, kMost);
  if (bytes)
    if (auto place =
            irNestedTooDeep({reinterpret_cast<const char *>(bytes->data()), bytes->size()}))
      return fmt::format(":{}:{}: nested too deeply; {} levels are allowed", place->first,
                         place->second, kMaxIrNesting);
  return "";
}

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
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "attention compiler driver\n", registry));
}

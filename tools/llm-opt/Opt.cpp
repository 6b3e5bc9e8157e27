// llm-opt opt: mlir-opt with this project's dialects and passes.
#include "tools/llm-opt/Command.h"

#include "codegen/cpu/Passes.h"
#include "codegen/cuda/Passes.h"
#include "dialect/attn/AttnDialect.h"
#include "dialect/tile/TileDialect.h"
#include "passes/Passes.h"
#include "passes/tile/Passes.h"
#include "runtime/bundle/BundleIO.h"

#include "mlir/IR/DialectRegistry.h"
#include "mlir/InitAllDialects.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "mlir/Transforms/Passes.h"

#include <cstdio>

int llmopt::runOpt(int argc, char **argv) {
  for (int i = 1; i < argc; ++i)
    if (bundle::isBundleFile(argv[i])) {
      std::fprintf(stderr, "llm-opt opt: %s: this is a compiled bundle; IR text is wanted\n",
                   argv[i]);
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

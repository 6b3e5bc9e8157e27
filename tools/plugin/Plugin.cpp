// The dialects and passes as a plugin for other MLIR tools:
//
//   mlir-opt-22 --load-dialect-plugin=LlmOptPlugin.so --load-pass-plugin=LlmOptPlugin.so
//               --pass-pipeline='builtin.module(attn-to-tile)' spec.mlir
//
// No MLIR library is linked: the tool that loads the plugin brings it.
#include "codegen/cpu/Passes.h"
#include "dialect/attn/AttnDialect.h"
#include "dialect/tile/TileDialect.h"
#include "passes/Passes.h"
#include "passes/tile/Passes.h"

#include "mlir/Tools/Plugins/DialectPlugin.h"
#include "mlir/Tools/Plugins/PassPlugin.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/Compiler.h"

extern "C" LLVM_ATTRIBUTE_WEAK mlir::DialectPluginLibraryInfo mlirGetDialectPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "llm-opt", LLVM_VERSION_STRING,
          [](mlir::DialectRegistry *registry) {
            registry->insert<llmopt::attn::AttnDialect, llmopt::tile::TileDialect>();
          }};
}

extern "C" LLVM_ATTRIBUTE_WEAK mlir::PassPluginLibraryInfo mlirGetPassPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "llm-opt", LLVM_VERSION_STRING, [] {
            llmopt::registerLlmOptPasses();
            llmopt::tile::registerTilePasses();
            llmopt::cpu::registerCpuPasses();
          }};
}

// The attn dialect's text on arbitrary bytes: clauses of an attention op, or an attribute or
// type of the dialect. No crash; what parses and verifies prints and parses again.
#include "dialect/attn/AttnDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"

#include <cstdio>
#include <cstdlib>

using namespace mlir;

namespace {

MLIRContext &context() {
  static MLIRContext *made = [] {
    DialectRegistry registry;
    registry.insert<llmopt::attn::AttnDialect, func::FuncDialect>();
    auto *fresh = new MLIRContext(registry, MLIRContext::Threading::DISABLED);
    fresh->loadAllAvailableDialects();
    return fresh;
  }();
  return *made;
}

/// An op around clauses, a function attribute around an attribute, an argument of a type.
std::string wrap(uint8_t kind, const std::string &text) {
  if (kind % 3 == 1)
    return "func.func private @f() attributes {x = #attn." + text + "}";
  if (kind % 3 == 2)
    return "func.func private @f(!attn." + text + ")";
  return "func.func @f(%q: tensor<?x8x64xf32>, %kv: !attn.kv_cache<2x64xf32, page = 4>, "
         "%s: !attn.sequences, %a: tensor<8xf32>, %b: tensor<1x8x?x?xf32>) {\n"
         "  %o = attn.attention %q, %kv, %s " +
         text +
         "\n : tensor<?x8x64xf32>, !attn.kv_cache<2x64xf32, page = 4>, !attn.sequences"
         " -> tensor<?x8x64xf32>\n  return\n}";
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0)
    return 0;
  ScopedDiagnosticHandler quiet(&context(), [](Diagnostic &) { return success(); });
  std::string text(reinterpret_cast<const char *>(data + 1), size - 1);
  ParserConfig config(&context());
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(wrap(data[0], text), config);
  if (!module)
    return 0;
  std::string printed;
  llvm::raw_string_ostream stream(printed);
  module->print(stream);
  if (!parseSourceString<ModuleOp>(printed, config)) {
    std::fprintf(stderr, "does not parse again:\n%s\n", printed.c_str());
    std::abort();
  }
  return 0;
}

#include "codegen/compile/CompileText.h"

#include "codegen/compile/Compile.h"
#include "codegen/compile/Nesting.h"
#include "codegen/compile/llmopt_compiler.h"
#include "runtime/bundle/BundleIO.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"

#include <cstdlib>
#include <cstring>
#include <new>

using namespace llmopt;
using namespace llmopt::runtime;

namespace {

Status failed(const std::string &text) { return Status(StatusCode::InvalidArgument, text); }

/// Memory that llmopt_compiler_free takes; null without memory.
void *copyOf(const void *bytes, size_t size) {
  void *copy = std::malloc(size ? size : 1);
  if (copy)
    std::memcpy(copy, bytes, size);
  return copy;
}

} // namespace

StatusOr<std::vector<bundle::Program>> llmopt::compileText(std::string_view text,
                                                           std::string_view target) {
  llvm::Expected<CompileOptions> options = optionsFor(llvm::StringRef(target));
  if (!options)
    return failed(llvm::toString(options.takeError()));
  return compileText(text, *options);
}

StatusOr<std::vector<bundle::Program>> llmopt::compileText(std::string_view text,
                                                           const CompileOptions &options) {
  if (auto place = irNestedTooDeep(text))
    return failed(fmt::format("line {}, column {}: nested too deeply; {} levels are allowed",
                              place->first, place->second, kMaxIrNesting));
  mlir::DialectRegistry registry;
  registerDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  std::string first;
  mlir::ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic &diagnostic) {
    if (first.empty() && diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error) {
      llvm::raw_string_ostream out(first);
      if (auto place = llvm::dyn_cast<mlir::FileLineColLoc>(diagnostic.getLocation()))
        out << "line " << place.getLine() << ", column " << place.getColumn() << ": ";
      out << diagnostic.str();
    }
    return mlir::success();
  });
  auto module = mlir::parseSourceString<mlir::ModuleOp>(llvm::StringRef(text), &context);
  if (!module)
    return failed(first);
  std::vector<mlir::func::FuncOp> specs = specsOf(*module);
  if (specs.empty())
    return failed("the text has no function with an attn op; write a spec");
  llvm::Expected<std::vector<bundle::Program>> programs = compileSpecs(specs, options);
  if (!programs) {
    std::string reason = llvm::toString(programs.takeError());
    return failed(first.empty() ? reason : first);
  }
  return std::move(*programs);
}

extern "C" int llmopt_compile(const char *spec, const char *target, void **bundle_bytes,
                              size_t *bytes, char **message) {
  auto give = [&](const Status &status) {
    if (message)
      *message = static_cast<char *>(copyOf(status.message().c_str(), status.message().size() + 1));
    return int(status.code());
  };
  try {
    if (!spec || !target || !bundle_bytes || !bytes)
      return give(failed("an argument of llmopt_compile is NULL"));
    StatusOr<std::vector<bundle::Program>> programs = compileText(spec, target);
    if (!programs)
      return give(programs.status());
    if (programs->size() != 1)
      return give(failed(
          fmt::format("the text has {} specs; one is compiled at a time", programs->size())));
    std::vector<uint8_t> made = bundle::serialize(programs->front());
    *bundle_bytes = copyOf(made.data(), made.size());
    *bytes = made.size();
    if (*bundle_bytes)
      return 0;
  } catch (const std::bad_alloc &) {
  } catch (...) {
    return int(StatusCode::Internal);
  }
  return int(StatusCode::ResourceExhausted);
}

extern "C" void llmopt_compiler_free(void *memory) { std::free(memory); }

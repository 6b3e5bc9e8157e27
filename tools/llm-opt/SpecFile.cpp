// See SpecFile.h.
#include "tools/llm-opt/SpecFile.h"
#include "codegen/compile/Compile.h"
#include "codegen/compile/Nesting.h"
#include "runtime/bundle/BundleIO.h"

#include "mlir/Bytecode/BytecodeReader.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Support/FileUtilities.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/SourceMgr.h"

#include <fmt/format.h>

using namespace mlir;

namespace llmopt::cli {
namespace {

/// What MLIR does not know that its message is about: words of other tools, in `text` from
/// where the error is.
StringRef hintFor(StringRef text) {
  if (text.starts_with("&") || text.starts_with("|"))
    return "masks are joined by 'and', 'or' and 'not'";
  StringRef word = text.take_while([](char c) { return llvm::isAlnum(c); });
  return llvm::StringSwitch<StringRef>(word)
      .Cases({"fp16", "float16", "half"}, "16-bit floats are written f16")
      .Cases({"fp32", "float32", "float"}, "32-bit floats are written f32")
      .Case("bfloat16", "it is written bf16")
      .Cases({"int32", "int64", "bool"}, "integers are written i32, i64 and i1")
      .Default("");
}

/// Adds the hint as a note, if there is one.
void addHint(Diagnostic &diagnostic, llvm::SourceMgr &sources) {
  auto at = dyn_cast<FileLineColLoc>(diagnostic.getLocation());
  if (!at || diagnostic.getSeverity() != DiagnosticSeverity::Error)
    return;
  unsigned file = sources.getMainFileID();
  llvm::SMLoc place = sources.FindLocForLineAndColumn(file, at.getLine(), at.getColumn());
  if (!place.isValid())
    return;
  const char *end = sources.getMemoryBuffer(file)->getBufferEnd();
  StringRef hint = hintFor(StringRef(place.getPointer(), end - place.getPointer()));
  if (!hint.empty())
    diagnostic.attachNote(at) << hint;
}

/// Why a file cannot be a spec; empty where it may be one.
std::string notASpec(const llvm::MemoryBuffer &buffer) {
  StringRef bytes = buffer.getBuffer();
  if (bundle::looksLikeBundle(bytes))
    return "a compiled bundle, which only 'llm-opt run' takes; give the spec that it was made of";
  if (bytes.contains('\0') && !isBytecode(buffer.getMemBufferRef()))
    return "a binary file; a spec is attn IR text";
  return "";
}

} // namespace

std::unique_ptr<SpecFile> SpecFile::parse(std::unique_ptr<llvm::MemoryBuffer> buffer,
                                          const std::string &name) {
  if (auto place = irNestedTooDeep(std::string_view(buffer->getBuffer()))) {
    fmt::print(stderr, "llm-opt: {}:{}:{}: nested too deeply; {} levels are allowed\n", name,
               place->first, place->second, kMaxIrNesting);
    return nullptr;
  }
  auto file = std::make_unique<SpecFile>();
  file->file = name;
  DialectRegistry registry;
  registerDialects(registry);
  file->context = std::make_unique<MLIRContext>(registry);
  // The message tells; the whole op after it would hide that.
  file->context->printOpOnDiagnostic(false);
  // Without a handler the context prints errors alone.
  file->context->getDiagEngine().registerHandler([](Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() != DiagnosticSeverity::Warning)
      return failure();
    llvm::errs() << diagnostic.getLocation() << ": warning: " << diagnostic << '\n';
    return success();
  });
  auto sources = std::make_shared<llvm::SourceMgr>();
  sources->AddNewSourceBuffer(std::move(buffer), llvm::SMLoc());
  SourceMgrDiagnosticHandler handler(*sources, file->context.get());
  ScopedDiagnosticHandler hints(file->context.get(), [&](Diagnostic &diagnostic) {
    addHint(diagnostic, *sources);
    return failure(); // and on to the handler that prints
  });
  file->parsed = parseSourceFile<ModuleOp>(*sources, file->context.get());
  return file->parsed ? std::move(file) : nullptr;
}

std::unique_ptr<SpecFile> SpecFile::open(const std::string &path) {
  std::string error;
  std::unique_ptr<llvm::MemoryBuffer> buffer = openInputFile(path, &error);
  if (!buffer) {
    fmt::print(stderr, "llm-opt: {}\n", error);
    return nullptr;
  }
  if (std::string problem = notASpec(*buffer); !problem.empty()) {
    fmt::print(stderr, "llm-opt: {}: this is {}\n", path, problem);
    return nullptr;
  }
  return parse(std::move(buffer), path);
}

std::unique_ptr<SpecFile> SpecFile::parse(const std::string &text, const std::string &name) {
  return parse(llvm::MemoryBuffer::getMemBufferCopy(text, name), name);
}

std::vector<func::FuncOp> SpecFile::specs(const std::string &name) {
  std::vector<func::FuncOp> found;
  for (func::FuncOp spec : specsOf(module()))
    if (name.empty() || spec.getName() == name)
      found.push_back(spec);
  if (found.empty())
    fmt::print(stderr, "llm-opt: {}: {}\n", file,
               name.empty() ? "no function holds an attn op"
                            : "no spec function is called @" + name);
  return found;
}

int fail(const std::string &command, const std::string &message) {
  fmt::print(stderr, "llm-opt {}: {}\n", command, message);
  return 1;
}

int fail(const std::string &command, llvm::Error error) {
  return fail(command, llvm::toString(std::move(error)));
}

} // namespace llmopt::cli

// See SpecFile.h.
#include "tools/llm-opt/SpecFile.h"
#include "codegen/compile/Compile.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Support/FileUtilities.h"
#include "llvm/Support/SourceMgr.h"

#include <fmt/format.h>

using namespace mlir;

namespace llmopt::cli {

std::unique_ptr<SpecFile> SpecFile::parse(std::unique_ptr<llvm::MemoryBuffer> buffer,
                                          const std::string &name) {
  auto file = std::make_unique<SpecFile>();
  file->file = name;
  DialectRegistry registry;
  registerDialects(registry);
  file->context = std::make_unique<MLIRContext>(registry);
  auto sources = std::make_shared<llvm::SourceMgr>();
  sources->AddNewSourceBuffer(std::move(buffer), llvm::SMLoc());
  SourceMgrDiagnosticHandler handler(*sources, file->context.get());
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

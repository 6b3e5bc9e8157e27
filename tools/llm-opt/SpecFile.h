// Reading a spec for a command: a file or standard input, parsed and verified, with
// diagnostics on stderr.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"

#include <memory>
#include <string>
#include <vector>

namespace llmopt::cli {

class SpecFile {
public:
  /// Parses `path` ("-": standard input). Null after a diagnostic on stderr.
  static std::unique_ptr<SpecFile> open(const std::string &path);
  /// Parses IR text; `name` stands for it in diagnostics.
  static std::unique_ptr<SpecFile> parse(const std::string &text, const std::string &name);

  /// The spec functions, or the one called `name`. Empty after a message on stderr.
  std::vector<mlir::func::FuncOp> specs(const std::string &name = "");
  mlir::ModuleOp module() { return *parsed; }
  const std::string &path() const { return file; }

private:
  static std::unique_ptr<SpecFile> parse(std::unique_ptr<llvm::MemoryBuffer> buffer,
                                         const std::string &name);

  std::string file;
  std::unique_ptr<mlir::MLIRContext> context;
  mlir::OwningOpRef<mlir::ModuleOp> parsed;
};

/// "llm-opt COMMAND: message" on stderr; returns the exit code 1.
int fail(const std::string &command, const std::string &message);
int fail(const std::string &command, llvm::Error error);

} // namespace llmopt::cli

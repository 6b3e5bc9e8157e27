// From a tile program to machine code: a relocatable ELF object, or its text.
#pragma once

#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <string>
#include <vector>

namespace llmopt::cpu {

/// The CPU that code is made for, in LLVM's terms. Empty fields mean: host triple, the
/// plain CPU of the architecture, no features beyond it.
struct CpuTargetOptions {
  std::string triple;
  std::string cpu;
  std::string features;     ///< "+avx512f,+fma"; those that `cpu` implies need not be named
  bool slowBf16Dot = false; ///< runtime::CpuTarget::slowBf16Dot
  unsigned optLevel = 1;    ///< of LLVM's passes; MLIR has vectorised already, so 1 is enough

  /// The machine that runs this process.
  static CpuTargetOptions host();
  /// `features` together with those that `cpu` implies, and slow-bf16-dot: what passes see.
  std::string allFeatures() const;
};

/// Lowers every tile kernel of `module` to the LLVM dialect, in place. Failures have been
/// reported as diagnostics.
mlir::LogicalResult lowerToCpu(mlir::ModuleOp module, const CpuTargetOptions &options);

/// Machine code of a module in the LLVM dialect. The object calls nothing but functions of
/// runtime/bundle/HostFunctions.h: one that would is an error that names the function.
llvm::Expected<std::vector<uint8_t>> emitObject(mlir::ModuleOp module,
                                                const CpuTargetOptions &options);
/// The same as optimised LLVM IR, or as assembly.
llvm::Expected<std::string> emitLlvmIr(mlir::ModuleOp module, const CpuTargetOptions &options);
llvm::Expected<std::string> emitAssembly(mlir::ModuleOp module, const CpuTargetOptions &options);

/// Dialects and translations that the passes and the emission need.
void registerCpuDialects(mlir::DialectRegistry &registry);

} // namespace llmopt::cpu

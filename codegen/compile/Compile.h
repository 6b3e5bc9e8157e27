// The facade of the compiler: spec in, program (bundle) out.
#pragma once

#include "codegen/cpu/Object.h"
#include "runtime/bundle/Program.h"
#include "runtime/target/CpuInfo.h"
#include "runtime/target/CudaTarget.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/Error.h"

namespace llmopt {

struct CompileOptions {
  cpu::CpuTargetOptions cpu;  ///< code is made for it
  runtime::CpuTarget numbers; ///< the schedule follows from them
  std::vector<int64_t> rows;  ///< tile rows of the attend kernels; empty: the schedule's choice
  int64_t keys = 0;           ///< keys of a tile; 0: the schedule's choice
  /// Compile for this CUDA architecture ("sm_80") instead of the CPU.
  std::string cudaArch;
  runtime::CudaTarget cudaNumbers; ///< of it
  /// No machine code: the simulator runs PTX, which takes two thirds of the time to make.
  bool ptxOnly = false;
};

/// Options for the machine that runs this process, as LLMOPT_CPU_FEATURES lets it be seen.
llvm::Expected<CompileOptions> hostOptions();

/// Options for a target's name: "cpu" is `hostOptions`, "cuda:sm_80" a CUDA architecture.
llvm::Expected<CompileOptions> optionsFor(llvm::StringRef target);

/// A stage of the pipeline as text. Vector, Llvm and Asm are the CPU's; Gpu (the tile program
/// after the GPU passes), Cuda and Ptx are CUDA's.
enum class Stage { Attn, Tile, Vector, Llvm, Asm, Gpu, Cuda, Ptx };

/// Registers every dialect that specs and stages use.
void registerDialects(mlir::DialectRegistry &registry);

/// All spec functions of a module: those that hold attn ops.
std::vector<mlir::func::FuncOp> specsOf(mlir::ModuleOp module);

/// The key that `compileSpec` gives its program, without compiling: 64 hexadecimal digits
/// of all that decides the program's bytes.
llvm::Expected<std::string> specKey(mlir::func::FuncOp spec, const CompileOptions &options);

/// Compiles one spec function for the target of the options; CUDA needs NVRTC. Diagnostics
/// go to the context's handler; the error repeats the first of them.
llvm::Expected<bundle::Program> compileSpec(mlir::func::FuncOp spec, const CompileOptions &options);

/// All of these specs, as `compileSpec` does one; on CUDA their kernels are compiled at a time.
llvm::Expected<std::vector<bundle::Program>> compileSpecs(llvm::ArrayRef<mlir::func::FuncOp> specs,
                                                          const CompileOptions &options);

/// The text of a stage of a spec function.
llvm::Expected<std::string> stageText(mlir::func::FuncOp spec, Stage stage,
                                      const CompileOptions &options);

/// How many specs this process has compiled.
uint64_t compileCount();

} // namespace llmopt

// The facade of the compiler: spec in, program (bundle) out.
#pragma once

#include "codegen/cpu/Object.h"
#include "runtime/bundle/Program.h"
#include "runtime/target/CpuInfo.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/Error.h"

namespace llmopt {

struct CompileOptions {
  cpu::CpuTargetOptions cpu;  ///< code is made for it
  runtime::CpuTarget numbers; ///< the schedule follows from them
  std::vector<int64_t> rows;  ///< tile rows of the attend kernels; empty: the schedule's choice
  int64_t keys = 0;           ///< keys of a tile; 0: the schedule's choice
};

/// Options for the machine that runs this process, as LLMOPT_CPU_FEATURES lets it be seen.
llvm::Expected<CompileOptions> hostOptions();

/// A stage of the pipeline as text.
enum class Stage { Attn, Tile, Vector, Llvm, Asm };

/// Registers every dialect that specs and stages use.
void registerDialects(mlir::DialectRegistry &registry);

/// All spec functions of a module: those that hold attn ops.
std::vector<mlir::func::FuncOp> specsOf(mlir::ModuleOp module);

/// The key that `compileSpec` gives its program, without compiling: 64 hexadecimal digits
/// of all that decides the program's bytes.
llvm::Expected<std::string> specKey(mlir::func::FuncOp spec, const CompileOptions &options);

/// Compiles one spec function for the CPU. Diagnostics go to the context's handler; the
/// error repeats the first of them.
llvm::Expected<bundle::Program> compileSpec(mlir::func::FuncOp spec, const CompileOptions &options);

/// The text of a stage of a spec function.
llvm::Expected<std::string> stageText(mlir::func::FuncOp spec, Stage stage,
                                      const CompileOptions &options);

/// How many specs this process has compiled.
uint64_t compileCount();

} // namespace llmopt

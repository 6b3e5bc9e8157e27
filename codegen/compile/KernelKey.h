// The key that a compiled spec is kept under.
#pragma once

#include "codegen/compile/Compile.h"
#include "passes/attn/Schedule.h"

#include "llvm/ADT/StringRef.h"

namespace llmopt {

/// Hash of the sources that decide what code a spec becomes: dialect, passes, codegen and
/// what they share with the runtime. Made by the build (tools/cmake/CompilerVersion.cmake).
llvm::StringRef compilerVersion();

/// Content key, 64 hex digits: canonical IR, tiles, target with exact options, LLVM and ABI
/// version, and the compiler's own.
std::string kernelKey(llvm::StringRef ir, const Schedule &schedule, const CompileOptions &options,
                      llvm::StringRef compiler = compilerVersion());

} // namespace llmopt

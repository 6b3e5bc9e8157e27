// See KernelKey.h.
#include "codegen/compile/KernelKey.h"
#include "codegen/compile/CompilerVersion.inc"

#include "runtime/bundle/WorkItem.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/SHA256.h"

using namespace llmopt;
using llvm::StringRef;

StringRef llmopt::compilerVersion() { return kCompilerVersion; }

std::string llmopt::kernelKey(StringRef ir, const Schedule &schedule,
                              const cpu::CpuTargetOptions &target, StringRef compiler) {
  llvm::SHA256 hash;
  auto add = [&](StringRef text) {
    hash.update(text);
    hash.update(StringRef("\0", 1));
  };
  add(ir);
  for (int64_t rows : schedule.rows)
    add(std::to_string(rows));
  add(std::to_string(schedule.keys));
  add(target.triple);
  add(target.cpu);
  add(target.features);
  add(std::to_string(target.optLevel));
  add(LLVM_VERSION_STRING);
  add(std::to_string(bundle::kAbiVersion));
  add(compiler);
  return llvm::toHex(hash.final(), /*LowerCase=*/true);
}

// See KernelKey.h.
#include "codegen/compile/KernelKey.h"
#include "codegen/compile/CompilerVersion.inc"
#include "codegen/compile/CudaCompile.h"

#include "runtime/bundle/WorkItem.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/SHA256.h"

using namespace llmopt;
using llvm::StringRef;

StringRef llmopt::compilerVersion() { return kCompilerVersion; }

std::string llmopt::kernelKey(StringRef ir, const Schedule &schedule, const CompileOptions &options,
                              StringRef compiler) {
  llvm::SHA256 hash;
  auto add = [&](StringRef text) {
    hash.update(text);
    hash.update(StringRef("\0", 1));
  };
  add(ir);
  auto addAll = [&](llvm::ArrayRef<int64_t> numbers) {
    add(std::to_string(numbers.size()));
    for (int64_t number : numbers)
      add(std::to_string(number));
  };
  addAll(schedule.rows);
  add(std::to_string(schedule.keys));
  addAll(schedule.heads);
  if (!options.cudaArch.empty()) {
    addAll(schedule.slices);
    addAll({schedule.warps, schedule.stages});
    addAll(schedule.blocks);
    addAll(std::vector<int64_t>(schedule.readsAhead.begin(), schedule.readsAhead.end()));
    add(cudaKeyText(options));
  }
  const cpu::CpuTargetOptions &target = options.cpu;
  add(target.triple);
  add(target.cpu);
  add(target.features);
  add(target.slowBf16Dot ? "slow-bf16-dot" : "");
  add(std::to_string(target.optLevel));
  add(LLVM_VERSION_STRING);
  add(std::to_string(bundle::kAbiVersion));
  add(compiler);
  return llvm::toHex(hash.final(), /*LowerCase=*/true);
}

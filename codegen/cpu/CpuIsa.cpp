// Feature names to vector facts.
#include "codegen/cpu/CpuIsa.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringSet.h"

using namespace llmopt::cpu;

CpuIsa CpuIsa::fromFeatures(llvm::StringRef features) {
  llvm::StringSet<> on;
  llvm::SmallVector<llvm::StringRef> names;
  features.split(names, ',', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  for (llvm::StringRef name : names) {
    name = name.trim();
    if (name.consume_front("-"))
      on.erase(name);
    else
      on.insert(name.ltrim('+'));
  }
  CpuIsa isa;
  bool avx512 = on.contains("avx512f"), avx2 = on.contains("avx2") || avx512;
  isa.lanes = avx512 ? 16 : avx2 ? 8 : 4;
  isa.registers = avx512 ? 32 : 16;
  isa.fma = on.contains("fma") || avx512;
  isa.f16c = on.contains("f16c") || avx512;
  isa.sse41 = on.contains("sse4.1") || on.contains("avx") || avx2;
  isa.scalef = avx512 && on.contains("avx512dq");
  isa.bf16Dot = on.contains("avx512bf16");
  isa.slowBf16Dot = on.contains("slow-bf16-dot");
  return isa;
}

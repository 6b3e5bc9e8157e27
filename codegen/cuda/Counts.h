// Instructions that decide a kernel's speed: how many its tiles imply, and how many NVRTC made.
#pragma once

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>

namespace llmopt::cuda {

struct InstructionCounts {
  int64_t products = 0;    ///< mma.sync.m16n8k16
  int64_t matrixLoads = 0; ///< ldmatrix
  int64_t wideCopies = 0;  ///< cp.async of 16 bytes: K, V and Q on their way to shared memory

  bool operator==(const InstructionCounts &) const = default;
};

/// What the text of a kernel after tile-gpu-sync must become, by the layouts of its tiles.
InstructionCounts impliedBy(mlir::func::FuncOp kernel);

/// What stands in PTX text.
InstructionCounts foundIn(llvm::StringRef ptx);

} // namespace llmopt::cuda

// The tables of a program that follow from the spec alone, and from its lowered kernels.
#pragma once

#include "passes/Passes.h"
#include "runtime/bundle/Program.h"

#include "mlir/IR/BuiltinOps.h"

namespace llmopt {

/// Buffers, slots, scalars and attention facts of a spec; no kernels, no image.
bundle::Program programOf(const Signature &signature, const Schedule &schedule);

/// Facts of one kernel of a lowered module, with the scratch that lowering has recorded.
bundle::Kernel kernelFacts(mlir::ModuleOp lowered, const bundle::AttentionFacts &facts,
                           const Schedule &schedule, const KernelName &kernel);

} // namespace llmopt

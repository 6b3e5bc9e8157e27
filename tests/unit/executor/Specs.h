// Specs of the tiny model's layers, and the compile function that the executor is given.
#pragma once

#include "TinyModel.h"

#include "runtime/executor/LayerKernels.h"

#include <string>

namespace llmopt::test {

/// A layer group of the tiny model.
struct TinyGroup {
  std::vector<uint32_t> layers;
  uint32_t pageSize = 16;
  uint32_t window = 0, sink = 0; ///< window 0: every key
  bool headMajor = false, interleaved = false, indptr = false;
  uint32_t chunk = 0; ///< with window 0; 0: no chunks
};

struct SpecOptions {
  TinyConfig model;
  bool invariant = true;
  unsigned rows = 0;  ///< of a tile, where not invariant; 0: as the target likes
  bool trees = false; ///< paged kernels know trees of drafts
};

/// `order`: "causal", or a tree.
std::string maskOf(const TinyGroup &group, const char *order = "causal");
std::string appendSpec(const SpecOptions &options, const TinyGroup &group);
std::string pagedSpec(const SpecOptions &options, const TinyGroup &group);
/// Without pages: (1, tokens, heads, dimension) arrays.
std::string aloneSpec(const SpecOptions &options, const TinyGroup &group);

/// Compiles a spec for this machine, each text once.
StatusOr<bundle::Program> compileText(const std::string &text);

/// As the executor and the block manager want it.
LayerGroup layerGroup(const TinyConfig &model, const TinyGroup &group);

/// "append 0", "attend 0", ... of the groups.
KernelSource kernelsOf(const SpecOptions &options, const std::vector<TinyGroup> &groups);
std::vector<KernelRule> rulesOf(const std::vector<TinyGroup> &groups, uint32_t prefillTokens,
                                uint32_t maxDraft);

} // namespace llmopt::test

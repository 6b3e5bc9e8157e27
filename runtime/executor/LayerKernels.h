// Which kernel runs which rows: for each layer group a kernel that appends, and kernels
// that attend, chosen by a row's phase and number of query tokens. All is compiled or
// loaded, checked and bound before the first step; a row that no kernel serves is refused
// here.
//
//   {.group = 0, .phase = Prefill, .minQueries = 1, .maxQueries = 512, .kernel = "prefill"}
//   {.group = 0, .phase = Decode,  .minQueries = 1, .maxQueries = 1,   .kernel = "decode"}
//
// Rows of a step that share a kernel share a plan; rows of different kernels have plans and
// launches of their own. Batch invariance across phases needs kernels with the same tile of
// keys and the same split length, or simply one kernel for all phases.
#pragma once

#include "runtime/base/Checked.h"
#include "runtime/device/Arguments.h"
#include "runtime/device/Device.h"
#include "runtime/kv/Groups.h"
#include "runtime/scheduler/StepInput.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace llmopt::runtime {

/// Layers that share block tables.
struct LayerGroup {
  kv::GroupSpec pages;          ///< as the block manager's
  std::vector<uint32_t> layers; ///< of the model
  uint32_t queryHeads = 0, kvHeads = 0, keyDim = 0, valueDim = 0;
  bundle::ElementType type = bundle::ElementType::F32; ///< of Q, K, V, the cache and the output
  /// How the kernels see a page: (slots, heads, dimension) or (heads, slots, dimension); K and V
  /// in one pool or in two. Tables of either form do.
  bundle::KvOrder kvOrder = bundle::KvOrder::TokenMajor;
  bool interleaved = false;
  std::string appendKernel;
  /// Further arrays of the kernels (a sink's logits) for each layer, in the order of
  /// `layers`; empty where there are none. And values for the kernels' numbers.
  std::vector<std::map<std::string, ArrayRef, std::less<>>> extraArrays;
  std::map<std::string, ScalarValue, std::less<>> numbers;

  /// Of K and V of one layer in a page. A page holds, for each layer, K and then V.
  uint64_t layerBytes() const {
    uint64_t row = productOrMost(uint64_t(keyDim) + valueDim, bytesOf(type));
    return productOrMost(productOrMost(row, kvHeads), pages.pageSize);
  }
};

/// Rows of a phase with minQueries to maxQueries tokens run on a kernel.
struct KernelRule {
  uint32_t group = 0;
  step::Phase phase = step::Phase::Prefill;
  uint32_t minQueries = 1, maxQueries = 1;
  std::string kernel;
};

/// "prefill", "decode", "verify".
std::string_view toString(step::Phase phase);

/// Gives the bundles of a kernel's name, for one or several targets: compiled now, or loaded
/// from a file. The application's; the runtime has no compiler.
using KernelSource = std::function<StatusOr<std::vector<bundle::Program>>(const std::string &name)>;

/// The loaded kernels, and the choice among them.
class LayerKernels {
public:
  struct Limits {
    uint32_t prefillTokens = 1; ///< of a row at most
    uint32_t maxDraft = 0;
    bool trees = false; ///< of drafts: verify rows need kernels with the mask `tree`
  };
  struct Choice {
    uint32_t minQueries, maxQueries;
    uint32_t kernel; ///< in `attend(group)`
  };
  struct Group {
    std::shared_ptr<DeviceProgram> append;
    std::vector<std::shared_ptr<DeviceProgram>> attend;
    std::vector<std::string> attendNames; ///< as the rules call them
    std::vector<Choice> choices[3];       ///< of each phase, ascending, without a gap
  };

  /// InvalidArgument where a rule overlaps another, a row within the limits has none, or a
  /// kernel is made for other heads, types or pages than its group's.
  static StatusOr<LayerKernels> load(Device &device, std::span<const LayerGroup> groups,
                                     std::span<const KernelRule> rules, const Limits &limits,
                                     const KernelSource &source);

  const Group &group(uint32_t index) const { return loaded[index]; }
  /// Of a row within the limits.
  uint32_t choose(uint32_t group, step::Phase phase, uint32_t queries) const;

private:
  std::vector<Group> loaded;
};

} // namespace llmopt::runtime

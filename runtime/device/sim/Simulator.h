// Runs PTX on the CPU, for machines without a GPU: the very text that NVRTC
// produced, warp by warp, with every memory access checked.
//
//   StatusOr<std::shared_ptr<const Module>> module = loadPtx(text, "decode.ptx");
//   GlobalMemory memory;
//   memory.add(q.data(), q.size(), "q", Access::ReadOnly);
//   StatusOr<Counters> counters = run(**module, memory, launch, {});
//
// Words: a *warp* is 32 *lanes* that execute together; a *block* is a group of
// warps with common shared memory; a *fault* is a mistake of the kernel that
// the simulator found (an access out of bounds, a barrier that some lanes never
// reach). What is simulated is the function, not the timing. A result depends
// neither on the number of host threads nor on luck: blocks that use atomics on
// global memory run one after another.
//
// Reference: PTX ISA 9.0 (NVIDIA); where it leaves a choice, the comment at the
// place says what was chosen.
#pragma once

#include "runtime/base/Status.h"
#include "runtime/device/sim/Counters.h"
#include "runtime/device/sim/Fault.h"
#include "runtime/device/sim/GlobalMemory.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace llmopt::sim {

/// One entry of a kernel's .param list.
struct KernelParam {
  std::string name;
  uint32_t offset = 0; ///< bytes from the start of the parameter space
  uint32_t size = 0;   ///< bytes
  uint32_t align = 1;  ///< bytes
};

/// What a caller must know to launch a kernel.
struct KernelInfo {
  std::string name;
  std::vector<KernelParam> params;
  uint32_t paramBytes = 0;   ///< size of the parameter space
  uint32_t staticShared = 0; ///< bytes of shared memory declared with a size
  uint32_t localBytes = 0;   ///< bytes of local memory of one thread
  /// .maxntid, .reqntid and .minnctapersm; zeros where the kernel has none.
  std::array<uint32_t, 3> maxThreads = {0, 0, 0};
  std::array<uint32_t, 3> requiredThreads = {0, 0, 0};
  /// .reqnctapercluster, zeros where the kernel has none; .explicitcluster.
  std::array<uint32_t, 3> requiredCluster = {0, 0, 0};
  bool explicitCluster = false;
};

namespace detail {
struct Program;
} // namespace detail

/// A PTX text, parsed and decoded. Immutable; any number of threads may run it.
class Module {
public:
  explicit Module(std::unique_ptr<const detail::Program> program);
  ~Module();

  /// As given to loadPtx; for messages.
  const std::string &name() const;
  /// The .target directive: "sm_80", "sm_90a".
  const std::string &target() const;
  const std::vector<KernelInfo> &kernels() const;
  /// Null if there is no such kernel.
  const KernelInfo *kernel(std::string_view name) const;

  const detail::Program &program() const { return *decoded; }

private:
  std::unique_ptr<const detail::Program> decoded;
};

/// A comment of this form in a PTX text says that lines of its (CUDA) source come
/// from a line of a spec: "//llmopt.spec 120 134 decode.mlir:7". Faults name both.
inline constexpr std::string_view kSpecComment = "//llmopt.spec ";

/// Parses and decodes all kernels of a PTX text. `name` stands in messages
/// ("decode.ptx:118: unsupported instruction ..."). InvalidArgument: the text is
/// not PTX; Unsupported: an instruction, directive or modifier that the
/// simulator does not know, wherever in the text it is.
runtime::StatusOr<std::shared_ptr<const Module>> loadPtx(std::string_view ptx,
                                                         std::string_view name);

struct Launch {
  std::string_view kernel;
  std::array<uint32_t, 3> grid = {1, 1, 1};
  std::array<uint32_t, 3> block = {1, 1, 1};
  /// Bytes of the kernel's `extern .shared` array.
  uint32_t dynamicShared = 0;
  /// The kernel's parameter space, laid out as KernelInfo::params says.
  std::span<const std::byte> params;
  /// Blocks of a cluster; zeros: as the kernel requires, else one.
  std::array<uint32_t, 3> cluster = {0, 0, 0};
};

struct Options {
  /// Host threads, with the caller; 0: as many as this process may use.
  uint32_t threads = 0;
  /// Warp instructions that one block may execute before it counts as hanging.
  uint64_t stepBudget = uint64_t{1} << 32;
  /// Other than 0: permutes the order of blocks and of warps. A kernel whose
  /// result changes with it depends on luck.
  uint64_t seed = 0;
  /// More than 1: runs the grid that many times on the same data, with the seeds
  /// from `seed` on; it is a fault if the bits that they leave differ.
  uint32_t orders = 1;
  /// Finds races, reads of what was never written and missing waits as well;
  /// such a run takes about twice the time.
  bool strict = true;
  /// What cannot be decided (see isUnproven) is a fault and no warning.
  bool unprovenFaults = false;
};

/// Runs one grid to its end. A mistake of the kernel is InvalidArgument with the
/// text of the fault (and the fault itself in `*fault`); where several blocks
/// have one, it is that of the first block. What the blocks wrote until then
/// stays written. A launch that does not fit the kernel is InvalidArgument too.
/// `*profile` gets what each instruction and each buffer saw; `*warnings` what
/// isUnproven, each instruction's once.
runtime::StatusOr<Counters> run(const Module &module, GlobalMemory &memory, const Launch &launch,
                                const Options &options = {}, Fault *fault = nullptr,
                                Profile *profile = nullptr, std::vector<Fault> *warnings = nullptr);

} // namespace llmopt::sim

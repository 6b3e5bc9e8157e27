// CUDA chips as plain numbers: what GPU schedules are chosen by. From NVIDIA's CUDA C++
// Programming Guide (technical specifications per compute capability) and, for rates, the
// data sheets of one card each (A100 80GB, A10, L4, H100 SXM, B200, RTX 5090).
#pragma once

#include "runtime/base/Status.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace llmopt::runtime {

struct CudaTarget {
  uint32_t arch = 80;               ///< 10 * major + minor
  uint64_t sharedBytesPerBlock = 0; ///< most that one block can ask for
  uint64_t sharedBytesPerSm = 0;
  uint32_t registersPerSm = 65536;
  uint32_t threadsPerSm = 2048;
  uint32_t blocksPerSm = 32;
  uint32_t sms = 0;
  uint64_t l2Bytes = 0;
  double bandwidth = 0;  ///< bytes a second
  double tensorRate = 0; ///< floating operations a second, bf16 with f32 sums, dense
  double plainRate = 0;  ///< the same on the plain units, f32

  bool operator==(const CudaTarget &) const = default;
};

/// What a block asks of a multiprocessor.
struct BlockNeeds {
  uint32_t threads = 0;
  uint32_t registers = 0; ///< of a thread
  uint64_t sharedBytes = 0;
};

/// Blocks that a multiprocessor holds at a time, and what allows no more: "registers",
/// "shared memory", "threads" or "blocks".
struct Residency {
  uint32_t blocks = 0;
  const char *limit = "";
};

/// Shared memory that the system takes for each block beside its own.
inline constexpr uint64_t kReservedSharedBytes = 1024;

Residency residentBlocks(const CudaTarget &target, const BlockNeeds &block);

/// Registers that a thread may take so that `blocks` blocks of `threads` threads are resident.
uint32_t registerBudget(const CudaTarget &target, uint32_t threads, uint32_t blocks);

/// The chips of the table, ascending.
std::span<const CudaTarget> cudaTargets();

/// Numbers for "sm_80", "sm_90a", ...: those of the same chip, or of the latest older one, which
/// `arch` tells. InvalidArgument lists what there is.
StatusOr<CudaTarget> cudaTargetOf(std::string_view arch);

} // namespace llmopt::runtime

// See CudaTarget.h.
#include "runtime/target/CudaTarget.h"
#include "runtime/target/CudaArch.h"

#include <algorithm>
#include <array>

namespace llmopt::runtime {
namespace {

constexpr uint64_t kKiB = 1024, kMiB = 1024 * kKiB;

constexpr std::array<CudaTarget, 6> kTargets = {{
    {80, 163 * kKiB, 164 * kKiB, 65536, 2048, 32, 108, 40 * kMiB, 2039e9, 312e12, 19.5e12},
    {86, 99 * kKiB, 100 * kKiB, 65536, 1536, 16, 72, 6 * kMiB, 600e9, 125e12, 31.2e12},
    {89, 99 * kKiB, 100 * kKiB, 65536, 1536, 24, 58, 48 * kMiB, 300e9, 121e12, 30.3e12},
    {90, 227 * kKiB, 228 * kKiB, 65536, 2048, 32, 132, 50 * kMiB, 3350e9, 989e12, 66.9e12},
    {100, 227 * kKiB, 228 * kKiB, 65536, 2048, 32, 148, 126 * kMiB, 8000e9, 2250e12, 80e12},
    {120, 99 * kKiB, 100 * kKiB, 65536, 1536, 24, 170, 96 * kMiB, 1792e9, 209e12, 104.8e12},
}};

// A multiprocessor has four parts; a warp belongs to one and takes registers in pieces of 256.
constexpr uint32_t kParts = 4, kLanes = 32, kRegisterUnit = 8, kMostRegisters = 255;
constexpr uint64_t kSharedUnit = 128;

template <typename T> T roundUp(T value, T unit) { return (value + unit - 1) / unit * unit; }

} // namespace

Residency residentBlocks(const CudaTarget &target, const BlockNeeds &block) {
  uint32_t warps = std::max(1u, roundUp(block.threads, kLanes) / kLanes);
  uint32_t ofWarp = roundUp(std::max(1u, block.registers), kRegisterUnit) * kLanes;
  Residency result{target.blocksPerSm, "blocks"};
  auto limit = [&](uint64_t blocks, const char *by) {
    if (blocks < result.blocks)
      result = {uint32_t(blocks), by};
  };
  limit(target.threadsPerSm / (warps * kLanes), "threads");
  limit(target.registersPerSm / kParts / ofWarp * kParts / warps, "registers");
  limit(target.sharedBytesPerSm / roundUp(block.sharedBytes + kReservedSharedBytes, kSharedUnit),
        "shared memory");
  return result;
}

uint32_t registerBudget(const CudaTarget &target, uint32_t threads, uint32_t blocks) {
  uint32_t share = target.registersPerSm / std::max(1u, threads * blocks);
  return std::min(kMostRegisters, share / kRegisterUnit * kRegisterUnit);
}

std::span<const CudaTarget> cudaTargets() { return kTargets; }

StatusOr<CudaTarget> cudaTargetOf(std::string_view arch) {
  StatusOr<CudaArch> parsed = CudaArch::parse(arch);
  if (!parsed)
    return parsed.status();
  const CudaTarget *best = nullptr;
  for (const CudaTarget &target : kTargets)
    if (target.arch <= parsed->number())
      best = &target;
  if (best)
    return *best;
  std::string known;
  for (const CudaTarget &target : kTargets)
    known += (known.empty() ? "sm_" : ", sm_") + std::to_string(target.arch);
  return makeStatus(StatusCode::InvalidArgument,
                    "no numbers for target '{}'; there are some for {}", arch, known);
}

} // namespace llmopt::runtime

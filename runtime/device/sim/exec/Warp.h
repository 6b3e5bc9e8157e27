// A warp while it runs: its registers, which lanes stand where, its copies that
// are under way.
#pragma once

#include "runtime/base/AlignedBuffer.h"
#include "runtime/device/sim/Counters.h"
#include "runtime/device/sim/decode/Program.h"

#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

namespace llmopt::sim {

class Block;

/// Lanes of a warp that stand at the same instruction.
struct Path {
  enum class State : uint8_t {
    Ready,
    Converging, ///< waits for other lanes of the warp
    AtBarrier,  ///< waits for other warps of the block
  };
  uint32_t pc = 0;
  LaneMask lanes = 0;
  State state = State::Ready;
  uint8_t barrier = 0; ///< number, for AtBarrier
};

/// cp.async of one lane that no wait has completed. The bytes arrive at the
/// wait and not before, so that a kernel without it reads garbage.
struct AsyncCopy {
  uint64_t source = 0;
  uint32_t target = 0;      ///< shared address
  uint16_t bytes = 0;       ///< written
  uint16_t sourceBytes = 0; ///< read; the rest is zero
  uint32_t lane = 0;
  uint32_t group = 0; ///< commits of the lane before the copy
};

/// What one host thread counts of an instruction.
struct InstTally : AccessCounts {
  uint64_t issued = 0;
  uint64_t lanes = 0;

  InstTally &operator+=(const InstTally &other);
};

/// Of a buffer in global memory.
struct BufferTally {
  uint64_t loadBytes = 0;
  uint64_t storeBytes = 0;
  uint64_t sectors = 0;
  std::vector<uint64_t> loaded, stored; ///< a bit for each sector

  BufferTally &operator+=(const BufferTally &other);
};

/// What one host thread counts.
struct Tally {
  std::vector<InstTally> at;        ///< by instruction
  std::vector<BufferTally> buffers; ///< as in the memory; empty if nobody asked
  uint64_t mmaMultiplyAdds = 0;
  uint64_t barriers = 0;

  Tally &operator+=(const Tally &other);
};

struct Warp {
  Block *block = nullptr;
  const Kernel *kernel = nullptr;
  Tally *tally = nullptr;
  uint32_t index = 0; ///< in the block
  LaneMask alive = 0; ///< lanes that have not exited
  uint32_t pc = 0;    ///< of the instruction that is being executed
  bool faulted = false;
  bool turnedOver = false; ///< this turn goes to the path that stands highest
  uint32_t dividedTurns = 0;
  uint32_t barrierNumber = 0; ///< of the barrier that was just arrived at
  std::vector<Path> paths;
  std::vector<AsyncCopy> copies;
  std::array<uint32_t, kLanes> committed = {}; ///< cp.async groups, by lane
  runtime::AlignedBuffer registers;
  std::vector<LaneMask> predicates;
  std::vector<LaneMask> undefined; ///< by Kernel::tracked; empty if the run is not strict
  LaneMask carry = 0;              ///< the condition code of add.cc and its like
  std::vector<std::byte> local;    ///< KernelInfo::localBytes for each lane

  uint32_t *narrow(uint32_t row) const {
    return reinterpret_cast<uint32_t *>(registers.data() + row);
  }
  uint64_t *wide(uint32_t row) const {
    return reinterpret_cast<uint64_t *>(registers.data() + row);
  }
  const uint32_t *list(const Inst &inst) const { return kernel->lists.data() + inst.list; }

  void setPredicate(uint32_t number, LaneMask value, LaneMask lanes) {
    predicates[number] = (predicates[number] & ~lanes) | (value & lanes);
  }

  /// Stops the block with a fault at the current instruction.
  void fault(FaultKind kind, std::optional<uint32_t> lane, std::optional<uint64_t> address,
             std::string detail, std::string buffer = {});
};

inline bool has(LaneMask mask, uint32_t lane) { return mask >> lane & 1; }

/// Calls f(lane) for each lane of the mask.
template <typename F> inline void forEachLane(LaneMask mask, F &&f) {
  if (mask == kAllLanes) {
    for (uint32_t lane = 0; lane < kLanes; ++lane)
      f(lane);
    return;
  }
  for (; mask; mask &= mask - 1)
    f(static_cast<uint32_t>(std::countr_zero(mask)));
}

} // namespace llmopt::sim

// A warp while it runs: its registers, which lanes stand where, its copies that
// are under way.
#pragma once

#include "runtime/base/AlignedBuffer.h"
#include "runtime/device/sim/Counters.h"
#include "runtime/device/sim/decode/Program.h"
#include "runtime/device/sim/exec/BulkCopy.h"

#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

namespace llmopt::sim {

class Block;
struct MBarrier;

/// Lanes of a warp that stand at the same instruction.
struct Path {
  enum class State : uint8_t {
    Ready,
    Converging, ///< waits for other lanes of the warp
    AtBarrier,  ///< waits for other warps of the block
    Waiting,    ///< for an mbarrier, or the barrier of the cluster
    AtGroup,    ///< waits for the other warps of its warpgroup
  };
  uint32_t pc = 0;
  LaneMask lanes = 0;
  State state = State::Ready;
  uint8_t barrier = 0;                ///< number, for AtBarrier
  const MBarrier *mbarrier = nullptr; ///< that it waits for
  bool timedOut = false;              ///< the wait ends without what it waited for
  uint64_t seen = 0;                  ///< Cluster::events when the wait looked last
};

/// cp.async of one lane that no wait has completed. The bytes arrive at the
/// wait and not before, so that a kernel without it reads garbage.
struct AsyncCopy {
  uint64_t source = 0;
  uint32_t target = 0;      ///< shared address
  uint16_t bytes = 0;       ///< written
  uint16_t sourceBytes = 0; ///< read; the rest is zero
  uint32_t lane = 0;
  uint32_t group = 0;  ///< commits of the lane before the copy
  uint32_t number = 0; ///< copies of the warp before it
};

/// A bulk copy from shared memory that no wait has completed. The bytes are read at
/// the wait, so that a kernel which overwrites them before stores something else.
struct BulkStore {
  BulkCopy copy;
  uint32_t lane = 0;
  uint32_t group = 0; ///< commits of the lane before the copy
  uint32_t time = 0;  ///< number among the stores of the warp, from 1
  uint32_t pc = 0;
};

/// wgmma groups of a warp, numbered from 1.
struct WgmmaGroups {
  uint32_t fences = 1; ///< wgmma.fence, counted from 1
  uint32_t committed = 0;
  uint32_t completed = 0;
};

/// What is under way to or from a register that wgmmas work on.
struct WgmmaRegister {
  uint32_t touched = 0;     ///< WgmmaGroups::fences when another instruction used it
  uint32_t accumulates = 0; ///< the last group that adds to it
  uint32_t fragment = 0;    ///< the last group that reads it
  // The last wgmma that used it: WgmmaGroups::fences then, as what, and its Inst::mode (shape).
  uint32_t product = 0;
  bool summed = false;
  uint8_t shape = 0;
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
  uint32_t agent = 0; ///< in the cluster
  LaneMask alive = 0; ///< lanes that have not exited
  uint32_t pc = 0;    ///< of the instruction that is being executed
  bool faulted = false;
  bool turnedOver = false; ///< this turn goes to the path that stands highest
  uint32_t dividedTurns = 0;
  LaneMask blocked = 0;             ///< lanes that the instruction left waiting
  bool timedOut = false;            ///< the instruction need not wait any longer
  const MBarrier *polled = nullptr; ///< by the last instruction that asks for one
  bool yielded = false;             ///< it polled in vain: the turn goes to others
  uint32_t barrierNumber = 0;       ///< of the barrier that was just arrived at
  std::vector<Path> paths;
  std::vector<AsyncCopy> copies;
  uint32_t copiesBegun = 0;
  std::array<uint32_t, kLanes> committed = {}; ///< cp.async groups, by lane
  std::vector<BulkStore> bulkStores;
  std::array<uint32_t, kLanes> bulkCommitted = {}; ///< bulk groups, by lane
  uint32_t bulkTime = 0;                           ///< stores so far
  WgmmaGroups wgmma;
  std::vector<WgmmaRegister> wgmmaRegisters; ///< empty if the run is not strict
  LaneMask clusterArrived = 0; ///< lanes that arrived at the cluster's barrier, for this phase
  uint64_t clusterPhase = 0;   ///< of the barrier when they did
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
  /// A warning: see isUnproven. Stops the block if such count as faults.
  /// This instruction has said so already.
  bool warned(FaultKind kind) const;
  void warn(FaultKind kind, std::optional<uint32_t> lane, std::optional<uint64_t> address,
            std::string detail);

  /// "line 28 (k.cu:5 of spec.mlir:2)" for another instruction: as far as its places are known.
  std::string lineOf(uint32_t otherPc) const;

private:
  Fault describe(FaultKind kind, std::optional<uint32_t> lane, std::optional<uint64_t> address,
                 std::string detail, std::string buffer) const;
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

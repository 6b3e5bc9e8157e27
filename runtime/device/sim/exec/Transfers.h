// Bulk copies under way: what starts them, and what ends those from shared memory.
#pragma once

#include "runtime/device/sim/exec/Access.h"

namespace llmopt::sim {

/// A copy from global memory to shared memory of `target`, for one lane. The bytes come
/// when somebody asks for the mbarrier. False after a fault of the warp.
bool startLoad(Warp &warp, uint32_t lane, const BulkCopy &copy, Block &target, MBarrier &barrier);
/// The same from shared memory of the warp's block (`copy.global` is an address there).
bool startRemoteStore(Warp &warp, uint32_t lane, const BulkCopy &copy, Block &target,
                      MBarrier &barrier);
/// A copy from shared to global memory, of the lane's current bulk group. The bytes are
/// read when the lane waits for the group. A reduction combines them with what is there then.
bool startStore(Warp &warp, uint32_t lane, const BulkCopy &copy);
/// What st.async stores, or red.async adds, for one lane.
struct AsyncValue {
  uint32_t address = 0, bytes = 0; ///< of shared memory
  std::array<std::byte, 16> data = {};
  Combine combine = nullptr; ///< of a reduction
};
/// The value comes when somebody asks for the mbarrier.
bool startAsyncStore(Warp &warp, uint32_t lane, const AsyncValue &value, Block &target,
                     MBarrier &barrier);
/// Ends all stores of these lanes but those of the last `pending` groups.
void waitForStores(Warp &warp, LaneMask lanes, uint32_t pending);
/// The warp has ended: stores that nobody waited for.
void finishBulkStores(Warp &warp);

} // namespace llmopt::sim

// What mbarriers and the copies that arrive at them have in common.
#pragma once

#include "runtime/device/sim/decode/InstDecoder.h"

namespace llmopt::sim {

class Block;

/// The block and the offset there of the mbarrier at an address of shared memory (or
/// a generic one); null and a fault of the warp if there can be none.
Block *mbarrierPlace(Warp &warp, bool generic, uint32_t lane, uint64_t address, uint32_t &offset);

/// The rest of cp.async.mbarrier.arrive.
runtime::Status decodeCopyArrival(InstDecoder &decoder);
/// The rest of cp.async.bulk, or of cp.reduce.async.bulk.
runtime::Status decodeBulkCopy(InstDecoder &decoder, bool reduces);

/// Ends the first `begun` cp.async of the warp that are this lane's, as of that time.
void deliverCopies(Warp &warp, uint32_t lane, uint32_t begun, uint32_t time);

} // namespace llmopt::sim

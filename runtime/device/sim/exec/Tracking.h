// Registers without a value. A lane may compute with one (compilers do, where
// the result does not matter); it may not branch on it, store it, use it as an
// address, or hand it to other lanes.
#pragma once

#include "runtime/device/sim/exec/Block.h"

namespace llmopt::sim {

/// Before an instruction with Inst::tracked runs for the lanes of `mask`, of
/// the `active` ones: checks what it reads and notes what it writes. False
/// after a fault.
bool trackRegisters(Warp &warp, const Inst &inst, LaneMask active, LaneMask mask);

/// The same for registers that wgmmas work on.
bool trackWgmma(Warp &warp, LaneMask mask);

} // namespace llmopt::sim

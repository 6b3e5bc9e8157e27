#include "runtime/device/sim/exec/Tracking.h"

namespace llmopt::sim {

bool trackRegisters(Warp &warp, const Inst &inst, LaneMask active, LaneMask mask) {
  if (warp.undefined.empty())
    return true; // not a strict run
  using Role = TrackedUse::Role;
  LaneMask missing = 0;
  for (const TrackedUse &use : warp.kernel->trackedUses[warp.pc]) {
    LaneMask &undefined = warp.undefined[use.reg];
    switch (use.role) {
    case Role::Guard:
    case Role::Needed: {
      LaneMask bad = undefined & (use.role == Role::Guard ? active : mask);
      if (!bad)
        break;
      warp.fault(FaultKind::UninitialisedRegister, std::countr_zero(bad), std::nullopt,
                 fmt::format("register '{}' has no value in lanes {:#010x}, or was computed from "
                             "one that has none",
                             warp.kernel->tracked[use.reg], bad));
      return false;
    }
    case Role::Passed:
      missing |= undefined;
      break;
    case Role::PassedIfTrue:
      missing |= undefined & warp.predicates[inst.c];
      break;
    case Role::PassedIfFalse:
      missing |= undefined & ~warp.predicates[inst.c];
      break;
    case Role::Result:
      undefined = (undefined & ~mask) | (missing & mask);
      break;
    }
  }
  return true;
}

} // namespace llmopt::sim

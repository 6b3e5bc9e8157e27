#include "runtime/device/sim/exec/Tracking.h"

#include "runtime/device/sim/ops/Modes.h"

namespace llmopt::sim {

namespace {

/// Lanes whose result has no value, given those where operand a, b and others
/// have none.
LaneMask resultMissing(const Warp &warp, const Inst &inst, LaneMask a, LaneMask b, LaneMask rest) {
  switch (inst.masking) {
  case Masking::None:
    return a | b | rest;
  case Masking::Select:
    return rest | (a & warp.predicates[inst.c]) | (b & ~warp.predicates[inst.c]);
  case Masking::And:
  case Masking::Or: {
    // A value that decides by itself is enough.
    LaneMask flip = inst.masking == Masking::And ? kAllLanes : 0;
    LaneMask decidesA = (predicateA(warp, inst) ^ flip) & ~a;
    LaneMask decidesB = (predicateB(warp, inst) ^ flip) & ~b;
    return ((a | b) & ~decidesA & ~decidesB) | rest;
  }
  }
  return rest;
}

} // namespace

bool trackRegisters(Warp &warp, const Inst &inst, LaneMask active, LaneMask mask) {
  if (!trackWgmma(warp, mask))
    return false;
  if (warp.undefined.empty())
    return true; // not a strict run, or nothing to watch
  using Role = TrackedUse::Role;
  LaneMask first = 0, second = 0, rest = 0;
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
    case Role::First:
      first |= undefined;
      break;
    case Role::Second:
      second |= undefined;
      break;
    case Role::Passed:
      rest |= undefined;
      break;
    case Role::Accumulator: // read if there is something to add to
      rest |= undefined & warp.predicates[inst.c];
      break;
    case Role::Result:
      undefined = (undefined & ~mask) | (resultMissing(warp, inst, first, second, rest) & mask);
      break;
    }
  }
  return true;
}

} // namespace llmopt::sim

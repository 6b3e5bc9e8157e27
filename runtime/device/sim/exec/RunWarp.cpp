// Control flow of a warp. Each lane has its own place in the code; lanes at the
// same place form a path, and the path with the lowest place runs. As the code
// of a branch lies between the branch and the place where its ways meet again,
// paths meet there and go on as one. When they have not met for many turns, the
// highest path gets one, so that lanes which spin on a lock do not keep the lane
// that holds it from going on. Instructions that need certain lanes
// (".sync") wait until these have arrived.
#include "runtime/device/sim/exec/Cluster.h"
#include "runtime/device/sim/exec/SharedChecks.h"
#include "runtime/device/sim/exec/Tracking.h"
#include "runtime/device/sim/ops/Modes.h"

#include <algorithm>

namespace llmopt::sim {

namespace {

/// Turns that end with several paths, in a row, before the highest gets one.
constexpr uint32_t kPatience = 16;

LaneMask executing(const Warp &warp, const Inst &inst, LaneMask active) {
  if (inst.guard == kNoGuard)
    return active;
  LaneMask guard = warp.predicates[inst.guard];
  return active & (inst.guardNegated ? ~guard : guard);
}

/// Lanes of `mask` that name the same members as the first of them.
LaneMask sameMembers(const Warp &warp, const Inst &inst, LaneMask mask, LaneMask &members) {
  const uint32_t *masks = warp.narrow(inst.c);
  members = masks[std::countr_zero(mask)];
  LaneMask same = 0;
  forEachLane(mask, [&](uint32_t lane) { same |= masks[lane] == members ? 1u << lane : 0; });
  return same;
}

/// The lanes that the instruction still waits for.
LaneMask missing(const Warp &warp, const Inst &inst, LaneMask mask) {
  if (inst.need == Need::None)
    return 0;
  if (inst.need != Need::Members)
    return warp.alive & ~mask;
  LaneMask lacking = 0;
  for (LaneMask rest = mask; rest;) {
    LaneMask members = 0;
    LaneMask same = sameMembers(warp, inst, rest, members);
    lacking |= members & warp.alive & ~same;
    rest &= ~same;
  }
  return lacking;
}

/// Lanes that wait for each other have seen what each of them did to shared memory.
void syncLanes(Warp &warp, const Inst &inst, LaneMask members) {
  if (warp.block->checks() && (inst.cls == InstClass::Collective || isWarpSync(inst)))
    warp.block->clocks()->syncLanes(warp.agent, members, warp.alive);
}

/// Executes a converging instruction, once for each group with the same members.
void runConverged(Warp &warp, const Inst &inst, LaneMask mask) {
  if (inst.need == Need::All && mask != kAllLanes) {
    warp.fault(FaultKind::DivergentSync, std::nullopt, std::nullopt,
               fmt::format("lanes {:#010x} have exited or do not exist; all 32 are needed", ~mask));
    return;
  }
  if (inst.need != Need::Members) {
    syncLanes(warp, inst, mask);
    return inst.run(warp, inst, mask);
  }
  for (LaneMask rest = mask; rest && !warp.faulted;) {
    LaneMask members = 0;
    LaneMask same = sameMembers(warp, inst, rest, members);
    if (same & ~members) {
      warp.fault(FaultKind::InvalidLane, std::countr_zero(same & ~members), std::nullopt,
                 fmt::format("the lane is not in its own member mask {:#010x}", members));
      return;
    }
    syncLanes(warp, inst, same);
    inst.run(warp, inst, same);
    rest &= ~same;
  }
}

/// Stands where others of the block decide when it goes on, all its lanes at once.
bool atBarrier(const Path &path) {
  return path.state == Path::State::AtBarrier || path.state == Path::State::AtGroup;
}

void mergePaths(std::vector<Path> &paths) {
  for (size_t i = 0; i < paths.size(); ++i) {
    for (size_t j = i + 1; j < paths.size();) {
      bool meet = paths[i].pc == paths[j].pc && !atBarrier(paths[i]) && !atBarrier(paths[j]);
      if (!meet) {
        ++j;
        continue;
      }
      paths[i].lanes |= paths[j].lanes;
      paths[i].state = Path::State::Ready;
      paths[j] = paths.back();
      paths.pop_back();
    }
  }
}

/// bar.warp.sync joins lanes from different places if they name the same lanes.
bool wakeWarpSync(Warp &warp) {
  auto members = [&](const Path &path) -> std::optional<LaneMask> {
    const Inst &inst = warp.kernel->code[path.pc];
    if (path.state != Path::State::Converging || !isWarpSync(inst))
      return std::nullopt;
    return warp.narrow(inst.c)[std::countr_zero(path.lanes)];
  };
  for (const Path &first : warp.paths) {
    std::optional<LaneMask> wanted = members(first);
    if (!wanted)
      continue;
    LaneMask arrived = 0;
    for (const Path &path : warp.paths)
      if (members(path) == wanted)
        arrived |= path.lanes;
    if (*wanted & warp.alive & ~arrived)
      continue;
    syncLanes(warp, warp.kernel->code[first.pc], arrived);
    for (Path &path : warp.paths) {
      if (members(path) != wanted)
        continue;
      path.state = Path::State::Ready;
      ++path.pc;
    }
    return true;
  }
  return false;
}

/// Paths whose missing lanes have exited meanwhile go on.
bool wakeComplete(Warp &warp) {
  bool woken = false;
  for (Path &path : warp.paths) {
    const Inst &inst = warp.kernel->code[path.pc];
    if (path.state != Path::State::Converging ||
        missing(warp, inst, executing(warp, inst, path.lanes)))
      continue;
    path.state = Path::State::Ready;
    woken = true;
  }
  return woken;
}

void reportDivergence(Warp &warp) {
  const Path *waiting = nullptr;
  std::string others;
  for (const Path &path : warp.paths) {
    if (!waiting && path.state == Path::State::Converging)
      waiting = &path;
    else
      others += fmt::format("{}lanes {:#010x} at {}", others.empty() ? "" : ", ", path.lanes,
                            warp.lineOf(path.pc));
  }
  warp.pc = waiting->pc;
  const Inst &inst = warp.kernel->code[waiting->pc];
  warp.fault(FaultKind::DivergentSync, std::countr_zero(waiting->lanes), std::nullopt,
             fmt::format("lanes {:#010x} wait for lanes {:#010x}, which never come ({})",
                         waiting->lanes, missing(warp, inst, waiting->lanes),
                         others.empty() ? "none is under way" : others));
}

Path *nextReady(Warp &warp) {
  Path *next = nullptr;
  for (Path &path : warp.paths)
    if (path.state == Path::State::Ready &&
        (!next || (warp.turnedOver ? path.pc > next->pc : path.pc < next->pc)))
      next = &path;
  return next;
}

/// Paths that wait look again when something has happened.
void wakeWaiting(Warp &warp) {
  for (Path &path : warp.paths)
    if (path.state == Path::State::Waiting && path.seen != warp.block->cluster().events())
      path.state = Path::State::Ready;
}

/// The path to run next; null if the warp waits for others, has ended, or has a
/// fault.
Path *pick(Warp &warp) {
  wakeWaiting(warp);
  if (warp.paths.size() > 1)
    mergePaths(warp.paths);
  if (Path *path = nextReady(warp))
    return path;
  if (warp.paths.empty())
    return nullptr;
  if (wakeComplete(warp) || wakeWarpSync(warp)) {
    mergePaths(warp.paths);
    return nextReady(warp);
  }
  bool others = std::any_of(warp.paths.begin(), warp.paths.end(), [](const Path &path) {
    return atBarrier(path) || path.state == Path::State::Waiting;
  });
  if (!others)
    reportDivergence(warp);
  return nullptr;
}

enum class Step : uint8_t { Continue, Repick };

/// Lanes under a false predicate step over an instruction that the others wait at.
void splitOff(Warp &warp, size_t index, LaneMask lanes) {
  if (!lanes)
    return;
  Path &path = warp.paths[index];
  path.lanes &= ~lanes;
  warp.paths.push_back({path.pc + 1, lanes, Path::State::Ready, 0});
}

Step branch(Warp &warp, size_t index, const Inst &inst, LaneMask taken) {
  Path &path = warp.paths[index];
  if (taken == path.lanes) {
    path.pc = inst.target;
    return Step::Continue;
  }
  if (!taken) {
    ++path.pc;
    return Step::Continue;
  }
  ++warp.tally->at[path.pc].divergentBranches;
  LaneMask rest = path.lanes & ~taken;
  uint32_t next = path.pc + 1;
  path.pc = inst.target;
  path.lanes = taken;
  warp.paths.push_back({next, rest, Path::State::Ready, 0});
  return Step::Repick;
}

Step branchTable(Warp &warp, size_t index, const Inst &inst, LaneMask taken) {
  uint32_t pc = warp.paths[index].pc;
  LaneMask rest = warp.paths[index].lanes & ~taken;
  const uint32_t *choice = warp.narrow(inst.a);
  for (LaneMask open = taken; open;) {
    auto lane = static_cast<uint32_t>(std::countr_zero(open));
    uint32_t value = choice[lane];
    if (value >= static_cast<uint64_t>(inst.imm)) {
      warp.fault(FaultKind::CallFailure, lane, std::nullopt,
                 fmt::format("index {} into a table of {} branch targets", value, inst.imm));
      return Step::Repick;
    }
    LaneMask same = 0;
    forEachLane(open, [&](uint32_t l) { same |= choice[l] == value ? 1u << l : 0; });
    warp.paths.push_back({warp.kernel->targets[inst.target + value], same, Path::State::Ready, 0});
    open &= ~same;
  }
  if (rest)
    warp.paths.push_back({pc + 1, rest, Path::State::Ready, 0});
  warp.paths.erase(warp.paths.begin() + static_cast<ptrdiff_t>(index));
  return Step::Repick;
}

Step leave(Warp &warp, size_t index, LaneMask lanes) {
  Path &path = warp.paths[index];
  warp.alive &= ~lanes;
  path.lanes &= ~lanes;
  ++path.pc;
  if (path.lanes)
    return Step::Continue;
  warp.paths.erase(warp.paths.begin() + static_cast<ptrdiff_t>(index));
  return Step::Repick;
}

Step converge(Warp &warp, size_t index, const Inst &inst, LaneMask mask) {
  if (!mask) {
    ++warp.paths[index].pc;
    return Step::Continue;
  }
  bool incomplete = missing(warp, inst, mask) != 0;
  if (incomplete || inst.flow == Flow::Barrier)
    splitOff(warp, index, warp.paths[index].lanes & ~mask);
  Path &path = warp.paths[index];
  if (incomplete) { // issued when its lanes are there
    path.state = Path::State::Converging;
    --warp.tally->at[path.pc].issued;
    warp.tally->at[path.pc].lanes -= static_cast<uint64_t>(std::popcount(mask));
    return Step::Repick;
  }
  runConverged(warp, inst, mask);
  if (inst.flow == Flow::Barrier && !arrivesOnly(inst)) {
    path.state = Path::State::AtBarrier;
    path.barrier = static_cast<uint8_t>(warp.barrierNumber);
    return Step::Repick;
  }
  ++path.pc;
  return warp.paths.size() > 1 ? Step::Repick : Step::Continue;
}

/// The lanes that must wait stay; the others go on.
Step wait(Warp &warp, size_t index, const Inst &inst, LaneMask mask) {
  uint32_t pc = warp.paths[index].pc;
  warp.blocked = 0;
  warp.timedOut = warp.paths[index].timedOut;
  warp.polled = nullptr;
  if (mask)
    inst.run(warp, inst, mask);
  Path &path = warp.paths[index];
  path.timedOut = false;
  path.mbarrier = nullptr;
  if (!warp.blocked) {
    ++path.pc;
    return warp.paths.size() > 1 || warp.yielded ? Step::Repick : Step::Continue;
  }
  // Issued when it succeeds.
  warp.tally->at[pc].issued -= mask == warp.blocked;
  warp.tally->at[pc].lanes -= static_cast<uint64_t>(std::popcount(warp.blocked));
  path.state = Path::State::Waiting;
  path.seen = warp.block->cluster().events();
  path.mbarrier = warp.polled;
  splitOff(warp, index, path.lanes & ~warp.blocked);
  return Step::Repick;
}

/// Waits for the other warps of the warpgroup; the last one executes for all.
Step gather(Warp &warp, size_t index, const Inst &inst, LaneMask mask) {
  if (!mask || missing(warp, inst, mask))
    return converge(warp, index, inst, mask);
  if (mask != kAllLanes) {
    runConverged(warp, inst, mask); // a fault
    return Step::Repick;
  }
  constexpr uint32_t kWarps = 4;
  uint32_t first = warp.index / kWarps * kWarps;
  if (first + kWarps > warp.block->allWarps().size()) {
    warp.fault(FaultKind::DivergentSync, std::nullopt, std::nullopt,
               "the warpgroup is not whole: the block has no 4 warps from the first one on");
    return Step::Repick;
  }
  warp.paths[index].state = Path::State::AtGroup;
  std::array<Path *, kWarps> there{};
  for (uint32_t i = 0; i < kWarps; ++i)
    for (Path &path : warp.block->warp(first + i).paths)
      if (path.state == Path::State::AtGroup && path.pc == warp.pc)
        there[i] = &path;
  if (std::find(there.begin(), there.end(), nullptr) != there.end())
    return Step::Repick;
  inst.run(warp, inst, mask);
  warp.block->cluster().noteEvent();
  for (Path *path : there) {
    path->state = Path::State::Ready;
    ++path->pc;
  }
  return Step::Repick;
}

Step changeFlow(Warp &warp, size_t index, const Inst &inst, LaneMask mask) {
  switch (inst.flow) {
  case Flow::Branch:
    return branch(warp, index, inst, mask);
  case Flow::Table:
    return branchTable(warp, index, inst, mask);
  case Flow::Exit:
    return leave(warp, index, mask);
  case Flow::Converge:
  case Flow::Barrier:
    return converge(warp, index, inst, mask);
  case Flow::Wait:
    return wait(warp, index, inst, mask);
  case Flow::Group:
    return gather(warp, index, inst, mask);
  case Flow::Next:
    break;
  }
  return Step::Continue;
}

/// True if another path should run before the one at `index`, or meets it.
bool overtaken(const Warp &warp, size_t index, uint32_t pc) {
  for (size_t i = 0; i < warp.paths.size(); ++i)
    if (i != index && !atBarrier(warp.paths[i]) &&
        (warp.paths[i].pc == pc ||
         (!warp.turnedOver && warp.paths[i].pc < pc && warp.paths[i].state == Path::State::Ready)))
      return true;
  return false;
}

} // namespace

uint64_t runWarp(Warp &warp, uint64_t limit) {
  const Inst *code = warp.kernel->code.data();
  InstTally *tally = warp.tally->at.data();
  uint64_t issued = 0;
  warp.yielded = false;
  while (Path *path = pick(warp)) {
    auto index = static_cast<size_t>(path - warp.paths.data());
    for (;;) {
      uint32_t pc = warp.paths[index].pc;
      LaneMask active = warp.paths[index].lanes;
      bool alone = warp.paths.size() == 1;
      Step step = Step::Continue;
      // Straight code: nothing here changes the set of paths.
      for (;;) {
        const Inst &inst = code[pc];
        LaneMask mask = executing(warp, inst, active);
        ++issued;
        ++tally[pc].issued;
        tally[pc].lanes += static_cast<uint64_t>(std::popcount(mask));
        warp.pc = pc;
        if (inst.tracked && !trackRegisters(warp, inst, active, mask)) [[unlikely]]
          break;
        if (inst.flow != Flow::Next) {
          warp.paths[index].pc = pc;
          step = changeFlow(warp, index, inst, mask);
          break;
        }
        if (mask)
          inst.run(warp, inst, mask);
        ++pc;
        if (warp.faulted || issued >= limit || (!alone && overtaken(warp, index, pc))) {
          warp.paths[index].pc = pc;
          step = Step::Repick;
          break;
        }
      }
      if (warp.faulted)
        return issued;
      if (issued >= limit || warp.yielded) {
        warp.dividedTurns = warp.paths.size() > 1 ? warp.dividedTurns + 1 : 0;
        warp.turnedOver = warp.dividedTurns % kPatience == kPatience - 1;
        return issued;
      }
      if (step == Step::Repick ||
          (warp.paths.size() > 1 && overtaken(warp, index, warp.paths[index].pc)))
        break;
    }
  }
  return issued;
}

} // namespace llmopt::sim

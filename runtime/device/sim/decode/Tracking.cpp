// Which registers may be read before they have a value. Most never: liveness
// shows it. Those that a path from the entry may read unwritten, and those
// computed from them, are watched when the kernel runs (exec/Tracking.h).
#include "runtime/device/sim/decode/KernelDecoder.h"

#include <algorithm>

namespace llmopt::sim {

namespace {

/// Instructions whose inputs must have values: they touch memory, choose a way,
/// or hand values to other lanes. All others pass on that a value is missing.
bool needsValues(InstClass cls) {
  switch (cls) {
  case InstClass::Branch:
  case InstClass::Global:
  case InstClass::Shared:
  case InstClass::Local:
  case InstClass::Param:
  case InstClass::Atomic:
  case InstClass::AsyncCopy:
  case InstClass::Matrix:
  case InstClass::Collective:
  case InstClass::Barrier:
    return true;
  default:
    return false;
  }
}

TrackedUse::Role roleOf(const Kernel &kernel, const RegRef &ref) {
  using Role = TrackedUse::Role;
  if (ref.output)
    return Role::Result;
  if (ref.field == Field::Guard)
    return Role::Guard;
  const Inst &inst = kernel.code[ref.inst];
  if (inst.flow == Flow::Group && ref.field == Field::List && ref.index >= inst.inputs)
    return Role::Accumulator; // of the list those behind D and A
  if (needsValues(inst.cls))
    return Role::Needed;
  if (ref.field == Field::A)
    return Role::First;
  return ref.field == Field::B ? Role::Second : Role::Passed;
}

bool passesOn(TrackedUse::Role role) {
  using Role = TrackedUse::Role;
  return role == Role::First || role == Role::Second || role == Role::Passed ||
         role == Role::Accumulator;
}

} // namespace

void trackUndefined(Kernel &kernel, const std::vector<VirtualReg> &registers,
                    std::vector<RegRef> refs, const std::vector<uint32_t> &liveAtEntry) {
  std::vector<bool> suspect(registers.size());
  for (uint32_t reg : liveAtEntry)
    suspect[reg] = !registers[reg].pinned;
  std::sort(refs.begin(), refs.end(),
            [](const RegRef &a, const RegRef &b) { return a.inst < b.inst; });
  auto endOf = [&](auto it) {
    return std::find_if(it, refs.end(), [&](const RegRef &ref) { return ref.inst != it->inst; });
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (auto it = refs.begin(); it != refs.end(); it = endOf(it)) {
      auto end = endOf(it);
      bool passes = std::any_of(it, end, [&](const RegRef &ref) {
        return suspect[ref.reg] && passesOn(roleOf(kernel, ref));
      });
      for (auto ref = it; passes && ref != end; ++ref) {
        changed |= ref->output && !suspect[ref->reg];
        if (ref->output)
          suspect[ref->reg] = true;
      }
    }
  }

  std::vector<uint32_t> numbers(registers.size());
  for (uint32_t reg = 0; reg < registers.size(); ++reg) {
    if (!suspect[reg])
      continue;
    numbers[reg] = static_cast<uint32_t>(kernel.tracked.size());
    kernel.tracked.emplace_back(registers[reg].name);
  }
  if (kernel.tracked.empty())
    return;
  kernel.trackedUses.resize(kernel.code.size());
  for (const RegRef &ref : refs) {
    if (!suspect[ref.reg])
      continue;
    kernel.code[ref.inst].tracked = true;
    kernel.trackedUses[ref.inst].push_back({numbers[ref.reg], roleOf(kernel, ref)});
  }
  for (std::vector<TrackedUse> &uses : kernel.trackedUses)
    std::sort(uses.begin(), uses.end(), [](const TrackedUse &a, const TrackedUse &b) {
      return a.role < b.role; // results last
    });
}

} // namespace llmopt::sim

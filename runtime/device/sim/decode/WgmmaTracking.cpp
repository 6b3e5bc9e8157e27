// Which registers wgmmas work on, and who else touches them: those may be under way
// when an instruction reads or writes them (exec/WgmmaChecks.cpp). A compiler may move
// them between registers all the same; moves belong to it.
#include "runtime/device/sim/decode/KernelDecoder.h"

#include <algorithm>

namespace llmopt::sim {

namespace {

bool isMove(const Kernel &kernel, uint32_t inst) {
  return kernel.code[inst].cls == InstClass::Move && kernel.places[inst].text.starts_with("mov.");
}

/// Of refs of one instruction; nothing for those that do not matter.
std::optional<WgmmaUse::Role> roleOf(const Kernel &kernel, const RegRef &ref) {
  using Role = WgmmaUse::Role;
  const Inst &inst = kernel.code[ref.inst];
  if (inst.flow == Flow::Group) {
    if (ref.field != Field::List || ref.index >= inst.inputs)
      return std::nullopt; // D once more, as an input
    return ref.index < inst.outputs ? Role::Accumulator : Role::Fragment;
  }
  if (isMove(kernel, ref.inst))
    return ref.output ? Role::MovedTo : Role::MovedFrom;
  return ref.output ? Role::Written : Role::Read;
}

std::vector<bool> registersOf(const Kernel &kernel, const std::vector<VirtualReg> &registers,
                              const std::vector<RegRef> &refs) {
  std::vector<bool> used(registers.size());
  std::vector<std::pair<uint32_t, uint32_t>> moves; // from, to
  for (size_t i = 0; i < refs.size(); ++i) {
    const RegRef &ref = refs[i];
    if (kernel.code[ref.inst].flow == Flow::Group && ref.field == Field::List)
      used[ref.reg] = true;
    // Sorted by instruction, so that both ends of a move are neighbours.
    if (i && isMove(kernel, ref.inst) && refs[i - 1].inst == ref.inst) {
      bool forward = ref.output;
      uint32_t from = forward ? refs[i - 1].reg : ref.reg, to = forward ? ref.reg : refs[i - 1].reg;
      if (!registers[from].pinned)
        moves.emplace_back(from, to);
    }
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (auto [from, to] : moves) {
      changed |= used[from] != used[to];
      used[from] = used[to] = used[from] || used[to];
    }
  }
  return used;
}

} // namespace

void trackWgmmaRegisters(Kernel &kernel, const std::vector<VirtualReg> &registers,
                         std::vector<RegRef> refs) {
  if (std::none_of(kernel.code.begin(), kernel.code.end(),
                   [](const Inst &inst) { return inst.flow == Flow::Group; }))
    return;
  std::sort(refs.begin(), refs.end(),
            [](const RegRef &a, const RegRef &b) { return a.inst < b.inst; });
  std::vector<bool> used = registersOf(kernel, registers, refs);
  std::vector<uint32_t> numbers(registers.size());
  for (uint32_t reg = 0; reg < registers.size(); ++reg) {
    if (!used[reg])
      continue;
    numbers[reg] = static_cast<uint32_t>(kernel.wgmmaRegisters.size());
    kernel.wgmmaRegisters.emplace_back(registers[reg].name);
  }
  kernel.wgmmaUses.resize(kernel.code.size());
  for (const RegRef &ref : refs) {
    if (!used[ref.reg])
      continue;
    std::optional<WgmmaUse::Role> role = roleOf(kernel, ref);
    if (!role)
      continue;
    kernel.code[ref.inst].tracked = true;
    kernel.wgmmaUses[ref.inst].push_back({numbers[ref.reg], *role});
  }
  for (std::vector<WgmmaUse> &uses : kernel.wgmmaUses)
    std::sort(uses.begin(), uses.end(),
              [](const WgmmaUse &a, const WgmmaUse &b) { return a.role < b.role; });
}

} // namespace llmopt::sim

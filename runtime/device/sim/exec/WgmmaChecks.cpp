// Registers that wgmmas work on: between wgmma.mma_async and the wait for its group
// nobody may read its sums, nor write them or A; and a wgmma.fence must lie between any
// access to them and it, and before the first one of a kernel. Sums that several wgmmas of the
// same shape add to need none between those (PTX ISA 9.7.15.7.1). A that two wgmmas only read needs
// none here either, which the ISA does not say.
#include "runtime/device/sim/exec/Tracking.h"

namespace llmopt::sim {

namespace {

bool report(Warp &warp, FaultKind kind, uint32_t reg, std::string_view what) {
  warp.fault(kind, std::nullopt, std::nullopt,
             fmt::format("register '{}' {}", warp.kernel->wgmmaRegisters[reg], what));
  return false;
}

constexpr std::string_view kNoFence = "was accessed after the last wgmma.fence (or there was "
                                      "none yet), and a wgmma uses it";
constexpr std::string_view kOtherProduct = "was used by a wgmma of another shape, or as another "
                                           "operand, after the last wgmma.fence";

} // namespace

bool trackWgmma(Warp &warp, LaneMask mask) {
  if (warp.wgmmaRegisters.empty() || !mask)
    return true; // not a strict run
  using Role = WgmmaUse::Role;
  const WgmmaGroups &groups = warp.wgmma;
  uint32_t next = groups.committed + 1;
  WgmmaRegister moved;
  uint8_t shape = warp.kernel->code[warp.pc].mode;
  for (const WgmmaUse &use : warp.kernel->wgmmaUses[warp.pc]) {
    WgmmaRegister &reg = warp.wgmmaRegisters[use.reg];
    bool summing = reg.accumulates > groups.completed, read = reg.fragment > groups.completed;
    bool unfenced = reg.touched == groups.fences || groups.fences == 1;
    bool sinceProduct = reg.product == groups.fences;
    switch (use.role) {
    case Role::Read:
      if (summing)
        return report(warp, FaultKind::UnfinishedProduct, use.reg,
                      "is the sum of a wgmma that this warp has not waited for");
      reg.touched = groups.fences;
      break;
    case Role::Written:
    case Role::MovedTo:
      if (summing || read)
        return report(warp, FaultKind::UnfinishedProduct, use.reg,
                      summing ? "is overwritten while a wgmma adds to it"
                              : "is overwritten while a wgmma reads it");
      reg = use.role == Role::MovedTo ? moved : WgmmaRegister{.touched = groups.fences};
      break;
    case Role::MovedFrom:
      moved = reg;
      moved.fragment = 0;
      break;
    case Role::Accumulator:
      if (read)
        return report(warp, FaultKind::UnfinishedProduct, use.reg,
                      "gets the sum of a wgmma while another one reads it");
      if (unfenced && !summing)
        return report(warp, FaultKind::MissingWgmmaFence, use.reg, kNoFence);
      if (sinceProduct && (!reg.summed || reg.shape != shape))
        return report(warp, FaultKind::MissingWgmmaFence, use.reg, kOtherProduct);
      reg.accumulates = next;
      reg.product = groups.fences;
      reg.summed = true;
      reg.shape = shape;
      break;
    case Role::Fragment:
      if (summing)
        return report(warp, FaultKind::UnfinishedProduct, use.reg,
                      "is read by a wgmma while another one adds to it");
      if (unfenced)
        return report(warp, FaultKind::MissingWgmmaFence, use.reg, kNoFence);
      if (sinceProduct && reg.summed)
        return report(warp, FaultKind::MissingWgmmaFence, use.reg, kOtherProduct);
      reg.fragment = next;
      reg.product = groups.fences;
      reg.summed = false;
      break;
    }
  }
  return true;
}

} // namespace llmopt::sim

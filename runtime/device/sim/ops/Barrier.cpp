// bar, barrier, bar.warp, and fences (PTX ISA 9.7.13).
#include "runtime/device/sim/exec/Block.h"
#include "runtime/device/sim/ops/Modes.h"
#include "runtime/device/sim/ops/Ops.h"

namespace llmopt::sim {

using ptx::Operand;
using ptx::Type;
using runtime::Status;

namespace {

// Inst::bytes of barriers, which touch no memory: more facts.
constexpr uint8_t kAligned = 1;
constexpr uint8_t kReduces = 2;
constexpr uint8_t kNegated = 4;

void arriveAtBarrier(Warp &warp, const Inst &inst, LaneMask mask) {
  auto lane = static_cast<uint32_t>(std::countr_zero(mask));
  uint32_t number = warp.narrow(inst.a)[lane];
  warp.block->arrive(warp, number, warp.narrow(inst.b)[lane], mask, inst.bytes & kAligned);
  if (inst.bytes & kReduces) {
    LaneMask value = warp.predicates[inst.c] ^ (inst.bytes & kNegated ? kAllLanes : 0);
    warp.block->contribute(number, value, mask);
  }
}

void nothing(Warp &, const Inst &, LaneMask) {}

Status decodeWarpBarrier(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(1));
  if (!d.take("sync"))
    return d.unsupported();
  d.converge(Need::Members, InstClass::Barrier, &nothing);
  d.inst.mode = kWarpSyncMode;
  return d.input(Field::C, 0, Type::B32);
}

Status decodeReduction(InstDecoder &d) {
  int op = d.takeOneOf({"popc", "and", "or"});
  Type type = d.takeType();
  if (op < 0 || type != (op == 0 ? Type::U32 : Type::Pred))
    return d.unsupported();
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(3, 4));
  constexpr BarrierMode kModes[] = {BarrierMode::Popc, BarrierMode::And, BarrierMode::Or};
  d.inst.mode = static_cast<uint8_t>(kModes[op]);
  d.inst.bytes |= kReduces;
  bool negated = false;
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, type));
  LLMOPT_RETURN_IF_ERROR(d.predicateInput(Field::C, d.operand(d.count() - 1), negated));
  if (negated)
    d.inst.bytes |= kNegated;
  return {};
}

Status decodeBarrier(InstDecoder &d) {
  d.take("cta");
  if (d.take("warp"))
    return decodeWarpBarrier(d);
  if (d.take("cluster"))
    return decodeClusterBarrier(d);
  int kind = d.takeOneOf({"sync", "arrive", "red"});
  bool aligned = d.opcode() == "bar" || d.take("aligned");
  d.inst.flow = Flow::Barrier;
  d.inst.need = aligned ? Need::Alive : Need::None;
  d.inst.cls = InstClass::Barrier;
  d.inst.bytes = aligned ? kAligned : 0;
  d.inst.run = &arriveAtBarrier;
  size_t first = 0, numbers = d.count();
  if (kind == 2) {
    LLMOPT_RETURN_IF_ERROR(decodeReduction(d));
    first = 1;
    numbers = d.count() - 2;
  } else if (kind == 0 || kind == 1) {
    d.inst.mode = static_cast<uint8_t>(kind == 0 ? BarrierMode::Sync : BarrierMode::Arrive);
    LLMOPT_RETURN_IF_ERROR(d.expectOperands(kind == 0 ? 1 : 2, 2));
  } else {
    return d.unsupported();
  }
  LLMOPT_RETURN_IF_ERROR(d.input(Field::A, first, Type::U32));
  Operand all;
  all.kind = Operand::Kind::Integer;
  return d.input(Field::B, numbers == 2 ? d.operand(first + 1) : all, Type::U32);
}

/// What the lanes and those they waited for stored is there for the async proxy.
void fenceAsyncProxy(Warp &warp, const Inst &, LaneMask mask) {
  if (Clocks *clocks = warp.block->clocks(); clocks && warp.kernel->async)
    clocks->fenceProxy(warp.agent, mask);
}

void announceBarriers(Warp &warp, const Inst &, LaneMask mask) {
  warp.block->mbarriers.announce(warp, mask);
}

/// fence.proxy: of generic accesses with those of bulk copies and wgmma. Tensor maps
/// that a kernel writes and other aliases of memory are in order here.
Status decodeProxyFence(InstDecoder &d) {
  int kind = d.takeOneOf({"async", "async::generic", "alias", "tensormap::generic"});
  d.takeOneOf({"acquire", "release"});
  d.takeOneOf({"sync_restrict::shared::cta", "sync_restrict::shared::cluster"});
  d.takeOneOf({"cta", "cluster", "gpu", "sys"});
  bool global = d.take("global");
  d.takeOneOf({"shared::cta", "shared::cluster"});
  d.inst.cls = InstClass::Barrier;
  d.inst.run = kind < 2 && !global ? &fenceAsyncProxy : &nothing;
  return kind < 0 ? d.unsupported() : d.expectOperands(0, 2);
}

/// Memory is in order here already, but for asynchronous copies, which have
/// waits of their own.
Status decodeFence(InstDecoder &d) {
  if (d.take("proxy"))
    return decodeProxyFence(d);
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(0));
  if (d.take("mbarrier_init")) {
    d.inst.cls = InstClass::Barrier;
    d.inst.run = &announceBarriers;
    return d.take("release") && d.take("cluster") ? Status() : d.unsupported();
  }
  d.takeOneOf({"sc", "acq_rel", "acquire", "release"});
  bool scope = d.takeOneOf({"cta", "cluster", "gpu", "gl", "sys"}) >= 0;
  if (!scope)
    return d.unsupported();
  d.inst.cls = InstClass::Barrier;
  d.inst.run = &nothing;
  return {};
}

Status decodePause(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(1));
  d.takeType();
  d.inst.cls = InstClass::Barrier;
  d.inst.run = &nothing;
  return {};
}

/// Programmatic launch: grids run one after another here.
Status decodeGridControl(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(0));
  if (d.takeOneOf({"wait", "launch_dependents"}) < 0)
    return d.unsupported();
  d.inst.cls = InstClass::Barrier;
  d.inst.run = &nothing;
  return {};
}

} // namespace

void addBarrierOps(OpTable &table) {
  table["bar"] = &decodeBarrier;
  table["barrier"] = &decodeBarrier;
  table["membar"] = &decodeFence;
  table["fence"] = &decodeFence;
  table["nanosleep"] = &decodePause;
  table["griddepcontrol"] = &decodeGridControl;
}

} // namespace llmopt::sim

// Clusters: barrier.cluster, mapa, getctarank (PTX ISA 9.7.13.3, 9.7.9); and setmaxnreg.
#include "runtime/device/sim/exec/Cluster.h"
#include "runtime/device/sim/exec/Access.h"
#include "runtime/device/sim/exec/Lanes.h"
#include "runtime/device/sim/ops/Modes.h"
#include "runtime/device/sim/ops/Ops.h"

namespace llmopt::sim {

using ptx::Space;
using ptx::Type;
using runtime::Status;

namespace {

void arrive(Warp &warp, const Inst &, LaneMask mask) { warp.block->cluster().arrive(warp, mask); }

void wait(Warp &warp, const Inst &, LaneMask mask) {
  warp.blocked = warp.block->cluster().waiting(warp, mask);
}

/// Row b: the rank; inst.mode: generic addresses.
template <typename C> void mapAddress(Warp &warp, const Inst &inst, LaneMask mask) {
  const C *a = row<C>(warp, inst.a);
  C *d = row<C>(warp, inst.d);
  forEachLane(mask, [&](uint32_t lane) {
    uint32_t rank = warp.narrow(inst.b)[lane];
    uint64_t address = a[lane];
    bool shared = !inst.mode || spaceOf(address) == Space::Shared;
    if (rank >= warp.block->cluster().size() || !shared)
      return warp.fault(
          FaultKind::InvalidAddress, lane, a[lane],
          shared ? fmt::format("block {} of a cluster of {}", rank, warp.block->cluster().size())
                 : "a generic address that is not of shared memory");
    bool own = rank == warp.block->rank();
    uint64_t there = (address & kOffsetMask) | (own ? 0 : uint64_t{rank + 1} << kRankShift);
    d[lane] = static_cast<C>(inst.mode ? there + kSharedWindow : there);
  });
}

template <typename C> void rankOf(Warp &warp, const Inst &inst, LaneMask mask) {
  forEachLane(mask, [&](uint32_t lane) {
    uint64_t address = row<C>(warp, inst.a)[lane];
    if (inst.mode)
      spaceOf(address);
    uint64_t rank = address >> kRankShift;
    warp.narrow(inst.d)[lane] = rank ? static_cast<uint32_t>(rank) - 1 : warp.block->rank();
  });
}

/// What mapa and getctarank have in common: the kind of address, and its width.
Status decodeAddressKind(InstDecoder &d, size_t operands, Type &type) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(operands));
  d.inst.mode = d.takeSpace() == Space::Generic;
  type = d.takeType();
  return type == Type::U32 || type == Type::U64 ? Status() : d.unsupported();
}

Status decodeMap(InstDecoder &d) {
  Type type = Type::None;
  LLMOPT_RETURN_IF_ERROR(decodeAddressKind(d, 3, type));
  d.inst.run = type == Type::U64 ? &mapAddress<uint64_t> : &mapAddress<uint32_t>;
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, type));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::A, 1, type));
  return d.input(Field::B, 2, Type::U32);
}

Status decodeRankOf(InstDecoder &d) {
  Type type = Type::None;
  LLMOPT_RETURN_IF_ERROR(decodeAddressKind(d, 2, type));
  d.inst.run = type == Type::U64 ? &rankOf<uint64_t> : &rankOf<uint32_t>;
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, Type::U32));
  return d.input(Field::A, 1, type);
}

/// Registers are not counted here.
Status decodeRegisterCount(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(1));
  bool known = d.takeOneOf({"inc", "dec"}) >= 0 && d.take("sync") && d.take("aligned");
  if (!known || d.takeType() != Type::U32)
    return d.unsupported();
  runtime::StatusOr<uint64_t> count = d.literal(0);
  if (!count)
    return count.status();
  if (*count < 24 || *count > 256 || *count % 8)
    return d.invalid(
        fmt::format("{} registers; multiples of 8 from 24 to 256 are allowed", *count));
  d.converge(Need::All, InstClass::Barrier, [](Warp &, const Inst &, LaneMask) {});
  return {};
}

} // namespace

Status decodeClusterBarrier(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(0));
  int kind = d.takeOneOf({"arrive", "wait"});
  d.takeOneOf({"release", "acquire", "relaxed"});
  bool aligned = d.take("aligned");
  if (kind < 0)
    return d.unsupported();
  d.inst.cls = InstClass::Barrier;
  if (kind == 1) {
    d.inst.flow = Flow::Wait;
    d.inst.mode = kClusterWaitMode;
    d.inst.run = &wait;
    return {};
  }
  d.inst.flow = aligned ? Flow::Converge : Flow::Next;
  d.inst.need = aligned ? Need::Alive : Need::None;
  d.inst.run = &arrive;
  return {};
}

void addClusterOps(OpTable &table) {
  table["mapa"] = &decodeMap;
  table["getctarank"] = &decodeRankOf;
  table["setmaxnreg"] = &decodeRegisterCount;
}

} // namespace llmopt::sim

// st.async and red.async to shared memory of the cluster (PTX ISA 9.7.9.12, 9.7.13.7): a store, or
// a reduction, that an mbarrier beside its target tells the end of. They go through the generic
// proxy, so no proxy fence is needed, but nobody knows of them until he waits for the mbarrier.
#include "runtime/device/sim/ops/AsyncStores.h"

#include "runtime/device/sim/decode/KernelDecoder.h"
#include "runtime/device/sim/exec/Cluster.h"
#include "runtime/device/sim/exec/Transfers.h"
#include "runtime/device/sim/ops/MBarrierOps.h"
#include "runtime/device/sim/ops/Reductions.h"

namespace llmopt::sim {

using ptx::Operand;
using ptx::Space;
using ptx::Type;
using runtime::Status;

namespace {

// Inst::mode.
constexpr uint8_t kWideTarget = 1;
constexpr uint8_t kWideBarrier = 2;
constexpr uint8_t kGeneric = 4;

// Rows of the list: address, its offset, mbarrier, its offset; values.
constexpr uint32_t kTargetRow = 0, kBarrierRow = 2, kValueRow = 4;

/// Inst::imm: of a reduction 1 + its operation, and the type.
Combine combineOf(const Inst &inst) {
  if (!inst.imm)
    return nullptr;
  return reductionOf(static_cast<AtomicOp>((inst.imm & 0xff) - 1), static_cast<Type>(inst.imm >> 8),
                     /*shared=*/true);
}

uint64_t addressIn(const Warp &warp, const uint32_t *rows, bool wide, uint32_t lane) {
  return (wide ? warp.wide(rows[0])[lane] : warp.narrow(rows[0])[lane]) + warp.wide(rows[1])[lane];
}

bool storeLane(Warp &warp, const Inst &inst, uint32_t lane) {
  const uint32_t *rows = warp.list(inst);
  uint64_t address = addressIn(warp, rows + kTargetRow, inst.mode & kWideTarget, lane);
  if (inst.mode & kGeneric && spaceOf(address) != Space::Shared) {
    warp.fault(FaultKind::InvalidAddress, lane, address,
               "an asynchronous store to an address that is not of shared memory");
    return false;
  }
  AsyncValue value;
  value.bytes = inst.bytes * (inst.inputs - kValueRow);
  value.combine = combineOf(inst);
  if (!locate(warp, Space::Shared, lane, address, value.bytes, AccessKind::AsyncStore))
    return false;
  for (uint32_t i = 0; i < inst.inputs - kValueRow; ++i) {
    uint64_t bits = inst.bytes == 8 ? warp.wide(rows[kValueRow + i])[lane]
                                    : warp.narrow(rows[kValueRow + i])[lane];
    std::memcpy(&value.data[i * inst.bytes], &bits, inst.bytes);
  }
  uint32_t barrierOffset = 0;
  Block *target = warp.block->resolve(warp, lane, address);
  Block *block =
      target ? mbarrierPlace(warp, inst.mode & kGeneric, lane,
                             addressIn(warp, rows + kBarrierRow, inst.mode & kWideBarrier, lane),
                             barrierOffset)
             : nullptr;
  if (!block)
    return false;
  if (block != target || block->cluster().size() == 1) {
    warp.fault(FaultKind::InvalidAddress, lane, address,
               block == target ? "an asynchronous store in a cluster of one block"
                               : "the mbarrier is in another block than the target of the store");
    return false;
  }
  value.address = static_cast<uint32_t>(address);
  MBarrier *barrier = block->mbarriers.find(warp, lane, barrierOffset);
  return barrier && startAsyncStore(warp, lane, value, *target, *barrier);
}

void storeAsync(Warp &warp, const Inst &inst, LaneMask mask) {
  for (; mask; mask &= mask - 1)
    if (!storeLane(warp, inst, static_cast<uint32_t>(std::countr_zero(mask))))
      return;
}

Status decodePlace(InstDecoder &d, size_t index, uint8_t wide) {
  runtime::StatusOr<AddressBase> base = d.listAddress(index);
  if (!base)
    return base.status();
  if (base->space != Space::Generic && base->space != Space::Shared)
    return d.unsupported(fmt::format("the variable is in {} memory", toString(base->space)));
  d.inst.mode |= base->wide ? wide : 0;
  return {};
}

Status decode(InstDecoder &d, bool reduces) {
  // The forms with .release and .global (sm_100) are others.
  d.takeOneOf({reduces ? "relaxed" : "weak"});
  d.take("cluster");
  Space space = d.take("shared::cluster") ? Space::Shared : Space::Generic;
  if (!d.take("mbarrier::complete_tx::bytes"))
    return d.unsupported();
  uint32_t elements = reduces ? 1 : d.takeVector();
  int op = reduces ? d.takeOneOf(kAtomicNames) : -1;
  Type type = d.takeType();
  uint32_t bytes = ptx::sizeOf(type);
  bool known = reduces ? op >= 0 && reductionOf(static_cast<AtomicOp>(op), type, /*shared=*/true)
                       : (bytes == 4 || bytes == 8) && bytes * elements <= 16 &&
                             type != Type::F16x2 && type != Type::BF16x2;
  if (!known)
    return d.unsupported();
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(3));
  d.inst.mode = space == Space::Generic ? kGeneric : 0;
  LLMOPT_RETURN_IF_ERROR(decodePlace(d, 0, kWideTarget));
  LLMOPT_RETURN_IF_ERROR(decodePlace(d, 2, kWideBarrier));
  const Operand &value = d.operand(1);
  bool isVector = value.kind == Operand::Kind::Vector;
  if ((isVector ? value.parts.size() : 1) != elements)
    return d.invalid(
        fmt::format("{} registers; .v{} is given", isVector ? value.parts.size() : 1, elements));
  for (uint32_t i = 0; i < elements; ++i)
    LLMOPT_RETURN_IF_ERROR(d.listInput(isVector ? value.parts[i] : value, type));
  d.inst.imm = reduces ? (op + 1) | static_cast<int64_t>(type) << 8 : 0;
  d.inst.bytes = static_cast<uint8_t>(bytes);
  d.inst.cls = InstClass::AsyncCopy;
  d.inst.run = &storeAsync;
  d.kernel.kernel.async = true;
  return {};
}

} // namespace

Status decodeAsyncStore(InstDecoder &d) { return decode(d, false); }
Status decodeAsyncReduction(InstDecoder &d) { return decode(d, true); }

} // namespace llmopt::sim

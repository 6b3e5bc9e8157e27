// atom and red (PTX ISA 9.7.13). The lanes of a warp take their turns from lane
// 0 on; blocks of a kernel with atomics on global memory run one after another,
// so that sums of floats do not depend on chance.
#include "runtime/device/sim/decode/KernelDecoder.h"
#include "runtime/device/sim/exec/Access.h"
#include "runtime/device/sim/exec/Lanes.h"
#include "runtime/device/sim/ops/AsyncStores.h"
#include "runtime/device/sim/ops/Ops.h"
#include "runtime/device/sim/ops/Reductions.h"

namespace llmopt::sim {

using ptx::Space;
using ptx::Type;
using runtime::Status;

namespace {

// Inst::mode.
constexpr uint8_t kWideAddress = 1;
constexpr uint8_t kReturnsOld = 2;
constexpr uint8_t kCompares = 4;
constexpr uint8_t kSpaceShift = 4;

void atomic(Warp &warp, const Inst &inst, LaneMask mask) {
  auto space = static_cast<Space>(inst.mode >> kSpaceShift);
  bool wide = inst.bytes == 8;
  Combine combine =
      atomicOf(static_cast<AtomicOp>(inst.d2 & 0xff), static_cast<Type>(inst.d2 >> 8));
  Combine combineGlobal = onGlobal(combine);
  auto cell = [&](uint32_t row, uint32_t lane) -> uint64_t {
    return wide ? warp.wide(row)[lane] : warp.narrow(row)[lane];
  };
  uint64_t low = wide ? ~uint64_t{0} : (uint64_t{1} << 8 * inst.bytes) - 1;
  LaneAddresses addresses;
  for (LaneMask rest = mask; rest; rest &= rest - 1) {
    auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    uint64_t address = baseAddress(warp, inst, inst.a, inst.mode & kWideAddress, lane);
    std::byte *at = locate(warp, space, lane, address, inst.bytes, AccessKind::Atomic);
    if (!at)
      return;
    addresses.add(lane, address);
    uint64_t old = 0;
    std::memcpy(&old, at, inst.bytes); // little endian, as on the device
    // cas: the operands are what is compared, then the new value.
    bool compares = inst.mode & kCompares;
    uint64_t operand = cell(compares ? inst.c : inst.b, lane) & low;
    uint64_t compare = compares ? cell(inst.b, lane) & low : 0;
    uint64_t inSpace = address;
    bool global = (space == Space::Generic ? spaceOf(inSpace) : space) == Space::Global;
    uint64_t value = (global ? combineGlobal : combine)(old, operand, compare);
    std::memcpy(at, &value, inst.bytes);
    if (!(inst.mode & kReturnsOld))
      continue;
    if (wide)
      warp.wide(inst.d)[lane] = old;
    else
      warp.narrow(inst.d)[lane] = static_cast<uint32_t>(old);
  }
  record(warp, space, addresses, inst.bytes, AccessKind::Atomic);
}

Status decodeAtomic(InstDecoder &d) {
  bool returns = d.opcode() == "atom";
  if (!returns && d.take("async"))
    return decodeAsyncReduction(d);
  d.takeOneOf({"relaxed", "acquire", "release", "acq_rel"});
  d.takeOneOf({"cta", "cluster", "gpu", "sys"});
  Space space = d.takeSpace();
  if (space != Space::Generic && space != Space::Global && space != Space::Shared)
    return d.unsupported();
  int op = d.takeOneOf(kAtomicNames);
  d.take("noftz");
  Type type = d.takeType();
  if (op < 0 || !atomicOf(static_cast<AtomicOp>(op), type))
    return d.unsupported();

  bool compares = static_cast<AtomicOp>(op) == AtomicOp::Cas;
  size_t first = returns ? 1 : 0;
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(first + (compares ? 3 : 2)));
  if (returns)
    LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, type));
  runtime::StatusOr<AddressBase> base = d.address(Field::A, first);
  if (!base)
    return base.status();
  if (base->space != Space::Generic && base->space != space)
    return d.unsupported(fmt::format("the variable is in {} memory", toString(base->space)));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::B, first + 1, type));
  if (compares)
    LLMOPT_RETURN_IF_ERROR(d.input(Field::C, first + 2, type));
  if (space != Space::Shared)
    d.kernel.kernel.ordered = true;
  d.inst.cls = InstClass::Atomic;
  d.inst.bytes = static_cast<uint8_t>(ptx::sizeOf(type));
  d.inst.mode =
      static_cast<uint8_t>((base->wide ? kWideAddress : 0) | (returns ? kReturnsOld : 0) |
                           (compares ? kCompares : 0) | static_cast<uint8_t>(space) << kSpaceShift);
  d.inst.d2 = static_cast<uint32_t>(op) | static_cast<uint32_t>(type) << 8;
  d.inst.run = &atomic;
  return {};
}

} // namespace

void addAtomicOps(OpTable &table) {
  table["atom"] = &decodeAtomic;
  table["red"] = &decodeAtomic;
}

} // namespace llmopt::sim

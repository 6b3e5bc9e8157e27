// atom and red (PTX ISA 9.7.13). The lanes of a warp take their turns from lane
// 0 on; blocks of a kernel with atomics on global memory run one after another,
// so that sums of floats do not depend on chance.
#include "runtime/device/sim/decode/KernelDecoder.h"
#include "runtime/device/sim/exec/Access.h"
#include "runtime/device/sim/exec/Lanes.h"
#include "runtime/device/sim/numeric/Float32.h"
#include "runtime/device/sim/numeric/Half.h"
#include "runtime/device/sim/ops/Ops.h"

#include <algorithm>

namespace llmopt::sim {

using ptx::Space;
using ptx::Type;
using runtime::Status;

namespace {

enum class AtomicOp : uint8_t { Add, Min, Max, And, Or, Xor, Exch, Cas, Inc, Dec };

/// The new value of memory; `compare` is for cas only.
using Combine = uint64_t (*)(uint64_t old, uint64_t operand, uint64_t compare);

template <typename T> uint64_t toBits(T value) { return toCell<T>(value); }
template <typename T> T ofBits(uint64_t bits) { return fromCell<T>(static_cast<Cell<T>>(bits)); }

template <typename T> uint64_t addBits(uint64_t a, uint64_t b, uint64_t) {
  if constexpr (std::is_same_v<T, float>)
    return toBits(canonical(ofBits<float>(a) + ofBits<float>(b)));
  else
    return toBits(static_cast<T>(ofBits<T>(a) + ofBits<T>(b)));
}
template <typename H> uint64_t addHalf(uint64_t a, uint64_t b, uint64_t) {
  return H(fromBits<H>(a).value() + fromBits<H>(b).value()).bits;
}
template <typename H> uint64_t addPair(uint64_t a, uint64_t b, uint64_t) {
  return addHalf<H>(a, b, 0) | addHalf<H>(a >> 16, b >> 16, 0) << 16;
}
template <typename T> uint64_t minBits(uint64_t a, uint64_t b, uint64_t) {
  return toBits(std::min(ofBits<T>(a), ofBits<T>(b)));
}
template <typename T> uint64_t maxBits(uint64_t a, uint64_t b, uint64_t) {
  return toBits(std::max(ofBits<T>(a), ofBits<T>(b)));
}
uint64_t andBits(uint64_t a, uint64_t b, uint64_t) { return a & b; }
uint64_t orBits(uint64_t a, uint64_t b, uint64_t) { return a | b; }
uint64_t xorBits(uint64_t a, uint64_t b, uint64_t) { return a ^ b; }
uint64_t exchange(uint64_t, uint64_t b, uint64_t) { return b; }
uint64_t compareAndSwap(uint64_t a, uint64_t b, uint64_t compare) { return a == compare ? b : a; }
uint64_t increment(uint64_t a, uint64_t b, uint64_t) { return a >= b ? 0 : a + 1; }
uint64_t decrement(uint64_t a, uint64_t b, uint64_t) { return a == 0 || a > b ? b : a - 1; }

struct AtomicRow {
  AtomicOp op;
  Type type;
  Combine combine;
};

constexpr AtomicRow kAtomics[] = {
    {AtomicOp::Add, Type::U32, &addBits<uint32_t>},
    {AtomicOp::Add, Type::S32, &addBits<uint32_t>},
    {AtomicOp::Add, Type::U64, &addBits<uint64_t>},
    {AtomicOp::Add, Type::S64, &addBits<uint64_t>},
    {AtomicOp::Add, Type::F32, &addBits<float>},
    {AtomicOp::Add, Type::F64, &addBits<double>},
    {AtomicOp::Add, Type::F16, &addHalf<F16>},
    {AtomicOp::Add, Type::BF16, &addHalf<BF16>},
    {AtomicOp::Add, Type::F16x2, &addPair<F16>},
    {AtomicOp::Add, Type::BF16x2, &addPair<BF16>},
    {AtomicOp::Min, Type::U32, &minBits<uint32_t>},
    {AtomicOp::Min, Type::S32, &minBits<int32_t>},
    {AtomicOp::Min, Type::U64, &minBits<uint64_t>},
    {AtomicOp::Min, Type::S64, &minBits<int64_t>},
    {AtomicOp::Max, Type::U32, &maxBits<uint32_t>},
    {AtomicOp::Max, Type::S32, &maxBits<int32_t>},
    {AtomicOp::Max, Type::U64, &maxBits<uint64_t>},
    {AtomicOp::Max, Type::S64, &maxBits<int64_t>},
    {AtomicOp::And, Type::B32, &andBits},
    {AtomicOp::And, Type::B64, &andBits},
    {AtomicOp::Or, Type::B32, &orBits},
    {AtomicOp::Or, Type::B64, &orBits},
    {AtomicOp::Xor, Type::B32, &xorBits},
    {AtomicOp::Xor, Type::B64, &xorBits},
    {AtomicOp::Exch, Type::B32, &exchange},
    {AtomicOp::Exch, Type::B64, &exchange},
    {AtomicOp::Cas, Type::B16, &compareAndSwap},
    {AtomicOp::Cas, Type::B32, &compareAndSwap},
    {AtomicOp::Cas, Type::B64, &compareAndSwap},
    {AtomicOp::Inc, Type::U32, &increment},
    {AtomicOp::Dec, Type::U32, &decrement},
};

// Inst::mode.
constexpr uint8_t kWideAddress = 1;
constexpr uint8_t kReturnsOld = 2;
constexpr uint8_t kCompares = 4;
constexpr uint8_t kSpaceShift = 4;

void atomic(Warp &warp, const Inst &inst, LaneMask mask) {
  auto space = static_cast<Space>(inst.mode >> kSpaceShift);
  bool wide = inst.bytes == 8;
  Combine combine = kAtomics[inst.d2].combine;
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
    uint64_t value = combine(old, operand, compare);
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
  d.takeOneOf({"relaxed", "acquire", "release", "acq_rel"});
  d.takeOneOf({"cta", "cluster", "gpu", "sys"});
  Space space = d.takeSpace();
  if (space != Space::Generic && space != Space::Global && space != Space::Shared)
    return d.unsupported();
  int op = d.takeOneOf({"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"});
  d.take("noftz");
  Type type = d.takeType();
  size_t row = 0;
  while (row < std::size(kAtomics) &&
         (kAtomics[row].op != static_cast<AtomicOp>(op) || kAtomics[row].type != type))
    ++row;
  if (op < 0 || row == std::size(kAtomics))
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
  d.inst.d2 = static_cast<uint32_t>(row);
  d.inst.run = &atomic;
  return {};
}

} // namespace

void addAtomicOps(OpTable &table) {
  table["atom"] = &decodeAtomic;
  table["red"] = &decodeAtomic;
}

} // namespace llmopt::sim

// cp.async.bulk, cp.reduce.async.bulk and both of tensors (PTX ISA 9.7.9.25.4 and 5), their
// groups and prefetches. What is under way, and when it arrives: exec/Transfers.h.
#include "runtime/device/sim/decode/KernelDecoder.h"
#include "runtime/device/sim/exec/Cluster.h"
#include "runtime/device/sim/exec/Transfers.h"
#include "runtime/device/sim/ops/MBarrierOps.h"
#include "runtime/device/sim/ops/Ops.h"

namespace llmopt::sim {

using ptx::Operand;
using ptx::Space;
using ptx::Type;
using runtime::Status;

namespace {

/// What the handlers read; packed into inst.imm. Rows of the list: shared address (2
/// rows), global address or tensor map (2), coordinates, size of what is no tensor; of
/// loads the mbarrier (2), and the mask of a multicast.
struct Variant {
  uint8_t rank = 0; ///< of a tensor; 0: bytes in a row
  bool wideShared = false, wideGlobal = false, wideBarrier = false;
  bool multicast = false;
  bool fromShared = false; ///< the source is shared memory too
  bool reduces = false;
  AtomicOp op = AtomicOp::Add;
  Type type = Type::None; ///< of a reduction that is no tensor's

  int64_t pack() const {
    return rank | int64_t{wideShared} << 8 | int64_t{wideGlobal} << 9 | int64_t{wideBarrier} << 10 |
           int64_t{multicast} << 11 | int64_t{fromShared} << 12 | int64_t{reduces} << 13 |
           static_cast<int64_t>(op) << 16 | static_cast<int64_t>(type) << 24;
  }
  static Variant unpack(int64_t bits) {
    auto flag = [&](int at) { return (bits >> at & 1) != 0; };
    return {static_cast<uint8_t>(bits & 0xff),
            flag(8),
            flag(9),
            flag(10),
            flag(11),
            flag(12),
            flag(13),
            static_cast<AtomicOp>(bits >> 16 & 0xff),
            static_cast<Type>(bits >> 24 & 0xff)};
  }
};

/// What the reduction of a tensor works on; None where there is none for the map's type. Operations
/// on bits take integers of any kind.
Type elementOf(AtomicOp op, TensorType type) {
  bool bits = op == AtomicOp::And || op == AtomicOp::Or || op == AtomicOp::Xor;
  switch (type) {
  case TensorType::U32:
  case TensorType::S32:
    return bits ? Type::B32 : type == TensorType::U32 ? Type::U32 : Type::S32;
  case TensorType::U64:
  case TensorType::S64:
    if (op == AtomicOp::Add) // the same for both
      return Type::U64;
    return bits ? Type::B64 : type == TensorType::U64 ? Type::U64 : Type::S64;
  case TensorType::F16:
    return Type::F16;
  case TensorType::BF16:
    return Type::BF16;
  case TensorType::F32:
  case TensorType::F32Ftz:
    return Type::F32;
  case TensorType::F64:
    return Type::F64;
  default:
    return Type::None;
  }
}

uint64_t addressIn(const Warp &warp, const uint32_t *rows, bool wide, uint32_t lane) {
  uint64_t base = wide ? warp.wide(rows[0])[lane] : warp.narrow(rows[0])[lane];
  return base + warp.wide(rows[1])[lane];
}

bool readMap(Warp &warp, uint32_t lane, uint64_t address, uint32_t rank, TensorMap &map) {
  std::array<std::byte, kTensorMapBytes> bytes;
  constexpr uint32_t kHalf = 64; // and what it must be aligned to
  for (uint32_t at = 0; at < kTensorMapBytes; at += kHalf) {
    const std::byte *from =
        locate(warp, Space::Generic, lane, address + at, kHalf, AccessKind::Load);
    if (!from)
      return false;
    std::memcpy(&bytes[at], from, kHalf);
  }
  std::optional<TensorMap> decoded = decodeTensorMap(bytes);
  if (!decoded || decoded->rank != rank) {
    warp.fault(FaultKind::InvalidAddress, lane, address,
               decoded ? fmt::format("a tensor map of {} dimensions; the instruction has {}",
                                     decoded->rank, rank)
                       : "no tensor map of the simulator lies here");
    return false;
  }
  map = *decoded;
  return true;
}

/// The side of a lane's copy that is no shared memory, or is its other end; `rows` moves on to what
/// follows.
bool readOther(Warp &warp, const Variant &v, const uint32_t *&rows, uint32_t lane, BulkCopy &copy) {
  uint64_t address = addressIn(warp, rows, v.wideGlobal, lane);
  rows += 2;
  if (v.rank) {
    copy.tensor = true;
    if (!readMap(warp, lane, address, v.rank, copy.map))
      return false;
    for (uint32_t i = 0; i < v.rank; ++i)
      copy.at[i] = static_cast<int32_t>(warp.narrow(rows[i])[lane]);
    rows += v.rank;
    copy.bytes = copy.map.boxBytes();
    return true;
  }
  copy.global = address;
  copy.bytes = warp.narrow(*rows++)[lane];
  if (copy.bytes % 16 == 0)
    return true;
  warp.fault(FaultKind::InvalidAddress, lane, address,
             fmt::format("a bulk copy of {} bytes; multiples of 16 are allowed", copy.bytes));
  return false;
}

/// The copy of a lane but for its address in shared memory, which is `shared`; `rows` moves on to
/// what follows.
bool readCopy(Warp &warp, const Variant &v, const uint32_t *&rows, uint32_t lane, uint64_t &shared,
              BulkCopy &copy) {
  shared = addressIn(warp, rows, v.wideShared, lane);
  rows += 2;
  if (!readOther(warp, v, rows, lane, copy))
    return false;
  if (!v.reduces)
    return true;
  Type type = v.rank ? elementOf(v.op, copy.map.type) : v.type;
  copy.combine = reductionOf(v.op, type, v.fromShared);
  copy.elementBytes = ptx::sizeOf(type);
  if (!copy.combine)
    warp.fault(FaultKind::InvalidAddress, lane, std::nullopt,
               "there is no such reduction for the type of the tensor map");
  return !warp.faulted;
}

/// The address in the shared memory that a copy works on.
uint32_t offsetOf(uint64_t shared) {
  return static_cast<uint32_t>(std::min<uint64_t>(shared, ~uint32_t{0}));
}

/// To the same place of each block that the mask names.
bool loadInto(Warp &warp, const Variant &v, uint32_t lane, const BulkCopy &copy, Block &target,
              uint32_t barrierOffset) {
  MBarrier *barrier = target.mbarriers.findForCopy(warp, lane, barrierOffset);
  if (!barrier)
    return false;
  return v.fromShared ? startRemoteStore(warp, lane, copy, target, *barrier)
                      : startLoad(warp, lane, copy, target, *barrier);
}

bool loadLane(Warp &warp, const Inst &inst, uint32_t lane) {
  Variant v = Variant::unpack(inst.imm);
  const uint32_t *rows = warp.list(inst);
  uint64_t shared = 0;
  BulkCopy copy;
  if (!readCopy(warp, v, rows, lane, shared, copy))
    return false;
  Block *target = warp.block->resolve(warp, lane, shared);
  if (!target)
    return false;
  copy.shared = offsetOf(shared);
  uint32_t barrierOffset = 0;
  Block *barrierBlock =
      mbarrierPlace(warp, false, lane, addressIn(warp, rows, v.wideBarrier, lane), barrierOffset);
  if (!barrierBlock)
    return false;
  if (barrierBlock != target) {
    warp.fault(FaultKind::InvalidAddress, lane, shared,
               "the mbarrier is in another block than the target of the copy");
    return false;
  }
  if (!v.multicast)
    return loadInto(warp, v, lane, copy, *target, barrierOffset);
  Cluster &cluster = warp.block->cluster();
  uint32_t mask = warp.narrow(rows[2])[lane] & 0xffff;
  if (mask == 0 || mask >> cluster.size()) {
    warp.fault(FaultKind::InvalidLane, lane, std::nullopt,
               fmt::format("a multicast to blocks {:#x} of a cluster of {}", mask, cluster.size()));
    return false;
  }
  for (uint32_t rank = 0; rank < cluster.size(); ++rank)
    if (mask >> rank & 1 && !loadInto(warp, v, lane, copy, cluster.block(rank), barrierOffset))
      return false;
  return true;
}

bool storeLane(Warp &warp, const Inst &inst, uint32_t lane) {
  const uint32_t *rows = warp.list(inst);
  uint64_t shared = 0;
  BulkCopy copy;
  if (!readCopy(warp, Variant::unpack(inst.imm), rows, lane, shared, copy))
    return false;
  copy.shared = offsetOf(shared);
  return startStore(warp, lane, copy);
}

template <bool (*F)(Warp &, const Inst &, uint32_t)>
void eachLane(Warp &warp, const Inst &inst, LaneMask mask) {
  for (; mask; mask &= mask - 1)
    if (!F(warp, inst, static_cast<uint32_t>(std::countr_zero(mask))))
      return;
}

void commitGroup(Warp &warp, const Inst &, LaneMask mask) {
  forEachLane(mask, [&](uint32_t lane) { ++warp.bulkCommitted[lane]; });
}

void waitGroup(Warp &warp, const Inst &inst, LaneMask mask) {
  waitForStores(warp, mask, static_cast<uint32_t>(inst.imm));
}

void nothing(Warp &, const Inst &, LaneMask) {}

/// Takes the first of the memory spaces that the opcode names.
Space takeNextSpace(InstDecoder &d) {
  for (std::string_view word : d.remaining())
    if (word == "global" || word == "shared::cta" || word == "shared::cluster") {
      Space space = word == "global" ? Space::Global : Space::Shared;
      d.take(word);
      return space;
    }
  return Space::Generic;
}

Status decodeGroup(InstDecoder &d, bool wait) {
  if (!wait) {
    d.inst.run = &commitGroup;
    return d.expectOperands(0);
  }
  d.take("read");
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(1));
  runtime::StatusOr<uint64_t> groups = d.literal(0);
  if (!groups)
    return groups.status();
  d.inst.imm = static_cast<int64_t>(*groups & 0xffff);
  d.inst.run = &waitGroup;
  return {};
}

uint8_t takeRank(InstDecoder &d) {
  return static_cast<uint8_t>(d.takeOneOf({"1d", "2d", "3d", "4d", "5d"}) + 1);
}

Status decodeShared(InstDecoder &d, size_t index, bool &wide) {
  runtime::StatusOr<AddressBase> base = d.listAddress(index);
  if (!base)
    return base.status();
  wide = base->wide;
  return {};
}

/// The side that is no shared memory, or is its other end: [address], or [map, {...}].
Status decodeOther(InstDecoder &d, size_t index, Variant &v) {
  if (!v.rank)
    return decodeShared(d, index, v.wideGlobal);
  const Operand &operand = d.operand(index);
  bool isMap = operand.kind == Operand::Kind::Address && operand.parts.size() == 2;
  if (!isMap || operand.parts[1].parts.size() != v.rank)
    return d.invalid(fmt::format("operand {} must be [map, {{coordinates}}] with {} coordinates",
                                 index + 1, v.rank));
  runtime::StatusOr<AddressBase> base = d.listAddress(operand.parts[0]);
  if (!base)
    return base.status();
  if (base->space != Space::Generic && base->space != Space::Global)
    return d.unsupported("a tensor map by the name of a variable that is not .global");
  v.wideGlobal = base->wide;
  for (const Operand &coordinate : operand.parts[1].parts)
    LLMOPT_RETURN_IF_ERROR(d.listInput(coordinate, Type::B32));
  return {};
}

/// What a reduction combines, and how.
Status decodeReduction(InstDecoder &d, Variant &v) {
  int op = d.takeOneOf(kAtomicNames);
  v.op = static_cast<AtomicOp>(op);
  if (op < 0 || v.op == AtomicOp::Exch || v.op == AtomicOp::Cas)
    return d.unsupported();
  if (!v.fromShared) // blocks may meet
    d.kernel.kernel.ordered = true;
  if (v.rank)
    return {};
  bool unflushed = d.take("noftz");
  v.type = d.takeType();
  bool half = v.op == AtomicOp::Add && (v.type == Type::F16 || v.type == Type::BF16);
  return reductionOf(v.op, v.type, v.fromShared) && unflushed == half ? Status() : d.unsupported();
}

Status decodeTransfer(InstDecoder &d, Variant v) {
  Space to = takeNextSpace(d), from = takeNextSpace(d);
  bool load = to == Space::Shared, hint = d.take("L2::cache_hint");
  bool completes = load ? d.take("mbarrier::complete_tx::bytes") : d.take("bulk_group");
  d.takeOneOf({"tile"});
  v.multicast = d.take("multicast::cluster");
  v.fromShared = load && from == Space::Shared;
  bool known = load ? from != Space::Generic && !(v.fromShared && v.rank)
                    : to == Space::Global && from == Space::Shared && !v.multicast;
  if (!known || !completes || (v.reduces && (v.multicast || from != Space::Shared)))
    return d.unsupported();
  if (v.reduces)
    LLMOPT_RETURN_IF_ERROR(decodeReduction(d, v));
  size_t operands = 2 + !v.rank + load + v.multicast + hint;
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(operands));
  LLMOPT_RETURN_IF_ERROR(decodeShared(d, load ? 0 : 1, v.wideShared));
  LLMOPT_RETURN_IF_ERROR(decodeOther(d, load ? 1 : 0, v));
  size_t next = 2;
  if (!v.rank)
    LLMOPT_RETURN_IF_ERROR(d.listInput(d.operand(next++), Type::U32));
  if (load)
    LLMOPT_RETURN_IF_ERROR(decodeShared(d, next++, v.wideBarrier));
  if (v.multicast)
    LLMOPT_RETURN_IF_ERROR(d.listInput(d.operand(next), Type::B16));
  d.inst.imm = v.pack();
  d.inst.run = load ? &eachLane<&loadLane> : &eachLane<&storeLane>;
  return {};
}

} // namespace

Status decodeBulkCopy(InstDecoder &d, bool reduces) {
  d.inst.cls = InstClass::AsyncCopy;
  d.kernel.kernel.async = true;
  int group = d.takeOneOf({"commit_group", "wait_group"});
  if (group >= 0 && !reduces)
    return decodeGroup(d, group == 1);
  bool prefetch = !reduces && d.take("prefetch");
  Variant v;
  v.reduces = reduces;
  if (d.take("tensor") && (v.rank = takeRank(d)) == 0)
    return d.unsupported();
  if (!prefetch)
    return decodeTransfer(d, v);
  d.take("L2");
  d.take("tile");
  d.take("L2::cache_hint");
  d.inst.run = &nothing; // nothing is cached here
  return takeNextSpace(d) == Space::Global ? Status() : d.unsupported();
}

} // namespace llmopt::sim

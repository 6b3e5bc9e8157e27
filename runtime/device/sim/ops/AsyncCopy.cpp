// cp.async and its groups (PTX ISA 9.7.9.25). Groups belong to a lane, not to a
// warp. The bytes arrive when the lane waits for them: until then the target
// holds NaN, so that a missing or too weak wait shows in the numbers.
#include "runtime/device/sim/exec/Access.h"
#include "runtime/device/sim/exec/SharedChecks.h"
#include "runtime/device/sim/ops/MBarrierOps.h"
#include "runtime/device/sim/ops/Ops.h"

#include <algorithm>

namespace llmopt::sim {

using ptx::Space;
using ptx::Type;
using runtime::Status;

namespace {

// Inst::mode.
constexpr uint8_t kWideTarget = 1;
constexpr uint8_t kWideSource = 2;
constexpr uint8_t kSourceSize = 4;   ///< row c: bytes to read
constexpr uint8_t kIgnoreSource = 8; ///< predicate c: read nothing

constexpr int kPoison = 0xff;

uint32_t sourceBytes(const Warp &warp, const Inst &inst, uint32_t lane) {
  if (inst.mode & kSourceSize)
    return warp.narrow(inst.c)[lane];
  if (inst.mode & kIgnoreSource && has(warp.predicates[inst.c], lane))
    return 0;
  return inst.bytes;
}

uint64_t addressOf(const Warp &warp, uint32_t row, bool wide, uint32_t offsetRow, uint32_t lane) {
  uint64_t offset = warp.wide(offsetRow)[lane];
  if (wide)
    return warp.wide(row)[lane] + offset;
  return warp.narrow(row)[lane] + static_cast<uint32_t>(offset);
}

void copyAsync(Warp &warp, const Inst &inst, LaneMask mask) {
  const uint32_t *offsets = warp.list(inst); // rows of the literal offsets
  LaneAddresses targets, sources;
  for (LaneMask rest = mask; rest; rest &= rest - 1) {
    auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    uint64_t target = addressOf(warp, inst.a, inst.mode & kWideTarget, offsets[0], lane);
    uint64_t source = addressOf(warp, inst.b, inst.mode & kWideSource, offsets[1], lane);
    std::byte *to = locate(warp, Space::Shared, lane, target, inst.bytes, AccessKind::AsyncStore);
    if (!to || !staysInBlock(warp, lane, target))
      return;
    uint32_t read = sourceBytes(warp, inst, lane);
    if (read > inst.bytes) {
      warp.fault(FaultKind::InvalidAddress, lane, source,
                 fmt::format("a source size of {} bytes; 0 to {} are allowed", read, inst.bytes));
      return;
    }
    if (read) {
      if (source % inst.bytes) {
        warp.fault(FaultKind::Misaligned, lane, source,
                   fmt::format("asynchronous load of {} bytes at an address that is no multiple of "
                               "{}",
                               inst.bytes, inst.bytes),
                   warp.block->launch().memory->describe(source));
        return;
      }
      if (!warp.block->global(warp, lane, source, read, false))
        return;
      sources.add(lane, source);
    }
    targets.add(lane, target);
    std::memset(to, kPoison, inst.bytes);
    warp.copies.push_back({source, static_cast<uint32_t>(target), inst.bytes,
                           static_cast<uint16_t>(read), lane, warp.committed[lane],
                           warp.copiesBegun++});
  }
  if (sources.lanes)
    recordGlobal(warp, sources, inst.bytes, AccessKind::AsyncLoad);
  recordShared(warp, targets, inst.bytes, AccessKind::AsyncStore);
}

void move(Warp &warp, const AsyncCopy &copy) {
  std::byte *to = warp.block->shared() + copy.target;
  std::memcpy(to, reinterpret_cast<const void *>(copy.source), copy.sourceBytes);
  std::memset(to + copy.sourceBytes, 0, copy.bytes - copy.sourceBytes);
}

void deliver(Warp &warp, const AsyncCopy &copy) {
  move(warp, copy);
  if (SharedChecks *checks = warp.block->checks())
    checks->arrive(warp, copy);
}

void commitGroup(Warp &warp, const Inst &, LaneMask mask) {
  forEachLane(mask, [&](uint32_t lane) { ++warp.committed[lane]; });
}

/// Completes all but the last `pending` groups of each lane.
void waitGroup(Warp &warp, const Inst &inst, LaneMask mask) {
  auto pending = static_cast<uint32_t>(inst.imm);
  std::erase_if(warp.copies, [&](const AsyncCopy &copy) {
    if (!has(mask, copy.lane) || copy.group + pending >= warp.committed[copy.lane])
      return false;
    deliver(warp, copy);
    return true;
  });
}

/// Completes everything, committed or not.
void waitAll(Warp &warp, const Inst &, LaneMask mask) {
  std::erase_if(warp.copies, [&](const AsyncCopy &copy) {
    if (!has(mask, copy.lane))
      return false;
    deliver(warp, copy);
    return true;
  });
}

Status decodeGroup(InstDecoder &d) {
  d.inst.cls = InstClass::AsyncCopy;
  if (d.take("commit_group")) {
    d.inst.run = &commitGroup;
    return d.expectOperands(0);
  }
  if (d.take("wait_all")) {
    d.inst.run = &waitAll;
    return d.expectOperands(0);
  }
  if (!d.take("wait_group"))
    return d.unsupported();
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(1));
  runtime::StatusOr<uint64_t> groups = d.literal(0);
  if (!groups)
    return groups.status();
  if (*groups > 0xffff)
    return d.invalid("more than 65535 groups");
  d.inst.imm = static_cast<int64_t>(*groups);
  d.inst.run = &waitGroup;
  return {};
}

Status decodeCopy(InstDecoder &d) {
  bool allLevels = d.take("ca");
  if (!allLevels && !d.take("cg"))
    return decodeGroup(d);
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(3, 4));
  if ((!d.take("shared") && !d.take("shared::cta")) || !d.take("global"))
    return d.unsupported();
  d.takeCacheHints();
  runtime::StatusOr<AddressBase> target = d.address(Field::A, 0);
  if (!target)
    return target.status();
  int64_t targetOffset = d.inst.imm;
  runtime::StatusOr<AddressBase> source = d.address(Field::B, 1);
  if (!source)
    return source.status();
  int64_t sourceOffset = d.inst.imm;
  ptx::Operand offset;
  offset.kind = ptx::Operand::Kind::Integer;
  for (int64_t value : {targetOffset, sourceOffset}) {
    offset.bits = static_cast<uint64_t>(value);
    LLMOPT_RETURN_IF_ERROR(d.listInput(offset, Type::B64));
  }
  runtime::StatusOr<uint64_t> bytes = d.literal(2);
  if (!bytes)
    return bytes.status();
  if (*bytes != 16 && (!allLevels || (*bytes != 4 && *bytes != 8)))
    return d.invalid(fmt::format("a copy of {} bytes; 4, 8 (.ca only) and 16 are allowed", *bytes));
  d.inst.bytes = static_cast<uint8_t>(*bytes);
  d.inst.mode =
      static_cast<uint8_t>((target->wide ? kWideTarget : 0) | (source->wide ? kWideSource : 0));
  if (d.count() == 4) {
    bool predicate = d.widthOf(d.operand(3), Type::U32) == RegClass::Predicate;
    d.inst.mode |= predicate ? kIgnoreSource : kSourceSize;
    LLMOPT_RETURN_IF_ERROR(d.input(Field::C, 3, predicate ? Type::Pred : Type::U32));
  }
  d.inst.cls = InstClass::AsyncCopy;
  d.inst.run = &copyAsync;
  return {};
}

Status decodeCp(InstDecoder &d) {
  if (!d.take("async"))
    return d.unsupported();
  bool reduces = d.take("reduce");
  if (d.take("bulk"))
    return decodeBulkCopy(d, reduces);
  if (reduces)
    return d.unsupported();
  if (d.take("mbarrier"))
    return d.take("arrive") ? decodeCopyArrival(d) : d.unsupported();
  return decodeCopy(d);
}

} // namespace

void deliverCopies(Warp &warp, uint32_t lane, uint32_t begun, uint32_t time) {
  std::erase_if(warp.copies, [&](const AsyncCopy &copy) {
    if (copy.lane != lane || copy.number >= begun)
      return false;
    move(warp, copy);
    if (SharedChecks *checks = warp.block->checks())
      checks->arrive(copy, time);
    return true;
  });
}

void addAsyncCopyOps(OpTable &table) { table["cp"] = &decodeCp; }

} // namespace llmopt::sim

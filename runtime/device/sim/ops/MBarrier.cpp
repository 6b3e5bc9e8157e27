// mbarrier and cp.async.mbarrier.arrive (PTX ISA 9.7.13.15).
#include "runtime/device/sim/decode/KernelDecoder.h"
#include "runtime/device/sim/exec/Access.h"
#include "runtime/device/sim/exec/Cluster.h"
#include "runtime/device/sim/exec/SharedChecks.h"
#include "runtime/device/sim/ops/MBarrierOps.h"
#include "runtime/device/sim/ops/Ops.h"

namespace llmopt::sim {

using ptx::Operand;
using ptx::Space;
using ptx::Type;
using runtime::Status;

namespace {

constexpr uint32_t kBytes = 8;

// Inst::mode.
constexpr uint8_t kWideAddress = 1;
constexpr uint8_t kGeneric = 2;
constexpr uint8_t kParity = 4;
constexpr uint8_t kRelaxed = 8; ///< hands nothing over
constexpr uint8_t kExpects = 16;
constexpr uint8_t kDrops = 32;
constexpr uint8_t kNoComplete = 64;
constexpr uint8_t kReturns = 128;

/// The block and the offset there of the mbarrier that the lane names; null and a fault
/// if it can be no mbarrier.
Block *placeOf(Warp &warp, const Inst &inst, uint32_t lane, uint32_t &offset) {
  uint64_t address = baseAddress(warp, inst, inst.a, inst.mode & kWideAddress, lane);
  return mbarrierPlace(warp, inst.mode & kGeneric, lane, address, offset);
}

MBarrier *barrierOf(Warp &warp, const Inst &inst, uint32_t lane) {
  uint32_t offset = 0;
  Block *block = placeOf(warp, inst, lane, offset);
  return block ? block->mbarriers.find(warp, lane, offset) : nullptr;
}

/// Calls body(lane) for the lanes until it returns false.
template <typename F> void forLanes(LaneMask mask, F &&body) {
  for (; mask; mask &= mask - 1)
    if (!body(static_cast<uint32_t>(std::countr_zero(mask))))
      return;
}

void init(Warp &warp, const Inst &inst, LaneMask mask) {
  LaneAddresses addresses;
  forLanes(mask, [&](uint32_t lane) {
    uint32_t offset = 0;
    Block *block = placeOf(warp, inst, lane, offset);
    if (!block)
      return false;
    block->mbarriers.init(warp, lane, offset, warp.narrow(inst.b)[lane]);
    addresses.add(lane, offset);
    return !warp.faulted;
  });
  if (!warp.faulted) // a store like another
    recordShared(warp, addresses, kBytes, AccessKind::Store);
}

void invalidate(Warp &warp, const Inst &inst, LaneMask mask) {
  forLanes(mask, [&](uint32_t lane) {
    uint32_t offset = 0;
    Block *block = placeOf(warp, inst, lane, offset);
    if (block)
      block->mbarriers.invalidate(warp, lane, offset);
    return !warp.faulted;
  });
}

void arrive(Warp &warp, const Inst &inst, LaneMask mask) {
  forLanes(mask, [&](uint32_t lane) {
    MBarrier *barrier = barrierOf(warp, inst, lane);
    if (!barrier)
      return false;
    MBarriers &barriers = barrier->block->mbarriers;
    uint32_t value = warp.narrow(inst.b)[lane], count = inst.mode & kExpects ? 1 : value;
    if (inst.mode & kExpects)
      barriers.expect(warp, lane, *barrier, value);
    uint64_t phase = barrier->phase;
    if (inst.mode & kDrops && !warp.faulted) // counts in this phase, and in none after it
      barrier->expected -= std::min(count, barrier->expected - 1);
    std::optional<uint64_t> state = barriers.arrive(warp, lane, *barrier, count);
    if (!state)
      return false;
    if (inst.mode & kReturns)
      warp.wide(inst.d)[lane] = *state;
    if (inst.mode & kNoComplete && barrier->phase != phase)
      warp.fault(FaultKind::InvalidBarrier, lane, barrier->address,
                 "an arrival with .noComplete that completes the phase");
    return !warp.faulted;
  });
}

template <bool Bring> void countBytes(Warp &warp, const Inst &inst, LaneMask mask) {
  forLanes(mask, [&](uint32_t lane) {
    MBarrier *barrier = barrierOf(warp, inst, lane);
    if (!barrier)
      return false;
    MBarriers &barriers = barrier->block->mbarriers;
    uint32_t bytes = warp.narrow(inst.b)[lane];
    Bring ? barriers.bring(warp, lane, *barrier, bytes)
          : barriers.expect(warp, lane, *barrier, bytes);
    return !warp.faulted;
  });
}

/// Lanes whose phase is complete; who asks lets copies arrive.
LaneMask completed(Warp &warp, const Inst &inst, LaneMask mask) {
  LaneMask done = 0;
  const MBarrier *before = nullptr;
  uint64_t valueBefore = 0;
  bool last = false;
  forLanes(mask, [&](uint32_t lane) {
    MBarrier *barrier = barrierOf(warp, inst, lane);
    if (!barrier)
      return false;
    bool byParity = inst.mode & kParity;
    uint64_t value = byParity ? warp.narrow(inst.b)[lane] & 1 : warp.wide(inst.b)[lane];
    if (barrier != before || value != valueBefore) {
      auto passed = [&] {
        return byParity ? barrier->passed(value != 0) : barrier->phase > MBarriers::phaseOf(value);
      };
      if (!passed())
        barrier->block->mbarriers.poll(*barrier, barrier->phase);
      last = passed();
      before = barrier;
      valueBefore = value;
      Clocks *clocks = warp.block->clocks();
      if (last && clocks && !(inst.mode & kRelaxed)) {
        clocks->acquire(warp.agent, barrier->completed);
        clocks->complete(warp.agent, barrier->agent, static_cast<uint32_t>(barrier->phase));
      }
    }
    if (last)
      done |= 1u << lane;
    else
      warp.polled = barrier;
    return !warp.faulted;
  });
  return done;
}

/// Waits until the phase is complete, unless nothing else goes on any more.
void tryWait(Warp &warp, const Inst &inst, LaneMask mask) {
  LaneMask done = completed(warp, inst, mask);
  warp.setPredicate(inst.d, done, mask);
  if (!warp.timedOut && !warp.faulted)
    warp.blocked = mask & ~done;
}

void testWait(Warp &warp, const Inst &inst, LaneMask mask) {
  LaneMask done = completed(warp, inst, mask);
  warp.setPredicate(inst.d, done, mask);
  warp.yielded = done != mask;
}

void pendingCount(Warp &warp, const Inst &inst, LaneMask mask) {
  forEachLane(mask, [&](uint32_t lane) {
    warp.narrow(inst.d)[lane] = MBarriers::pendingOf(warp.wide(inst.a)[lane]);
  });
}

/// Arrives when the copies that the lane has begun are there.
void arriveAfterCopies(Warp &warp, const Inst &inst, LaneMask mask) {
  forLanes(mask, [&](uint32_t lane) {
    MBarrier *barrier = barrierOf(warp, inst, lane);
    if (!barrier)
      return false;
    if (!inst.bytes) // not .noinc: the arrival that it makes is one more
      ++barrier->pending;
    AsyncArrival arrival;
    arrival.arrives = true;
    uint32_t now = 0;
    if (Clocks *clocks = warp.block->clocks()) {
      now = clocks->now(warp.agent);
      clocks->release(warp.agent, arrival.clock);
    }
    uint32_t copies = warp.copiesBegun;
    arrival.deliver = [&warp, lane, now, copies] { deliverCopies(warp, lane, copies, now); };
    barrier->block->mbarriers.add(*barrier, std::move(arrival));
    return true;
  });
}

Status decodeAddress(InstDecoder &d, size_t index, Space space) {
  runtime::StatusOr<AddressBase> base = d.address(Field::A, index);
  if (!base)
    return base.status();
  if (base->space != Space::Generic && base->space != Space::Shared)
    return d.unsupported("an mbarrier lies in shared memory");
  d.inst.mode |= static_cast<uint8_t>(
      (base->wide ? kWideAddress : 0) |
      (space == Space::Generic && base->space == Space::Generic ? kGeneric : 0));
  d.kernel.kernel.async = true;
  return {};
}

Status decodeArrive(InstDecoder &d, Space space, bool drops) {
  bool expects = d.take("expect_tx"), noComplete = d.take("noComplete");
  // A result is left out for barriers of other blocks.
  bool returns = d.count() && d.operand(0).kind == Operand::Kind::Name;
  size_t first = returns ? 1 : 0;
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(first + (expects || noComplete ? 2 : 1), first + 2));
  if (returns && d.operand(0).name != "_") {
    LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, Type::B64));
    d.inst.mode |= kReturns;
  }
  d.inst.mode |= static_cast<uint8_t>((expects ? kExpects : 0) | (noComplete ? kNoComplete : 0) |
                                      (drops ? kDrops : 0));
  d.inst.run = &arrive;
  LLMOPT_RETURN_IF_ERROR(decodeAddress(d, first, space));
  Operand one;
  one.kind = Operand::Kind::Integer;
  one.bits = 1;
  return d.input(Field::B, d.count() > first + 1 ? d.operand(first + 1) : one, Type::U32);
}

Status decodeWait(InstDecoder &d, Space space, bool suspends) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(3, suspends ? 4 : 3));
  bool parity = d.take("parity");
  d.inst.mode |= parity ? kParity : 0;
  d.inst.flow = Flow::Wait;
  d.inst.run = suspends ? &tryWait : &testWait;
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, Type::Pred));
  LLMOPT_RETURN_IF_ERROR(decodeAddress(d, 1, space));
  return d.input(Field::B, 2, parity ? Type::U32 : Type::B64);
}

Status decodeTwo(InstDecoder &d, Space space, Handler handler) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(2));
  d.inst.run = handler;
  LLMOPT_RETURN_IF_ERROR(decodeAddress(d, 0, space));
  return d.input(Field::B, 1, Type::U32);
}

Status decodeMBarrier(InstDecoder &d) {
  d.inst.cls = InstClass::Barrier;
  int order = d.takeOneOf({"relaxed", "acquire", "release"});
  if (order == 0)
    d.inst.mode |= kRelaxed;
  d.takeOneOf({"cta", "cluster"});
  Space space = d.takeSpace();
  if (space != Space::Generic && space != Space::Shared)
    return d.unsupported();
  int kind = d.takeOneOf({"init", "inval", "arrive", "arrive_drop", "expect_tx", "complete_tx",
                          "test_wait", "try_wait", "pending_count"});
  if (d.takeType() != Type::B64)
    return d.unsupported();
  switch (kind) {
  case 0:
    return decodeTwo(d, space, &init);
  case 1:
    LLMOPT_RETURN_IF_ERROR(d.expectOperands(1));
    d.inst.run = &invalidate;
    return decodeAddress(d, 0, space);
  case 2:
  case 3:
    return decodeArrive(d, space, kind == 3);
  case 4: // not that of "arrive.expect_tx"
  case 5:
    return decodeTwo(d, space, kind == 4 ? &countBytes<false> : &countBytes<true>);
  case 6:
  case 7:
    return decodeWait(d, space, kind == 7);
  case 8:
    LLMOPT_RETURN_IF_ERROR(d.expectOperands(2));
    d.inst.run = &pendingCount;
    LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, Type::U32));
    return d.input(Field::A, 1, Type::B64);
  default:
    return d.unsupported();
  }
}

} // namespace

Block *mbarrierPlace(Warp &warp, bool generic, uint32_t lane, uint64_t address, uint32_t &offset) {
  uint64_t given = address;
  if (generic && spaceOf(address) != Space::Shared) {
    warp.fault(FaultKind::InvalidAddress, lane, given, "the mbarrier is not in shared memory");
    return nullptr;
  }
  if (!locate(warp, Space::Shared, lane, address, kBytes, AccessKind::Atomic))
    return nullptr;
  Block *block = warp.block->resolve(warp, lane, address);
  offset = static_cast<uint32_t>(address);
  return block;
}

Status decodeCopyArrival(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(1));
  d.inst.bytes = d.take("noinc");
  Space space = d.takeSpace();
  if (d.takeType() != Type::B64 || (space != Space::Generic && space != Space::Shared))
    return d.unsupported();
  d.inst.cls = InstClass::AsyncCopy;
  d.inst.run = &arriveAfterCopies;
  return decodeAddress(d, 0, space);
}

void addMBarrierOps(OpTable &table) { table["mbarrier"] = &decodeMBarrier; }

} // namespace llmopt::sim

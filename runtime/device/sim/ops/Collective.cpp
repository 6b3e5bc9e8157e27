// shfl, vote, match, redux, activemask, elect (PTX ISA 9.7.9.6, 9.7.13).
#include "runtime/device/sim/exec/Lanes.h"
#include "runtime/device/sim/ops/Ops.h"

#include <algorithm>

namespace llmopt::sim {

using ptx::Operand;
using ptx::Type;
using runtime::Status;

namespace {

enum class ShuffleMode : uint8_t { Up, Down, Butterfly, Index };

/// Source lane, and whether it is inside the segment that c describes.
std::pair<uint32_t, bool> sourceLane(ShuffleMode mode, uint32_t lane, uint32_t b, uint32_t c) {
  b &= 31;
  uint32_t clamp = c & 31, segment = c >> 8 & 31;
  uint32_t last = (lane & segment) | (clamp & ~segment);
  uint32_t first = lane & segment;
  uint32_t source = lane;
  bool inside = false;
  switch (mode) {
  case ShuffleMode::Up: // clamp is the lowest lane here
    source = lane - b;
    inside = static_cast<int32_t>(source) >= static_cast<int32_t>(last);
    break;
  case ShuffleMode::Down:
    source = lane + b;
    inside = source <= last;
    break;
  case ShuffleMode::Butterfly:
    source = lane ^ b;
    inside = source <= last;
    break;
  case ShuffleMode::Index:
    source = first | (b & ~segment);
    inside = source <= last;
    break;
  }
  return {inside ? source : lane, inside};
}

void shuffle(Warp &warp, const Inst &inst, LaneMask mask) {
  const uint32_t *a = warp.narrow(inst.a), *b = warp.narrow(inst.b);
  const uint32_t *c = warp.narrow(warp.list(inst)[0]);
  auto mode = static_cast<ShuffleMode>(inst.mode);
  alignas(64) uint32_t result[kLanes] = {};
  LaneMask valid = 0;
  for (LaneMask rest = mask; rest; rest &= rest - 1) {
    auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    auto [source, inside] = sourceLane(mode, lane, b[lane], c[lane]);
    if (!has(mask, source)) {
      warp.fault(
          FaultKind::InvalidLane, lane, std::nullopt,
          fmt::format("reads lane {}, which does not take part; those are {:#010x}", source, mask));
      return;
    }
    result[lane] = a[source];
    valid |= inside ? 1u << lane : 0;
  }
  storeRow(warp.narrow(inst.d), result, mask);
  if (inst.imm)
    warp.setPredicate(inst.d2, valid, mask);
}

void converge(InstDecoder &d, Handler handler) {
  d.converge(Need::Members, InstClass::Collective, handler);
}

Status decodeShuffle(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(5));
  bool sync = d.take("sync");
  int mode = d.takeOneOf({"up", "down", "bfly", "idx"});
  if (!sync || mode < 0 || d.takeType() != Type::B32)
    return d.unsupported();
  converge(d, &shuffle);
  const Operand &target = d.operand(0);
  bool pair = target.kind == Operand::Kind::Pair;
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, pair ? target.parts[0] : target, Type::B32));
  if (pair)
    LLMOPT_RETURN_IF_ERROR(d.output(Field::D2, target.parts[1], Type::Pred));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::A, 1, Type::B32));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::B, 2, Type::B32));
  LLMOPT_RETURN_IF_ERROR(d.listInput(d.operand(3), Type::B32));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::C, 4, Type::B32));
  d.inst.imm = pair;
  d.inst.mode = static_cast<uint8_t>(mode);
  return {};
}

enum class VoteMode : uint8_t { All, Any, Uniform, Ballot };
constexpr uint8_t kNegated = 0x80;

void vote(Warp &warp, const Inst &inst, LaneMask mask) {
  LaneMask value = warp.predicates[inst.a] ^ (inst.mode & kNegated ? kAllLanes : 0);
  value &= mask;
  switch (static_cast<VoteMode>(inst.mode & 0x7f)) {
  case VoteMode::All:
    return warp.setPredicate(inst.d, value == mask ? kAllLanes : 0, mask);
  case VoteMode::Any:
    return warp.setPredicate(inst.d, value ? kAllLanes : 0, mask);
  case VoteMode::Uniform:
    return warp.setPredicate(inst.d, value == mask || value == 0 ? kAllLanes : 0, mask);
  case VoteMode::Ballot:
    return forEachLane(mask, [&](uint32_t lane) { warp.narrow(inst.d)[lane] = value; });
  }
}

Status decodeVote(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(3));
  bool sync = d.take("sync");
  int mode = d.takeOneOf({"all", "any", "uni", "ballot"});
  bool ballot = mode == static_cast<int>(VoteMode::Ballot);
  if (!sync || mode < 0 || d.takeType() != (ballot ? Type::B32 : Type::Pred))
    return d.unsupported();
  converge(d, &vote);
  bool negated = false;
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, ballot ? Type::B32 : Type::Pred));
  LLMOPT_RETURN_IF_ERROR(d.predicateInput(Field::A, d.operand(1), negated));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::C, 2, Type::B32));
  d.inst.mode = static_cast<uint8_t>(mode | (negated ? kNegated : 0));
  return {};
}

template <typename C> LaneMask equalLanes(const C *a, uint32_t lane, LaneMask mask) {
  LaneMask same = 0;
  forEachLane(mask, [&](uint32_t other) { same |= a[other] == a[lane] ? 1u << other : 0; });
  return same;
}

template <typename C> void matchAny(Warp &warp, const Inst &inst, LaneMask mask) {
  const C *a = row<C>(warp, inst.a);
  alignas(64) uint32_t result[kLanes] = {};
  forEachLane(mask, [&](uint32_t lane) { result[lane] = equalLanes(a, lane, mask); });
  storeRow(warp.narrow(inst.d), result, mask);
}

template <typename C> void matchAll(Warp &warp, const Inst &inst, LaneMask mask) {
  const C *a = row<C>(warp, inst.a);
  bool all = equalLanes(a, static_cast<uint32_t>(std::countr_zero(mask)), mask) == mask;
  forEachLane(mask, [&](uint32_t lane) { warp.narrow(inst.d)[lane] = all ? mask : 0; });
  if (inst.imm)
    warp.setPredicate(inst.d2, all ? kAllLanes : 0, mask);
}

Status decodeMatch(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(3));
  bool all = d.take("all"), any = d.take("any");
  bool sync = d.take("sync");
  Type type = d.takeType();
  if (all == any || !sync || (type != Type::B32 && type != Type::B64))
    return d.unsupported();
  bool wide = type == Type::B64;
  converge(d, all ? (wide ? &matchAll<uint64_t> : &matchAll<uint32_t>)
                  : (wide ? &matchAny<uint64_t> : &matchAny<uint32_t>));
  const Operand &target = d.operand(0);
  bool pair = all && target.kind == Operand::Kind::Pair;
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, pair ? target.parts[0] : target, Type::B32));
  if (pair)
    LLMOPT_RETURN_IF_ERROR(d.output(Field::D2, target.parts[1], Type::Pred));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::A, 1, type));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::C, 2, Type::B32));
  d.inst.imm = pair;
  return {};
}

template <auto F> void reduce(Warp &warp, const Inst &inst, LaneMask mask) {
  const uint32_t *a = warp.narrow(inst.a);
  uint32_t result = a[std::countr_zero(mask)];
  forEachLane(mask & (mask - 1), [&](uint32_t lane) { result = F(result, a[lane]); });
  forEachLane(mask, [&](uint32_t lane) { warp.narrow(inst.d)[lane] = result; });
}

uint32_t sum(uint32_t a, uint32_t b) { return a + b; }
uint32_t minU(uint32_t a, uint32_t b) { return std::min(a, b); }
uint32_t maxU(uint32_t a, uint32_t b) { return std::max(a, b); }
uint32_t minS(uint32_t a, uint32_t b) {
  return static_cast<int32_t>(a) < static_cast<int32_t>(b) ? a : b;
}
uint32_t maxS(uint32_t a, uint32_t b) {
  return static_cast<int32_t>(a) > static_cast<int32_t>(b) ? a : b;
}
uint32_t andU(uint32_t a, uint32_t b) { return a & b; }
uint32_t orU(uint32_t a, uint32_t b) { return a | b; }
uint32_t xorU(uint32_t a, uint32_t b) { return a ^ b; }

Handler reduceHandler(int op, Type type) {
  bool bits = op >= 3;
  if (type != (bits ? Type::B32 : Type::U32) && (bits || type != Type::S32))
    return nullptr;
  bool isSigned = type == Type::S32;
  switch (op) {
  case 0:
    return &reduce<&sum>;
  case 1:
    return isSigned ? &reduce<&minS> : &reduce<&minU>;
  case 2:
    return isSigned ? &reduce<&maxS> : &reduce<&maxU>;
  case 3:
    return &reduce<&andU>;
  case 4:
    return &reduce<&orU>;
  case 5:
    return &reduce<&xorU>;
  default:
    return nullptr;
  }
}

Status decodeReduce(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(3));
  bool sync = d.take("sync");
  int op = d.takeOneOf({"add", "min", "max", "and", "or", "xor"});
  Handler handler = reduceHandler(op, d.takeType());
  if (!sync || !handler)
    return d.unsupported();
  converge(d, handler);
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, Type::B32));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::A, 1, Type::B32));
  return d.input(Field::C, 2, Type::B32);
}

void activeMask(Warp &warp, const Inst &inst, LaneMask mask) {
  forEachLane(mask, [&](uint32_t lane) { warp.narrow(inst.d)[lane] = mask; });
}

Status decodeActiveMask(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(1));
  if (d.takeType() != Type::B32)
    return d.unsupported();
  d.inst.cls = InstClass::Collective;
  d.inst.run = &activeMask;
  return d.output(Field::D, 0, Type::B32);
}

/// The lowest lane is chosen: the ISA leaves it open, but always the same.
void elect(Warp &warp, const Inst &inst, LaneMask mask) {
  auto leader = static_cast<uint32_t>(std::countr_zero(mask));
  forEachLane(mask, [&](uint32_t lane) { warp.narrow(inst.d)[lane] = leader; });
  warp.setPredicate(inst.d2, 1u << leader, mask);
}

Status decodeElect(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(2));
  const Operand &target = d.operand(0);
  if (!d.take("sync") || target.kind != Operand::Kind::Pair)
    return d.unsupported();
  converge(d, &elect);
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, target.parts[0], Type::B32));
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D2, target.parts[1], Type::Pred));
  return d.input(Field::C, 1, Type::B32);
}

} // namespace

void addCollectiveOps(OpTable &table) {
  table["shfl"] = &decodeShuffle;
  table["vote"] = &decodeVote;
  table["match"] = &decodeMatch;
  table["redux"] = &decodeReduce;
  table["activemask"] = &decodeActiveMask;
  table["elect"] = &decodeElect;
}

} // namespace llmopt::sim

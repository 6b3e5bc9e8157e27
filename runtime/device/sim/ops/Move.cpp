// mov (also between a register and the pieces of a vector), cvta, isspacep
// (PTX ISA 9.7.9).
#include "runtime/device/sim/exec/Block.h"
#include "runtime/device/sim/exec/Lanes.h"
#include "runtime/device/sim/ops/Ops.h"

namespace llmopt::sim {

using ptx::Operand;
using ptx::Space;
using ptx::Type;
using runtime::Status;

namespace {

template <typename C> void moveRow(Warp &warp, const Inst &inst, LaneMask mask) {
  // Through a copy: with all lanes active the rows may be the same.
  alignas(64) C values[kLanes];
  std::memcpy(values, row<C>(warp, inst.a), sizeof(values));
  storeRow(row<C>(warp, inst.d), values, mask);
}

constexpr uint8_t kNegated = 1;

void movePredicate(Warp &warp, const Inst &inst, LaneMask mask) {
  LaneMask value = warp.predicates[inst.a];
  warp.setPredicate(inst.d, inst.mode & kNegated ? ~value : value, mask);
}

/// Clocks grow, and say nothing about time.
template <typename C> void readClock(Warp &warp, const Inst &inst, LaneMask mask) {
  uint64_t now = warp.block->tick();
  C *d = row<C>(warp, inst.d);
  forEachLane(mask, [&](uint32_t lane) { d[lane] = static_cast<C>(now >> inst.imm); });
}

/// inst.bytes: of a piece. The first piece is the lowest.
template <typename C> void pack(Warp &warp, const Inst &inst, LaneMask mask) {
  const uint32_t *rows = warp.list(inst);
  C *d = row<C>(warp, inst.d);
  uint64_t low = (uint64_t{1} << 8 * inst.bytes) - 1;
  forEachLane(mask, [&](uint32_t lane) {
    uint64_t value = 0;
    for (uint32_t i = 0; i < inst.inputs; ++i)
      value |= (warp.narrow(rows[i])[lane] & low) << 8 * inst.bytes * i;
    d[lane] = static_cast<C>(value);
  });
}

template <typename C> void unpack(Warp &warp, const Inst &inst, LaneMask mask) {
  const uint32_t *rows = warp.list(inst);
  const C *a = row<C>(warp, inst.a);
  uint64_t low = (uint64_t{1} << 8 * inst.bytes) - 1;
  forEachLane(mask, [&](uint32_t lane) {
    uint64_t value = a[lane];
    for (uint32_t i = 0; i < inst.outputs; ++i)
      warp.narrow(rows[i])[lane] = static_cast<uint32_t>(value >> 8 * inst.bytes * i & low);
  });
}

Status decodePacking(InstDecoder &d, Type type) {
  bool packs = d.operand(1).kind == Operand::Kind::Vector;
  const Operand &vector = d.operand(packs ? 1 : 0);
  size_t pieces = vector.parts.size();
  uint32_t bytes = ptx::sizeOf(type);
  if ((pieces != 2 && pieces != 4) || bytes % pieces != 0 || bytes < 2)
    return d.unsupported();
  uint32_t pieceBytes = bytes / static_cast<uint32_t>(pieces);
  Type pieceType = pieceBytes == 1 ? Type::B8 : pieceBytes == 2 ? Type::B16 : Type::B32;
  if (pieceBytes > 4)
    return d.unsupported();
  d.inst.bytes = static_cast<uint8_t>(pieceBytes);
  if (packs)
    LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, type));
  else
    LLMOPT_RETURN_IF_ERROR(d.input(Field::A, 1, type));
  for (const Operand &piece : vector.parts)
    LLMOPT_RETURN_IF_ERROR(packs ? d.listInput(piece, pieceType) : d.listOutput(piece, pieceType));
  if (packs)
    d.inst.run = bytes == 8 ? &pack<uint64_t> : &pack<uint32_t>;
  else
    d.inst.run = bytes == 8 ? &unpack<uint64_t> : &unpack<uint32_t>;
  return {};
}

struct ClockName {
  std::string_view name;
  uint32_t shift;
};
constexpr ClockName kClocks[] = {{"%clock", 0},          {"%clock_hi", 32},
                                 {"%clock64", 0},        {"%globaltimer", 0},
                                 {"%globaltimer_lo", 0}, {"%globaltimer_hi", 32}};

Status decodeMove(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(2));
  Type type = d.takeType();
  d.inst.cls = InstClass::Move;
  if (d.operand(0).kind == Operand::Kind::Vector || d.operand(1).kind == Operand::Kind::Vector)
    return decodePacking(d, type);
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, type));
  if (type == Type::Pred) {
    bool negated = false;
    LLMOPT_RETURN_IF_ERROR(d.predicateInput(Field::A, d.operand(1), negated));
    d.inst.mode = negated ? kNegated : 0;
    d.inst.cls = InstClass::Predicate;
    d.inst.run = &movePredicate;
    return {};
  }
  uint32_t bytes = ptx::sizeOf(type);
  if (bytes < 2 || bytes > 8)
    return d.unsupported();
  for (const ClockName &clock : kClocks) {
    if (d.operand(1).name != clock.name)
      continue;
    d.inst.imm = clock.shift;
    d.inst.run = bytes == 8 ? &readClock<uint64_t> : &readClock<uint32_t>;
    return {};
  }
  d.inst.run = bytes == 8 ? &moveRow<uint64_t> : &moveRow<uint32_t>;
  return d.input(Field::A, 1, type);
}

/// Adds inst.imm: the beginning of the space's window, or its negative.
template <typename C> void shiftWindow(Warp &warp, const Inst &inst, LaneMask mask) {
  const C *a = row<C>(warp, inst.a);
  C *d = row<C>(warp, inst.d);
  forEachLane(mask, [&](uint32_t lane) { d[lane] = a[lane] + static_cast<C>(inst.imm); });
}

uint64_t windowOf(Space space) {
  switch (space) {
  case Space::Shared:
    return kSharedWindow;
  case Space::Local:
    return kLocalWindow;
  case Space::Param:
    return kParamWindow;
  default:
    return 0; // global and constant addresses are generic addresses
  }
}

Status decodeConvertAddress(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(2));
  bool to = d.take("to");
  Space space = d.takeSpace();
  Type type = d.takeType();
  if (space == Space::Generic || type != Type::U64)
    return d.unsupported();
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, type));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::A, 1, type));
  uint64_t window = windowOf(space);
  d.inst.imm = static_cast<int64_t>(to ? ~window + 1 : window);
  d.inst.cls = InstClass::Move;
  d.inst.run = window ? &shiftWindow<uint64_t> : &moveRow<uint64_t>;
  return {};
}

void testWindow(Warp &warp, const Inst &inst, LaneMask mask) {
  const uint64_t *a = warp.wide(inst.a);
  auto window = static_cast<uint64_t>(inst.imm);
  LaneMask result = 0;
  forEachLane(mask, [&](uint32_t lane) {
    bool inside = window ? a[lane] - window < kWindowBytes : a[lane] < kSharedWindow;
    result |= inside ? 1u << lane : 0;
  });
  warp.setPredicate(inst.d, result, mask);
}

Status decodeIsSpace(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(2));
  Space space = d.takeSpace();
  if (space == Space::Generic || space == Space::Const)
    return d.unsupported();
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, Type::Pred));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::A, 1, Type::U64));
  d.inst.imm = static_cast<int64_t>(windowOf(space));
  d.inst.cls = InstClass::Predicate;
  d.inst.run = &testWindow;
  return {};
}

} // namespace

void addMoveOps(OpTable &table) {
  table["mov"] = &decodeMove;
  table["cvta"] = &decodeConvertAddress;
  table["isspacep"] = &decodeIsSpace;
}

} // namespace llmopt::sim

// and, or, xor, not, cnot, lop3, shifts (PTX ISA 9.7.8), also on predicates.
#include "runtime/device/sim/exec/Lanes.h"
#include "runtime/device/sim/ops/Modes.h"
#include "runtime/device/sim/ops/Ops.h"

namespace llmopt::sim {

using ptx::Type;
using runtime::Status;

namespace {

template <typename T> T andBits(T a, T b) { return a & b; }
template <typename T> T orBits(T a, T b) { return a | b; }
template <typename T> T xorBits(T a, T b) { return a ^ b; }
template <typename T> T notBits(T a) { return static_cast<T>(~a); }
template <typename T> T cnot(T a) { return a == 0; }

// Shift amounts beyond the width shift everything out.
template <typename T> T shiftLeft(T a, uint32_t n) {
  return n >= 8 * sizeof(T) ? T{0} : static_cast<T>(a << n);
}
template <typename T> T shiftRight(T a, uint32_t n) {
  constexpr uint32_t kWidth = 8 * sizeof(T);
  if constexpr (std::is_signed_v<T>)
    return static_cast<T>(a >> (n >= kWidth ? kWidth - 1 : n));
  else
    return n >= kWidth ? T{0} : static_cast<T>(a >> n);
}

// The 64 bits b:a.
uint64_t concat(uint32_t a, uint32_t b) { return uint64_t{b} << 32 | a; }
uint32_t funnelLeftWrap(uint32_t a, uint32_t b, uint32_t c) {
  return static_cast<uint32_t>(concat(a, b) << (c & 31) >> 32);
}
uint32_t funnelRightWrap(uint32_t a, uint32_t b, uint32_t c) {
  return static_cast<uint32_t>(concat(a, b) >> (c & 31));
}
uint32_t funnelLeftClamp(uint32_t a, uint32_t b, uint32_t c) {
  return c >= 32 ? a : funnelLeftWrap(a, b, c);
}
uint32_t funnelRightClamp(uint32_t a, uint32_t b, uint32_t c) {
  return c >= 32 ? b : funnelRightWrap(a, b, c);
}

LaneMask andMask(LaneMask a, LaneMask b) { return a & b; }
LaneMask orMask(LaneMask a, LaneMask b) { return a | b; }
LaneMask xorMask(LaneMask a, LaneMask b) { return a ^ b; }

template <LaneMask (*F)(LaneMask, LaneMask)>
void predicateOp(Warp &warp, const Inst &inst, LaneMask mask) {
  warp.setPredicate(inst.d, F(predicateA(warp, inst), predicateB(warp, inst)), mask);
}

Status decodePredicates(InstDecoder &d, Handler handler) {
  bool unary = d.count() == 2;
  bool notA = false, notB = false;
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, Type::Pred));
  LLMOPT_RETURN_IF_ERROR(d.predicateInput(Field::A, d.operand(1), notA));
  LLMOPT_RETURN_IF_ERROR(d.predicateInput(Field::B, d.operand(unary ? 1 : 2), notB));
  d.inst.mode = static_cast<uint8_t>((notA ? kNotA : 0) | (notB ? kNotB : 0));
  d.inst.cls = InstClass::Predicate;
  d.inst.run = handler;
  return {};
}

struct Widths {
  Handler b16, b32, b64, predicate;

  Handler of(Type type) const {
    switch (type) {
    case Type::B16:
      return b16;
    case Type::B32:
      return b32;
    case Type::B64:
      return b64;
    default:
      return nullptr;
    }
  }
};

Status decodeBinary(InstDecoder &d, const Widths &handlers) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(3));
  Type type = d.takeType();
  if (type == Type::Pred) {
    if (d.opcode() != "xor")
      d.inst.masking = d.opcode() == "and" ? Masking::And : Masking::Or;
    return decodePredicates(d, handlers.predicate);
  }
  if (!handlers.of(type))
    return d.unsupported();
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, type));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::A, 1, type));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::B, 2, type));
  d.inst.run = handlers.of(type);
  return {};
}

Status decodeLogic(InstDecoder &d) {
  constexpr Widths kAnd = {lanewise<&andBits<uint16_t>>, lanewise<&andBits<uint32_t>>,
                           lanewise<&andBits<uint64_t>>, &predicateOp<&andMask>};
  constexpr Widths kOr = {lanewise<&orBits<uint16_t>>, lanewise<&orBits<uint32_t>>,
                          lanewise<&orBits<uint64_t>>, &predicateOp<&orMask>};
  constexpr Widths kXor = {lanewise<&xorBits<uint16_t>>, lanewise<&xorBits<uint32_t>>,
                           lanewise<&xorBits<uint64_t>>, &predicateOp<&xorMask>};
  return decodeBinary(d, d.opcode() == "and" ? kAnd : d.opcode() == "or" ? kOr : kXor);
}

Status decodeNot(InstDecoder &d) {
  constexpr Widths kNot = {lanewise<&notBits<uint16_t>>, lanewise<&notBits<uint32_t>>,
                           lanewise<&notBits<uint64_t>>, nullptr};
  constexpr Widths kCnot = {lanewise<&cnot<uint16_t>>, lanewise<&cnot<uint32_t>>,
                            lanewise<&cnot<uint64_t>>, nullptr};
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(2));
  Type type = d.takeType();
  if (type == Type::Pred && d.opcode() == "not") {
    LLMOPT_RETURN_IF_ERROR(decodePredicates(d, &predicateOp<&andMask>));
    d.inst.mode ^= kNotA | kNotB;
    return {};
  }
  Handler handler = (d.opcode() == "not" ? kNot : kCnot).of(type);
  if (!handler)
    return d.unsupported();
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, type));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::A, 1, type));
  d.inst.run = handler;
  return {};
}

Handler shiftHandler(bool left, Type type) {
  switch (type) {
  case Type::B16:
  case Type::U16:
    return left ? lanewise<&shiftLeft<uint16_t>> : lanewise<&shiftRight<uint16_t>>;
  case Type::B32:
  case Type::U32:
    return left ? lanewise<&shiftLeft<uint32_t>> : lanewise<&shiftRight<uint32_t>>;
  case Type::B64:
  case Type::U64:
    return left ? lanewise<&shiftLeft<uint64_t>> : lanewise<&shiftRight<uint64_t>>;
  case Type::S16:
    return left ? nullptr : lanewise<&shiftRight<int16_t>>;
  case Type::S32:
    return left ? nullptr : lanewise<&shiftRight<int32_t>>;
  case Type::S64:
    return left ? nullptr : lanewise<&shiftRight<int64_t>>;
  default:
    return nullptr;
  }
}

Status decodeShift(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(3));
  Type type = d.takeType();
  Handler handler = shiftHandler(d.opcode() == "shl", type);
  if (!handler)
    return d.unsupported();
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, type));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::A, 1, type));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::B, 2, Type::U32));
  d.inst.run = handler;
  return {};
}

Status decodeFunnelShift(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(4));
  int direction = d.takeOneOf({"l", "r"}), mode = d.takeOneOf({"wrap", "clamp"});
  if (d.takeType() != Type::B32 || direction < 0 || mode < 0)
    return d.unsupported();
  constexpr Handler kHandlers[2][2] = {{lanewise<&funnelLeftWrap>, lanewise<&funnelLeftClamp>},
                                       {lanewise<&funnelRightWrap>, lanewise<&funnelRightClamp>}};
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, Type::B32));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::A, 1, Type::B32));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::B, 2, Type::B32));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::C, 3, Type::U32));
  d.inst.run = kHandlers[direction][mode];
  return {};
}

/// Bit i of the result is bit abc of the table, a, b, c being bit i of the operands.
void lop3(Warp &warp, const Inst &inst, LaneMask mask) {
  const uint32_t *a = warp.narrow(inst.a), *b = warp.narrow(inst.b), *c = warp.narrow(inst.c);
  alignas(64) uint32_t result[kLanes] = {};
  for (uint32_t entry = 0; entry < 8; ++entry) {
    if (!(inst.imm >> entry & 1))
      continue;
    uint32_t flipA = entry & 4 ? 0 : ~0u, flipB = entry & 2 ? 0 : ~0u, flipC = entry & 1 ? 0 : ~0u;
    for (uint32_t lane = 0; lane < kLanes; ++lane)
      result[lane] |= (a[lane] ^ flipA) & (b[lane] ^ flipB) & (c[lane] ^ flipC);
  }
  storeRow(warp.narrow(inst.d), result, mask);
}

Status decodeLop3(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(5));
  if (d.takeType() != Type::B32)
    return d.unsupported();
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, Type::B32));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::A, 1, Type::B32));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::B, 2, Type::B32));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::C, 3, Type::B32));
  runtime::StatusOr<uint64_t> table = d.literal(4);
  if (!table)
    return table.status();
  d.inst.imm = static_cast<int64_t>(*table & 0xff);
  d.inst.run = &lop3;
  return {};
}

} // namespace

void addLogicOps(OpTable &table) {
  table["and"] = &decodeLogic;
  table["or"] = &decodeLogic;
  table["xor"] = &decodeLogic;
  table["not"] = &decodeNot;
  table["cnot"] = &decodeNot;
  table["shl"] = &decodeShift;
  table["shr"] = &decodeShift;
  table["shf"] = &decodeFunnelShift;
  table["lop3"] = &decodeLop3;
}

} // namespace llmopt::sim

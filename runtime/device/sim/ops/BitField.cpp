// popc, clz, bfind, brev, fns, bfe, bfi, bmsk, prmt (PTX ISA 9.7.1).
#include "runtime/device/sim/exec/Lanes.h"
#include "runtime/device/sim/ops/Ops.h"

#include <algorithm>

namespace llmopt::sim {

using ptx::Type;
using runtime::Status;

namespace {

template <typename T> uint32_t popc(T a) { return static_cast<uint32_t>(std::popcount(a)); }
template <typename T> uint32_t clz(T a) { return static_cast<uint32_t>(std::countl_zero(a)); }
template <typename T> T brev(T a) {
  T result = 0;
  for (size_t i = 0; i < 8 * sizeof(T); ++i)
    result |= (a >> i & 1) << (8 * sizeof(T) - 1 - i);
  return result;
}

/// Place of the most significant bit that is not a sign bit; all ones if there
/// is none. Shift: how far it is from the top instead.
template <typename T, bool Shift> uint32_t bfind(T a) {
  using U = std::make_unsigned_t<T>;
  auto bits = static_cast<U>(a);
  if (std::is_signed_v<T> && a < 0)
    bits = static_cast<U>(~bits);
  if (bits == 0)
    return ~0u;
  auto leading = static_cast<uint32_t>(std::countl_zero(bits));
  return Shift ? leading : static_cast<uint32_t>(8 * sizeof(T)) - 1 - leading;
}

template <typename T> T bfe(T a, uint32_t position, uint32_t length) {
  using U = std::make_unsigned_t<T>;
  constexpr uint32_t kTop = 8 * sizeof(T) - 1;
  position &= 0xff;
  length &= 0xff;
  auto bits = static_cast<U>(a);
  U sign = 0;
  if (std::is_signed_v<T> && length != 0)
    sign = static_cast<U>(bits >> std::min(position + length - 1, kTop) & 1);
  U field = position > kTop ? U{0} : static_cast<U>(bits >> position);
  uint32_t known = position > kTop ? 0 : std::min(length, kTop + 1 - position);
  if (known > kTop)
    return static_cast<T>(field);
  U low = static_cast<U>((U{1} << known) - 1);
  field &= low;
  // Bits beyond the field, and beyond the register, are copies of the sign.
  return static_cast<T>(sign ? field | static_cast<U>(~low) : field);
}

/// The low `length` bits of a into b at `position`.
template <typename T> T bfi(T a, T b, uint32_t position, uint32_t length) {
  constexpr uint32_t kWidth = 8 * sizeof(T);
  position &= 0xff;
  length &= 0xff;
  if (position >= kWidth || length == 0)
    return b;
  T ones = length >= kWidth ? ~T{0} : (T{1} << length) - 1;
  T field = ones << position;
  return (b & ~field) | (a << position & field);
}

uint32_t bmskClamp(uint32_t position, uint32_t length) {
  if (position >= 32)
    return 0;
  uint32_t ones = length >= 32 ? ~0u : (1u << length) - 1;
  return ones << position;
}
uint32_t bmskWrap(uint32_t position, uint32_t length) {
  return bmskClamp(position & 31, length & 31);
}

uint32_t pickByte(uint64_t bytes, uint32_t selector) {
  auto byte = static_cast<uint32_t>(bytes >> 8 * (selector & 7) & 0xff);
  if (selector & 8)
    return byte & 0x80 ? 0xff : 0;
  return byte;
}

/// The selectors of the special modes, by the low two bits of c.
constexpr uint16_t kPermuteModes[6][4] = {
    {0x3210, 0x4321, 0x5432, 0x6543}, // f4e
    {0x5670, 0x6701, 0x7012, 0x0123}, // b4e
    {0x0000, 0x1111, 0x2222, 0x3333}, // rc8
    {0x3210, 0x3211, 0x3222, 0x3333}, // ecl
    {0x0000, 0x1110, 0x2210, 0x3210}, // ecr
    {0x1010, 0x3232, 0x1010, 0x3232}, // rc16
};

void permute(Warp &warp, const Inst &inst, LaneMask mask) {
  const uint32_t *a = warp.narrow(inst.a), *b = warp.narrow(inst.b), *c = warp.narrow(inst.c);
  uint32_t *d = warp.narrow(inst.d);
  forEachLane(mask, [&](uint32_t lane) {
    uint64_t bytes = uint64_t{b[lane]} << 32 | a[lane];
    uint32_t selectors = inst.mode ? kPermuteModes[inst.mode - 1][c[lane] & 3] : c[lane];
    uint32_t result = 0;
    for (uint32_t i = 0; i < 4; ++i)
      result |= pickByte(bytes, selectors >> 4 * i & 0xf) << 8 * i;
    d[lane] = result;
  });
}

template <typename T> void insertField(Warp &warp, const Inst &inst, LaneMask mask) {
  const uint32_t *rows = warp.list(inst); // position, length
  const Cell<T> *a = row<T>(warp, inst.a), *b = row<T>(warp, inst.b);
  const uint32_t *position = warp.narrow(rows[0]), *length = warp.narrow(rows[1]);
  Cell<T> *d = row<T>(warp, inst.d);
  forEachLane(mask, [&](uint32_t lane) {
    d[lane] = bfi<T>(a[lane], b[lane], position[lane], length[lane]);
  });
}

Status decodeCount(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(2));
  Type type = d.takeType();
  bool population = d.opcode() == "popc";
  if (type == Type::B32)
    d.inst.run = population ? lanewise<&popc<uint32_t>> : lanewise<&clz<uint32_t>>;
  else if (type == Type::B64)
    d.inst.run = population ? lanewise<&popc<uint64_t>> : lanewise<&clz<uint64_t>>;
  else
    return d.unsupported();
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, Type::U32));
  return d.input(Field::A, 1, type);
}

Status decodeReverse(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(2));
  Type type = d.takeType();
  if (type != Type::B32 && type != Type::B64)
    return d.unsupported();
  d.inst.run = type == Type::B32 ? lanewise<&brev<uint32_t>> : lanewise<&brev<uint64_t>>;
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, type));
  return d.input(Field::A, 1, type);
}

Status decodeFind(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(2));
  bool shift = d.take("shiftamt");
  Type type = d.takeType();
  switch (type) {
  case Type::U32:
    d.inst.run = shift ? lanewise<&bfind<uint32_t, true>> : lanewise<&bfind<uint32_t, false>>;
    break;
  case Type::S32:
    d.inst.run = shift ? lanewise<&bfind<int32_t, true>> : lanewise<&bfind<int32_t, false>>;
    break;
  case Type::U64:
    d.inst.run = shift ? lanewise<&bfind<uint64_t, true>> : lanewise<&bfind<uint64_t, false>>;
    break;
  case Type::S64:
    d.inst.run = shift ? lanewise<&bfind<int64_t, true>> : lanewise<&bfind<int64_t, false>>;
    break;
  default:
    return d.unsupported();
  }
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, Type::U32));
  return d.input(Field::A, 1, type);
}

Status decodeExtract(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(4));
  Type type = d.takeType();
  switch (type) {
  case Type::U32:
    d.inst.run = lanewise<&bfe<uint32_t>>;
    break;
  case Type::S32:
    d.inst.run = lanewise<&bfe<int32_t>>;
    break;
  case Type::U64:
    d.inst.run = lanewise<&bfe<uint64_t>>;
    break;
  case Type::S64:
    d.inst.run = lanewise<&bfe<int64_t>>;
    break;
  default:
    return d.unsupported();
  }
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, type));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::A, 1, type));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::B, 2, Type::U32));
  return d.input(Field::C, 3, Type::U32);
}

Status decodeInsert(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(5));
  Type type = d.takeType();
  if (type != Type::B32 && type != Type::B64)
    return d.unsupported();
  d.inst.run = type == Type::B32 ? &insertField<uint32_t> : &insertField<uint64_t>;
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, type));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::A, 1, type));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::B, 2, type));
  LLMOPT_RETURN_IF_ERROR(d.listInput(d.operand(3), Type::U32));
  return d.listInput(d.operand(4), Type::U32);
}

Status decodeMask(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(3));
  int mode = d.takeOneOf({"clamp", "wrap"});
  if (mode < 0 || d.takeType() != Type::B32)
    return d.unsupported();
  d.inst.run = mode == 0 ? lanewise<&bmskClamp> : lanewise<&bmskWrap>;
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, Type::B32));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::A, 1, Type::U32));
  return d.input(Field::B, 2, Type::U32);
}

Status decodePermute(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(4));
  if (d.takeType() != Type::B32)
    return d.unsupported();
  d.inst.mode = static_cast<uint8_t>(1 + d.takeOneOf({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"}));
  d.inst.run = &permute;
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, Type::B32));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::A, 1, Type::B32));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::B, 2, Type::B32));
  return d.input(Field::C, 3, Type::B32);
}

} // namespace

void addBitFieldOps(OpTable &table) {
  table["popc"] = &decodeCount;
  table["clz"] = &decodeCount;
  table["brev"] = &decodeReverse;
  table["bfind"] = &decodeFind;
  table["bfe"] = &decodeExtract;
  table["bfi"] = &decodeInsert;
  table["bmsk"] = &decodeMask;
  table["prmt"] = &decodePermute;
}

} // namespace llmopt::sim

// Arithmetic of more than 64 bits: add, addc, sub, subc, mad, madc with the
// condition code, one bit a lane (PTX ISA 9.7.2).
#include "runtime/device/sim/exec/Lanes.h"
#include "runtime/device/sim/ops/Ops.h"

namespace llmopt::sim {

using ptx::Type;
using runtime::Status;

namespace {

enum class CarryOp : uint8_t { Add, Sub, MadLo, MadHi };

// Inst::mode.
constexpr uint8_t kReads = 1;  ///< addc, subc, madc
constexpr uint8_t kWrites = 2; ///< .cc

template <typename T> T highProduct(T a, T b) {
  using Wide =
      std::conditional_t<sizeof(T) == 8,
                         std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>,
                         std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;
  return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b) >> (8 * sizeof(T)));
}

template <typename T, CarryOp Op> void carryLanes(Warp &warp, const Inst &inst, LaneMask mask) {
  using U = std::make_unsigned_t<T>;
  const Cell<T> *a = row<T>(warp, inst.a), *b = row<T>(warp, inst.b);
  const Cell<T> *c = Op == CarryOp::Add || Op == CarryOp::Sub ? b : row<T>(warp, inst.c);
  Cell<T> *d = row<T>(warp, inst.d);
  LaneMask in = inst.mode & kReads ? warp.carry : 0, out = 0;
  forEachLane(mask, [&](uint32_t lane) {
    U x = a[lane], y = b[lane], carry = has(in, lane);
    if constexpr (Op == CarryOp::MadLo)
      x *= y;
    if constexpr (Op == CarryOp::MadHi)
      x = static_cast<U>(highProduct<T>(static_cast<T>(x), static_cast<T>(y)));
    if constexpr (Op != CarryOp::Sub) {
      if constexpr (Op != CarryOp::Add)
        y = c[lane];
      U sum = x + y;
      bool carries = sum < x;
      sum += carry;
      carries |= sum < carry;
      d[lane] = sum;
      out |= carries ? 1u << lane : 0;
    } else { // the code is the borrow
      U difference = x - y;
      bool borrows = x < y || difference < carry;
      d[lane] = difference - carry;
      out |= borrows ? 1u << lane : 0;
    }
  });
  if (inst.mode & kWrites)
    warp.carry = (warp.carry & ~mask) | out;
}

template <CarryOp Op> Handler handlerFor(Type type) {
  switch (type) {
  case Type::U32:
    return &carryLanes<uint32_t, Op>;
  case Type::S32:
    return &carryLanes<int32_t, Op>;
  case Type::U64:
    return &carryLanes<uint64_t, Op>;
  case Type::S64:
    return &carryLanes<int64_t, Op>;
  default:
    return nullptr;
  }
}

Status decode(InstDecoder &d, Type type, uint8_t mode) {
  bool multiplies = d.opcode().starts_with("mad");
  int part = multiplies ? d.takeOneOf({"lo", "hi"}) : 0;
  d.inst.run = part < 0                        ? nullptr
               : d.opcode().starts_with("add") ? handlerFor<CarryOp::Add>(type)
               : d.opcode().starts_with("sub") ? handlerFor<CarryOp::Sub>(type)
               : part == 0                     ? handlerFor<CarryOp::MadLo>(type)
                                               : handlerFor<CarryOp::MadHi>(type);
  if (!d.inst.run)
    return d.unsupported();
  d.inst.mode = mode;
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(multiplies ? 4 : 3));
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, type));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::A, 1, type));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::B, 2, type));
  return multiplies ? d.input(Field::C, 3, type) : Status();
}

Status decodeWithCarry(InstDecoder &d) {
  uint8_t mode = kReads;
  if (d.take("cc"))
    mode |= kWrites;
  return decode(d, d.takeType(), mode);
}

} // namespace

Status decodeCarry(InstDecoder &d, Type type) { return decode(d, type, kWrites); }

void addCarryOps(OpTable &table) {
  table["addc"] = &decodeWithCarry;
  table["subc"] = &decodeWithCarry;
  table["madc"] = &decodeWithCarry;
}

} // namespace llmopt::sim

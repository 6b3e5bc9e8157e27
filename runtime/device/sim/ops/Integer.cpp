// Integer addition, division, minimum and their like (PTX ISA 9.7.1), and the
// opcodes that integers share with floats.
#include "runtime/device/sim/exec/Lanes.h"
#include "runtime/device/sim/ops/Ops.h"

#include <algorithm>
#include <limits>

namespace llmopt::sim {

using ptx::Type;
using runtime::Status;

namespace {

template <typename T> using Unsigned = std::make_unsigned_t<T>;

// Wrapping: computed on unsigned numbers of at least 32 bits.
template <typename T> T addInt(T a, T b) {
  return static_cast<T>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b));
}
template <typename T> T subInt(T a, T b) {
  return static_cast<T>(static_cast<Unsigned<T>>(a) - static_cast<Unsigned<T>>(b));
}
template <typename T> T minInt(T a, T b) { return std::min(a, b); }
template <typename T> T maxInt(T a, T b) { return std::max(a, b); }
template <typename T> T negInt(T a) { return subInt<T>(0, a); }
template <typename T> T absInt(T a) { return a < 0 ? negInt(a) : a; }

/// Division by zero gives all ones, as on the hardware; the least number
/// divided by -1 wraps.
template <typename T> T divInt(T a, T b) {
  if (b == 0)
    return static_cast<T>(~Unsigned<T>{0});
  if constexpr (std::is_signed_v<T>)
    if (b == -1)
      return negInt(a);
  return static_cast<T>(a / b);
}
template <typename T> T remInt(T a, T b) {
  if (b == 0)
    return a;
  if constexpr (std::is_signed_v<T>)
    if (b == -1)
      return 0;
  return static_cast<T>(a % b);
}
int32_t addSat(int32_t a, int32_t b) {
  int64_t sum = int64_t{a} + b;
  return static_cast<int32_t>(std::clamp<int64_t>(sum, std::numeric_limits<int32_t>::min(),
                                                  std::numeric_limits<int32_t>::max()));
}
int32_t subSat(int32_t a, int32_t b) {
  int64_t difference = int64_t{a} - b;
  return static_cast<int32_t>(std::clamp<int64_t>(difference, std::numeric_limits<int32_t>::min(),
                                                  std::numeric_limits<int32_t>::max()));
}

/// Two 16-bit halves.
template <typename T, T (*F)(T, T)> uint32_t halves(uint32_t a, uint32_t b) {
  auto low = static_cast<uint16_t>(F(static_cast<T>(a), static_cast<T>(b)));
  auto high = static_cast<uint16_t>(F(static_cast<T>(a >> 16), static_cast<T>(b >> 16)));
  return low | uint32_t{high} << 16;
}

Status unaryOp(InstDecoder &d, Type type, Handler handler) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(2));
  if (!handler)
    return d.unsupported();
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, type));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::A, 1, type));
  d.inst.cls = InstClass::Integer;
  d.inst.run = handler;
  return {};
}

Status binaryOp(InstDecoder &d, Type type, Handler handler) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(3));
  if (!handler)
    return d.unsupported();
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, type));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::A, 1, type));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::B, 2, type));
  d.inst.cls = InstClass::Integer;
  d.inst.run = handler;
  return {};
}

struct IntHandlers {
  Handler u16, s16, u32, s32, u64, s64;

  Handler of(Type type) const {
    switch (type) {
    case Type::U16:
      return u16;
    case Type::S16:
      return s16;
    case Type::U32:
      return u32;
    case Type::S32:
      return s32;
    case Type::U64:
      return u64;
    case Type::S64:
      return s64;
    default:
      return nullptr;
    }
  }
};

// A handler for each integer type of a template function.
#define LLMOPT_SIM_INT(f)                                                                          \
  IntHandlers {                                                                                    \
    lanewise<&f<uint16_t>>, lanewise<&f<int16_t>>, lanewise<&f<uint32_t>>, lanewise<&f<int32_t>>,  \
        lanewise<&f<uint64_t>>, lanewise<&f<int64_t>>                                              \
  }
#define LLMOPT_SIM_SIGNED(f)                                                                       \
  IntHandlers {                                                                                    \
    nullptr, lanewise<&f<int16_t>>, nullptr, lanewise<&f<int32_t>>, nullptr, lanewise<&f<int64_t>> \
  }

bool takePair(InstDecoder &d, bool &isSigned) {
  int index = d.takeOneOf({"u16x2", "s16x2"});
  isSigned = index == 1;
  return index >= 0;
}

Status decodeAdd(InstDecoder &d) {
  bool isSigned = false;
  if (takePair(d, isSigned))
    return binaryOp(d, Type::B32, lanewise<&halves<uint16_t, &addInt<uint16_t>>>);
  Type type = d.takeType();
  if (ptx::isFloat(type))
    return decodeFloatArithmetic(d, type);
  if (d.take("cc"))
    return decodeCarry(d, type);
  if (type == Type::S32 && d.take("sat"))
    return binaryOp(d, type, lanewise<&addSat>);
  return binaryOp(d, type, LLMOPT_SIM_INT(addInt).of(type));
}

Status decodeSub(InstDecoder &d) {
  Type type = d.takeType();
  if (ptx::isFloat(type))
    return decodeFloatArithmetic(d, type);
  if (d.take("cc"))
    return decodeCarry(d, type);
  if (type == Type::S32 && d.take("sat"))
    return binaryOp(d, type, lanewise<&subSat>);
  return binaryOp(d, type, LLMOPT_SIM_INT(subInt).of(type));
}

Status decodeDiv(InstDecoder &d) {
  Type type = d.takeType();
  if (ptx::isFloat(type))
    return decodeFloatArithmetic(d, type);
  return binaryOp(d, type, LLMOPT_SIM_INT(divInt).of(type));
}

Status decodeRem(InstDecoder &d) {
  Type type = d.takeType();
  return binaryOp(d, type, LLMOPT_SIM_INT(remInt).of(type));
}

Status decodeMin(InstDecoder &d) {
  bool isSigned = false;
  if (takePair(d, isSigned))
    return binaryOp(d, Type::B32,
                    isSigned ? lanewise<&halves<int16_t, &minInt<int16_t>>>
                             : lanewise<&halves<uint16_t, &minInt<uint16_t>>>);
  Type type = d.takeType();
  if (ptx::isFloat(type))
    return decodeFloatArithmetic(d, type);
  return binaryOp(d, type, LLMOPT_SIM_INT(minInt).of(type));
}

Status decodeMax(InstDecoder &d) {
  bool isSigned = false;
  if (takePair(d, isSigned))
    return binaryOp(d, Type::B32,
                    isSigned ? lanewise<&halves<int16_t, &maxInt<int16_t>>>
                             : lanewise<&halves<uint16_t, &maxInt<uint16_t>>>);
  Type type = d.takeType();
  if (ptx::isFloat(type))
    return decodeFloatArithmetic(d, type);
  return binaryOp(d, type, LLMOPT_SIM_INT(maxInt).of(type));
}

Status decodeNeg(InstDecoder &d) {
  Type type = d.takeType();
  if (ptx::isFloat(type))
    return decodeFloatArithmetic(d, type);
  return unaryOp(d, type, LLMOPT_SIM_SIGNED(negInt).of(type));
}

Status decodeAbs(InstDecoder &d) {
  Type type = d.takeType();
  if (ptx::isFloat(type))
    return decodeFloatArithmetic(d, type);
  return unaryOp(d, type, LLMOPT_SIM_SIGNED(absInt).of(type));
}

} // namespace

void addIntegerOps(OpTable &table) {
  table["add"] = &decodeAdd;
  table["sub"] = &decodeSub;
  table["div"] = &decodeDiv;
  table["rem"] = &decodeRem;
  table["min"] = &decodeMin;
  table["max"] = &decodeMax;
  table["neg"] = &decodeNeg;
  table["abs"] = &decodeAbs;
}

} // namespace llmopt::sim

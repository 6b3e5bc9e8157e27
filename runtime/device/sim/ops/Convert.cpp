// cvt (PTX ISA 9.7.9, conversions). Conversions that kernels are full of have a
// handler that works on whole rows; every other one goes through the exact value
// of the source, one rounding, and the bits of the result.
#include "runtime/device/sim/exec/Lanes.h"
#include "runtime/device/sim/numeric/Float32.h"
#include "runtime/device/sim/numeric/Half.h"
#include "runtime/device/sim/ops/FloatModes.h"
#include "runtime/device/sim/ops/Ops.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace llmopt::sim {

using ptx::Type;
using runtime::Status;

namespace {

/// All that a conversion needs to know; packed into inst.imm.
struct Conversion {
  Type to = Type::None;   ///< of one element
  Type from = Type::None; ///< of one element
  Rounding rounding = Rounding::NearestEven;
  bool integral = false; ///< round to an integer (.rni, .rzi, ...)
  bool ftz = false;
  bool sat = false;
  bool satFinite = false;
  bool relu = false;

  int64_t pack() const {
    return static_cast<int64_t>(to) | static_cast<int64_t>(from) << 8 |
           static_cast<int64_t>(rounding) << 16 | int64_t{integral} << 24 | int64_t{ftz} << 25 |
           int64_t{sat} << 26 | int64_t{satFinite} << 27 | int64_t{relu} << 28;
  }
  static Conversion unpack(int64_t bits) {
    Conversion c;
    c.to = static_cast<Type>(bits & 0xff);
    c.from = static_cast<Type>(bits >> 8 & 0xff);
    c.rounding = static_cast<Rounding>(bits >> 16 & 0xff);
    c.integral = bits >> 24 & 1;
    c.ftz = bits >> 25 & 1;
    c.sat = bits >> 26 & 1;
    c.satFinite = bits >> 27 & 1;
    c.relu = bits >> 28 & 1;
    return c;
  }
};

const FloatFormat *formatOf(Type type) {
  switch (type) {
  case Type::F64:
    return &kF64;
  case Type::F32:
    return &kF32;
  case Type::F16:
    return &kF16;
  case Type::BF16:
    return &kBF16;
  case Type::TF32:
    return &kTF32;
  case Type::E4M3:
    return &kE4M3;
  case Type::E5M2:
    return &kE5M2;
  default:
    return nullptr;
  }
}

uint64_t lowBits(uint32_t bits) { return bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1; }

Exact readInteger(uint64_t bits, Type type) {
  uint32_t width = 8 * ptx::sizeOf(type);
  bits &= lowBits(width);
  if (!ptx::isSigned(type))
    return exactly(bits);
  return exactly(static_cast<int64_t>(bits << (64 - width)) >> (64 - width));
}

/// To the integer that the rounding chooses.
Exact roundToIntegral(Exact value, Rounding rounding) {
  if (value.nan || value.infinite || value.exponent >= 0 || value.significand == 0)
    return value;
  auto shift = static_cast<uint32_t>(-value.exponent);
  uint64_t whole = shift >= 64 ? 0 : value.significand >> shift;
  uint64_t cut = shift >= 64 ? value.significand : value.significand & lowBits(shift);
  // With 64 and more bits cut off, the fraction of a 53-bit number is below half.
  uint64_t half = shift >= 64 ? ~uint64_t{0} : uint64_t{1} << (shift - 1);
  bool up = false;
  switch (rounding) {
  case Rounding::NearestEven:
    up = cut > half || (cut == half && (whole & 1));
    break;
  case Rounding::NearestAway:
    up = cut >= half;
    break;
  case Rounding::Zero:
    break;
  case Rounding::Down:
    up = value.negative && cut != 0;
    break;
  case Rounding::Up:
    up = !value.negative && cut != 0;
    break;
  }
  value.significand = whole + up;
  value.exponent = 0;
  return value;
}

/// The integer's bits, clamped to the type's range.
uint64_t writeInteger(const Exact &value, Type type, bool fromF64) {
  uint32_t width = 8 * ptx::sizeOf(type);
  bool isSigned = ptx::isSigned(type);
  if (value.nan) // PTX ISA: 0, but 2^(width-1) if 64 bits are involved
    return fromF64 || width == 64 ? uint64_t{1} << (width - 1) : 0;
  uint64_t largest = isSigned ? lowBits(width - 1) : lowBits(width);
  uint64_t least = isSigned ? uint64_t{1} << (width - 1) : 0; // its magnitude
  bool tooLarge = value.infinite;
  uint64_t magnitude = value.significand;
  if (!tooLarge && magnitude != 0 && value.exponent > 0) {
    tooLarge = value.exponent >= std::countl_zero(magnitude) + 1;
    if (!tooLarge)
      magnitude <<= value.exponent;
  }
  if (value.negative)
    return (tooLarge || magnitude > least ? ~least + 1 : ~magnitude + 1) & lowBits(width);
  return tooLarge || magnitude > largest ? largest : magnitude;
}

uint64_t flushBits(uint64_t bits, const FloatFormat &format) {
  return bits & format.infinity() ? bits : bits & format.sign();
}

uint64_t convert(uint64_t bits, const Conversion &c) {
  const FloatFormat *from = formatOf(c.from), *to = formatOf(c.to);
  Exact value;
  if (!from)
    value = readInteger(bits, c.from);
  else
    value = decode(c.ftz && c.from == Type::F32 ? flushBits(bits, kF32) : bits, *from);
  if (!to) {
    Exact whole = from ? roundToIntegral(value, c.rounding) : value;
    return writeInteger(whole, c.to, c.from == Type::F64);
  }
  if (c.integral)
    value = roundToIntegral(value, c.rounding);
  if (c.relu && value.negative && !value.nan)
    value = Exact{};
  uint64_t result = 0;
  if (c.to == Type::TF32) // the ten mantissa bits at their place in an f32
    result = value.nan ? kNanF32 : encode(value, kTF32, c.rounding, c.satFinite) << 13;
  else
    result = encode(value, *to, c.rounding, c.satFinite);
  if (c.ftz && c.to == Type::F32)
    result = flushBits(result, kF32);
  if (c.sat) { // [0, 1]; NaN becomes +0
    uint64_t one = static_cast<uint64_t>(to->bias()) << to->mantissaBits;
    if (value.nan || result & to->sign())
      result = 0;
    else if (result > one)
      result = one;
  }
  return result;
}

/// Into the register, extended to its width by the type's sign.
uint64_t extend(uint64_t bits, Type type) {
  if (formatOf(type))
    return bits;
  uint32_t width = 8 * ptx::sizeOf(type);
  if (!ptx::isSigned(type))
    return bits & lowBits(width);
  return static_cast<uint64_t>(static_cast<int64_t>(bits << (64 - width)) >> (64 - width));
}

template <bool WideFrom, bool WideTo> void convertRow(Warp &warp, const Inst &inst, LaneMask mask) {
  Conversion c = Conversion::unpack(inst.imm);
  forEachLane(mask, [&](uint32_t lane) {
    uint64_t bits = WideFrom ? warp.wide(inst.a)[lane] : warp.narrow(inst.a)[lane];
    uint64_t result = extend(convert(bits, c), c.to);
    if constexpr (WideTo)
      warp.wide(inst.d)[lane] = result;
    else
      warp.narrow(inst.d)[lane] = static_cast<uint32_t>(result);
  });
}

/// Two results in one register: the upper from a, the lower from b; or, with
/// one operand, element by element.
template <bool TwoInputs> void convertPair(Warp &warp, const Inst &inst, LaneMask mask) {
  Conversion c = Conversion::unpack(inst.imm);
  const uint32_t *a = warp.narrow(inst.a), *b = TwoInputs ? warp.narrow(inst.b) : a;
  uint32_t *d = warp.narrow(inst.d);
  uint32_t toBits = 8 * ptx::sizeOf(c.to), fromBits = 8 * ptx::sizeOf(c.from);
  auto fromMask = static_cast<uint32_t>(lowBits(fromBits));
  forEachLane(mask, [&](uint32_t lane) {
    uint32_t high = TwoInputs ? a[lane] : a[lane] >> fromBits;
    uint32_t low = b[lane];
    d[lane] =
        static_cast<uint32_t>(convert(high & fromMask, c) << toBits | convert(low & fromMask, c));
  });
}

// Whole rows.
uint32_t roundBf16(uint32_t bits) {
  uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return (bits & 0x7fffffff) > 0x7f800000 ? 0x7fff : rounded;
}
uint32_t pairBf16(uint32_t a, uint32_t b) { return roundBf16(a) << 16 | roundBf16(b); }
uint32_t pairF16(float a, float b) { return uint32_t{F16(a).bits} << 16 | F16(b).bits; }
BF16 toBf16(float a) { return BF16(a); }
F16 toF16(float a) { return F16(a); }
float fromF16(F16 a) { return canonical(a.value()); }
float fromBf16(BF16 a) { return canonical(a.value()); }
float fromS32(int32_t a) { return static_cast<float>(a); }
float fromU32(uint32_t a) { return static_cast<float>(a); }
float toF32(double a) { return canonical(static_cast<float>(a)); }
double toF64(float a) { return a != a ? std::bit_cast<double>(kF64.nan) : double{a}; }

/// Truncated or extended to the register's width.
template <typename D, typename S> void convertInt(Warp &warp, const Inst &inst, LaneMask mask) {
  using Wider = std::conditional_t<std::is_signed_v<D>, int32_t, uint32_t>;
  const Cell<S> *a = row<S>(warp, inst.a);
  alignas(64) Cell<D> result[kLanes];
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    auto value = static_cast<D>(fromCell<S>(a[lane]));
    if constexpr (sizeof(D) < 4)
      result[lane] = static_cast<uint32_t>(static_cast<Wider>(value));
    else
      result[lane] = toCell<D>(value);
  }
  storeRow(row<D>(warp, inst.d), result, mask);
}

template <typename D> Handler intHandler(Type from) {
  switch (from) {
  case Type::U8:
    return &convertInt<D, uint8_t>;
  case Type::S8:
    return &convertInt<D, int8_t>;
  case Type::U16:
    return &convertInt<D, uint16_t>;
  case Type::S16:
    return &convertInt<D, int16_t>;
  case Type::U32:
    return &convertInt<D, uint32_t>;
  case Type::S32:
    return &convertInt<D, int32_t>;
  case Type::U64:
    return &convertInt<D, uint64_t>;
  case Type::S64:
    return &convertInt<D, int64_t>;
  default:
    return nullptr;
  }
}

Handler intHandler(Type to, Type from) {
  switch (to) {
  case Type::U8:
    return intHandler<uint8_t>(from);
  case Type::S8:
    return intHandler<int8_t>(from);
  case Type::U16:
    return intHandler<uint16_t>(from);
  case Type::S16:
    return intHandler<int16_t>(from);
  case Type::U32:
    return intHandler<uint32_t>(from);
  case Type::S32:
    return intHandler<int32_t>(from);
  case Type::U64:
    return intHandler<uint64_t>(from);
  case Type::S64:
    return intHandler<int64_t>(from);
  default:
    return nullptr;
  }
}

/// Null if the conversion has no handler for whole rows.
Handler rowHandler(const Conversion &c) {
  if (!formatOf(c.to) && !formatOf(c.from))
    return c.sat ? nullptr : intHandler(c.to, c.from);
  if (c.rounding != Rounding::NearestEven || c.integral || c.ftz || c.sat || c.satFinite || c.relu)
    return nullptr;
  struct Row {
    Type to, from;
    Handler handler;
  };
  constexpr Row kRows[] = {
      {Type::BF16, Type::F32, lanewise<&toBf16>}, {Type::F16, Type::F32, lanewise<&toF16>},
      {Type::F32, Type::F16, lanewise<&fromF16>}, {Type::F32, Type::BF16, lanewise<&fromBf16>},
      {Type::F32, Type::S32, lanewise<&fromS32>}, {Type::F32, Type::U32, lanewise<&fromU32>},
      {Type::F32, Type::F64, lanewise<&toF32>},   {Type::F64, Type::F32, lanewise<&toF64>},
  };
  for (const Row &row : kRows)
    if (row.to == c.to && row.from == c.from)
      return row.handler;
  return nullptr;
}

struct PairType {
  Type pair, element;
};
constexpr PairType kPairs[] = {{Type::F16x2, Type::F16},
                               {Type::BF16x2, Type::BF16},
                               {Type::E4M3x2, Type::E4M3},
                               {Type::E5M2x2, Type::E5M2}};

Type elementOf(Type type) {
  for (const PairType &row : kPairs)
    if (row.pair == type)
      return row.element;
  return Type::None;
}

/// Takes the rounding; `given` tells whether there was one.
Conversion takeOptions(InstDecoder &d, bool &given) {
  Conversion c;
  int whole = d.takeOneOf({"rni", "rzi", "rmi", "rpi"});
  int rounding = whole >= 0 ? whole : takeRounding(d);
  if (rounding < 0 && d.take("rna"))
    rounding = static_cast<int>(Rounding::NearestAway);
  given = rounding >= 0;
  c.integral = whole >= 0;
  if (given)
    c.rounding = static_cast<Rounding>(rounding);
  c.ftz = d.take("ftz");
  c.sat = d.take("sat");
  c.satFinite = d.take("satfinite");
  c.relu = d.take("relu");
  return c;
}

Status decodePairs(InstDecoder &d, Conversion c, Type to, Type from) {
  bool two = from == Type::F32;
  c.to = elementOf(to);
  c.from = two ? from : elementOf(from);
  if (c.to == Type::None || c.from == Type::None || c.sat)
    return d.unsupported();
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(two ? 3 : 2));
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, to));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::A, 1, from));
  if (two)
    LLMOPT_RETURN_IF_ERROR(d.input(Field::B, 2, from));
  d.inst.imm = c.pack();
  bool plain = c.rounding == Rounding::NearestEven && !c.relu && !c.satFinite && !c.ftz;
  if (two && plain && to == Type::BF16x2)
    d.inst.run = lanewise<&pairBf16>;
  else if (two && plain && to == Type::F16x2)
    d.inst.run = lanewise<&pairF16>;
  else
    d.inst.run = two ? &convertPair<true> : &convertPair<false>;
  return {};
}

Status decodeConvert(InstDecoder &d) {
  d.inst.cls = InstClass::Convert;
  if (d.take("pack"))
    return d.unsupported();
  bool given = false;
  Conversion c = takeOptions(d, given);
  Type to = d.takeType(), from = d.takeType();
  if (elementOf(to) != Type::None || elementOf(from) != Type::None)
    return decodePairs(d, c, to, from);
  auto allowed = [](Type type) {
    return formatOf(type) || type == Type::U8 || type == Type::S8 || type == Type::U16 ||
           type == Type::S16 || type == Type::U32 || type == Type::S32 || type == Type::U64 ||
           type == Type::S64;
  };
  if (!allowed(to) || !allowed(from))
    return d.unsupported();
  const FloatFormat *toFormat = formatOf(to), *fromFormat = formatOf(from);
  bool needsRounding = (fromFormat && !toFormat) || (!fromFormat && toFormat) ||
                       (fromFormat && toFormat && to != from &&
                        (toFormat->mantissaBits < fromFormat->mantissaBits ||
                         toFormat->exponentBits < fromFormat->exponentBits));
  if (needsRounding && !given)
    return d.invalid("this conversion needs a rounding mode");
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(2));
  c.to = to;
  c.from = from;
  d.allowAnyWidth();
  RegClass toClass = d.widthOf(d.operand(0), to), fromClass = d.widthOf(d.operand(1), from);
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, to));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::A, 1, from));
  if (toClass == RegClass::Predicate || fromClass == RegClass::Predicate)
    return d.unsupported();
  if ((toClass == RegClass::Narrow && ptx::sizeOf(to) == 8) ||
      (fromClass == RegClass::Narrow && ptx::sizeOf(from) == 8))
    return d.invalid("a register of 32 bits for a value of 64");
  d.inst.imm = c.pack();
  if (toClass == classOf(to) && fromClass == classOf(from))
    d.inst.run = rowHandler(c);
  if (d.inst.run)
    return {};
  bool wideTo = toClass == RegClass::Wide, wideFrom = fromClass == RegClass::Wide;
  d.inst.run = wideFrom ? (wideTo ? &convertRow<true, true> : &convertRow<true, false>)
                        : (wideTo ? &convertRow<false, true> : &convertRow<false, false>);
  return {};
}

} // namespace

void addConvertOps(OpTable &table) { table["cvt"] = &decodeConvert; }

} // namespace llmopt::sim

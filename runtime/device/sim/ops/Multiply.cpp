// Integer products: mul, mad (.lo .hi .wide), mul24, mad24, sad, dp4a, dp2a
// (PTX ISA 9.7.1).
#include "runtime/device/sim/exec/Lanes.h"
#include "runtime/device/sim/ops/Ops.h"

namespace llmopt::sim {

using ptx::Type;
using runtime::Status;

namespace {

template <typename T> struct WideOf;
template <> struct WideOf<uint16_t> {
  using type = uint32_t;
};
template <> struct WideOf<int16_t> {
  using type = int32_t;
};
template <> struct WideOf<uint32_t> {
  using type = uint64_t;
};
template <> struct WideOf<int32_t> {
  using type = int64_t;
};
template <> struct WideOf<uint64_t> {
  using type = unsigned __int128;
};
template <> struct WideOf<int64_t> {
  using type = __int128;
};
template <typename T> using Wide = typename WideOf<T>::type;

template <typename T> Wide<T> mulWide(T a, T b) {
  return static_cast<Wide<T>>(static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b));
}
template <typename T> T mulLo(T a, T b) { return static_cast<T>(mulWide(a, b)); }
template <typename T> T mulHi(T a, T b) { return static_cast<T>(mulWide(a, b) >> (8 * sizeof(T))); }
template <typename T> T wrapAdd(T a, T b) {
  using U = std::make_unsigned_t<T>;
  return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
}
template <typename T> T madLo(T a, T b, T c) { return wrapAdd(mulLo(a, b), c); }
template <typename T> T madHi(T a, T b, T c) { return wrapAdd(mulHi(a, b), c); }
template <typename T> Wide<T> madWide(T a, T b, Wide<T> c) { return wrapAdd(mulWide(a, b), c); }

uint32_t mul24u(uint32_t a, uint32_t b) { return (a & 0xffffff) * (b & 0xffffff); }
int32_t low24(int32_t a) { return static_cast<int32_t>(static_cast<uint32_t>(a) << 8) >> 8; }
int32_t mul24s(int32_t a, int32_t b) { return static_cast<int32_t>(int64_t{low24(a)} * low24(b)); }
uint32_t mad24u(uint32_t a, uint32_t b, uint32_t c) { return mul24u(a, b) + c; }
int32_t mad24s(int32_t a, int32_t b, int32_t c) { return wrapAdd(mul24s(a, b), c); }

template <typename T> T sad(T a, T b, T c) {
  using U = std::make_unsigned_t<T>;
  U difference = a < b ? static_cast<U>(static_cast<U>(b) - static_cast<U>(a))
                       : static_cast<U>(static_cast<U>(a) - static_cast<U>(b));
  return wrapAdd(c, static_cast<T>(difference));
}

template <typename A, typename B> uint32_t dp4a(uint32_t a, uint32_t b, uint32_t c) {
  for (int i = 0; i < 4; ++i)
    c += static_cast<uint32_t>(static_cast<int32_t>(static_cast<A>(a >> 8 * i)) *
                               static_cast<int32_t>(static_cast<B>(b >> 8 * i)));
  return c;
}
template <typename A, typename B, int High> uint32_t dp2a(uint32_t a, uint32_t b, uint32_t c) {
  for (int i = 0; i < 2; ++i)
    c += static_cast<uint32_t>(
        static_cast<int32_t>(
            static_cast<std::conditional_t<std::is_signed_v<A>, int16_t, uint16_t>>(a >> 16 * i)) *
        static_cast<int32_t>(static_cast<B>(b >> (8 * i + 16 * High))));
  return c;
}

struct ByType {
  Type type;
  Handler handler;
};

template <size_t N> Handler find(const ByType (&table)[N], Type type) {
  for (const ByType &row : table)
    if (row.type == type)
      return row.handler;
  return nullptr;
}

#define LLMOPT_SIM_ROWS(f)                                                                         \
  {                                                                                                \
    {Type::U16, lanewise<&f<uint16_t>>}, {Type::S16, lanewise<&f<int16_t>>},                       \
        {Type::U32, lanewise<&f<uint32_t>>}, {Type::S32, lanewise<&f<int32_t>>},                   \
        {Type::U64, lanewise<&f<uint64_t>>}, {                                                     \
      Type::S64, lanewise<&f<int64_t>>                                                             \
    }                                                                                              \
  }
#define LLMOPT_SIM_WIDE_ROWS(f)                                                                    \
  {                                                                                                \
    {Type::U16, lanewise<&f<uint16_t>>}, {Type::S16, lanewise<&f<int16_t>>},                       \
        {Type::U32, lanewise<&f<uint32_t>>}, {                                                     \
      Type::S32, lanewise<&f<int32_t>>                                                             \
    }                                                                                              \
  }

constexpr ByType kMulLo[] = LLMOPT_SIM_ROWS(mulLo);
constexpr ByType kMulHi[] = LLMOPT_SIM_ROWS(mulHi);
constexpr ByType kMulWide[] = LLMOPT_SIM_WIDE_ROWS(mulWide);
constexpr ByType kMadLo[] = LLMOPT_SIM_ROWS(madLo);
constexpr ByType kMadHi[] = LLMOPT_SIM_ROWS(madHi);
constexpr ByType kMadWide[] = LLMOPT_SIM_WIDE_ROWS(madWide);
constexpr ByType kSad[] = LLMOPT_SIM_ROWS(sad);

Type widened(Type type) {
  switch (type) {
  case Type::U16:
    return Type::U32;
  case Type::S16:
    return Type::S32;
  case Type::U32:
    return Type::U64;
  default:
    return Type::S64;
  }
}

/// d = a * b [+ c], where d and c have another width than a and b if `wide`.
Status decodeProduct(InstDecoder &d, Type type, Handler handler, bool wide, bool plus) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(plus ? 4 : 3));
  if (!handler)
    return d.unsupported();
  Type outer = wide ? widened(type) : type;
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, outer));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::A, 1, type));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::B, 2, type));
  if (plus)
    LLMOPT_RETURN_IF_ERROR(d.input(Field::C, 3, outer));
  d.inst.cls = InstClass::Integer;
  d.inst.run = handler;
  return {};
}

Status decodeMul(InstDecoder &d) {
  Type type = d.takeType();
  if (ptx::isFloat(type))
    return decodeFloatArithmetic(d, type);
  switch (d.takeOneOf({"lo", "hi", "wide"})) {
  case 0:
    return decodeProduct(d, type, find(kMulLo, type), false, false);
  case 1:
    return decodeProduct(d, type, find(kMulHi, type), false, false);
  case 2:
    return decodeProduct(d, type, find(kMulWide, type), true, false);
  default:
    return d.unsupported();
  }
}

Status decodeMad(InstDecoder &d) {
  Type type = d.takeType();
  if (ptx::isFloat(type))
    return decodeFloatArithmetic(d, type);
  if (d.take("cc"))
    return decodeCarry(d, type);
  switch (d.takeOneOf({"lo", "hi", "wide"})) {
  case 0:
    return decodeProduct(d, type, find(kMadLo, type), false, true);
  case 1:
    return decodeProduct(d, type, find(kMadHi, type), false, true);
  case 2:
    return decodeProduct(d, type, find(kMadWide, type), true, true);
  default:
    return d.unsupported();
  }
}

Status decode24(InstDecoder &d) {
  Type type = d.takeType();
  bool plus = d.opcode() == "mad24";
  if (!d.take("lo"))
    return d.unsupported();
  Handler handler = nullptr;
  if (type == Type::U32)
    handler = plus ? lanewise<&mad24u> : lanewise<&mul24u>;
  else if (type == Type::S32)
    handler = plus ? lanewise<&mad24s> : lanewise<&mul24s>;
  return decodeProduct(d, type, handler, false, plus);
}

Status decodeSad(InstDecoder &d) {
  Type type = d.takeType();
  return decodeProduct(d, type, find(kSad, type), false, true);
}

Status decodeDot(InstDecoder &d) {
  bool four = d.opcode() == "dp4a";
  int half = four ? 0 : d.takeOneOf({"lo", "hi"});
  Type a = d.takeType(), b = d.takeType();
  bool valid = (a == Type::U32 || a == Type::S32) && (b == Type::U32 || b == Type::S32);
  if (!valid || half < 0)
    return d.unsupported();
  using Row = Handler[2][2];
  constexpr Row kFour = {{lanewise<&dp4a<uint8_t, uint8_t>>, lanewise<&dp4a<uint8_t, int8_t>>},
                         {lanewise<&dp4a<int8_t, uint8_t>>, lanewise<&dp4a<int8_t, int8_t>>}};
  constexpr Row kLow = {{lanewise<&dp2a<uint8_t, uint8_t, 0>>, lanewise<&dp2a<uint8_t, int8_t, 0>>},
                        {lanewise<&dp2a<int8_t, uint8_t, 0>>, lanewise<&dp2a<int8_t, int8_t, 0>>}};
  constexpr Row kHigh = {
      {lanewise<&dp2a<uint8_t, uint8_t, 1>>, lanewise<&dp2a<uint8_t, int8_t, 1>>},
      {lanewise<&dp2a<int8_t, uint8_t, 1>>, lanewise<&dp2a<int8_t, int8_t, 1>>}};
  const Row &rows = four ? kFour : half == 0 ? kLow : kHigh;
  return decodeProduct(d, Type::B32, rows[a == Type::S32][b == Type::S32], false, true);
}

} // namespace

void addMultiplyOps(OpTable &table) {
  table["mul"] = &decodeMul;
  table["mad"] = &decodeMad;
  table["mul24"] = &decode24;
  table["mad24"] = &decode24;
  table["sad"] = &decodeSad;
  table["dp4a"] = &decodeDot;
  table["dp2a"] = &decodeDot;
}

} // namespace llmopt::sim

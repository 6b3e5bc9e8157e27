// setp, set, selp, slct (PTX ISA 9.7.5 to 9.7.7). A comparison is a table of
// four bits: whether it holds for less, equal, greater, unordered.
#include "runtime/device/sim/exec/Lanes.h"
#include "runtime/device/sim/numeric/Float32.h"
#include "runtime/device/sim/numeric/Half.h"
#include "runtime/device/sim/ops/Ops.h"

namespace llmopt::sim {

using ptx::Type;
using runtime::Status;

namespace {

constexpr uint8_t kLess = 1, kEqual = 2, kGreater = 4, kUnordered = 8;

struct CompareName {
  std::string_view name;
  uint8_t table;
  bool floatOnly;
};

constexpr CompareName kCompares[] = {
    {"eq", kEqual, false},
    {"ne", kLess | kGreater, false},
    {"lt", kLess, false},
    {"le", kLess | kEqual, false},
    {"gt", kGreater, false},
    {"ge", kGreater | kEqual, false},
    {"lo", kLess, false}, // unsigned names
    {"ls", kLess | kEqual, false},
    {"hi", kGreater, false},
    {"hs", kGreater | kEqual, false},
    {"equ", kEqual | kUnordered, true},
    {"neu", kLess | kGreater | kUnordered, true},
    {"ltu", kLess | kUnordered, true},
    {"leu", kLess | kEqual | kUnordered, true},
    {"gtu", kGreater | kUnordered, true},
    {"geu", kGreater | kEqual | kUnordered, true},
    {"num", kLess | kEqual | kGreater, true},
    {"nan", kUnordered, true},
};

// Inst::mode of setp and set: the table in the low bits, then how the result is
// combined with predicate c.
constexpr uint8_t kBoolShift = 4; // 0 none, 1 and, 2 or, 3 xor
constexpr uint8_t kNotC = 0x40;
constexpr uint8_t kFlush = 0x80;

template <typename T, typename Read>
LaneMask compareRows(const Cell<T> *a, const Cell<T> *b, uint8_t table, Read &&read) {
  LaneMask less = 0, equal = 0, greater = 0;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    auto x = read(a[lane]);
    auto y = read(b[lane]);
    less |= static_cast<LaneMask>(x < y) << lane;
    equal |= static_cast<LaneMask>(x == y) << lane;
    greater |= static_cast<LaneMask>(x > y) << lane;
  }
  auto where = [&](uint8_t bit, LaneMask lanes) { return table & bit ? lanes : 0; };
  return where(kLess, less) | where(kEqual, equal) | where(kGreater, greater) |
         where(kUnordered, ~(less | equal | greater));
}

template <typename T> struct Compare {
  static LaneMask apply(const Warp &warp, const Inst &inst) {
    return compareRows<T>(row<T>(warp, inst.a), row<T>(warp, inst.b), inst.mode & 0xf,
                          [](Cell<T> cell) { return fromCell<T>(cell); });
  }
};
template <> struct Compare<float> {
  static LaneMask apply(const Warp &warp, const Inst &inst) {
    const uint32_t *a = warp.narrow(inst.a), *b = warp.narrow(inst.b);
    if (inst.mode & kFlush)
      return compareRows<float>(a, b, inst.mode & 0xf, [](uint32_t cell) {
        return flushed<true>(std::bit_cast<float>(cell));
      });
    return compareRows<float>(a, b, inst.mode & 0xf,
                              [](uint32_t cell) { return std::bit_cast<float>(cell); });
  }
};
/// One half of the cells: the low one, or the high one of a pair.
template <typename H, uint32_t Shift> struct CompareHalf {
  static LaneMask apply(const Warp &warp, const Inst &inst) {
    bool flush = inst.mode & kFlush;
    return compareRows<uint32_t>(warp.narrow(inst.a), warp.narrow(inst.b), inst.mode & 0xf,
                                 [flush](uint32_t cell) {
                                   auto bits = static_cast<uint16_t>(cell >> Shift);
                                   if (flush && !(bits & H::kFormat.infinity()))
                                     bits &= 0x8000;
                                   return fromBits<H>(bits).value();
                                 });
  }
};

LaneMask combine(const Warp &warp, const Inst &inst, LaneMask result) {
  uint8_t op = inst.mode >> kBoolShift & 3;
  if (op == 0)
    return result;
  LaneMask c = warp.predicates[inst.c] ^ (inst.mode & kNotC ? kAllLanes : 0);
  return op == 1 ? result & c : op == 2 ? result | c : result ^ c;
}

/// p gets the result, q (if there is one) what comes of its opposite.
template <typename Comparison> void setp(Warp &warp, const Inst &inst, LaneMask mask) {
  LaneMask result = Comparison::apply(warp, inst);
  LaneMask p = combine(warp, inst, result);
  if (inst.imm)
    warp.setPredicate(inst.d2, combine(warp, inst, ~result), mask);
  warp.setPredicate(inst.d, p, mask);
}

/// p from the low halves, q from the high ones.
template <typename H> void setpPair(Warp &warp, const Inst &inst, LaneMask mask) {
  LaneMask low = combine(warp, inst, CompareHalf<H, 0>::apply(warp, inst));
  LaneMask high = combine(warp, inst, CompareHalf<H, 16>::apply(warp, inst));
  warp.setPredicate(inst.d, low, mask);
  if (inst.imm)
    warp.setPredicate(inst.d2, high, mask);
}

template <typename Comparison> void setValue(Warp &warp, const Inst &inst, LaneMask mask) {
  LaneMask result = combine(warp, inst, Comparison::apply(warp, inst));
  uint32_t *d = warp.narrow(inst.d);
  forEachLane(mask, [&](uint32_t lane) {
    d[lane] = has(result, lane) ? static_cast<uint32_t>(inst.imm) : 0;
  });
}

template <typename H> void setPairValue(Warp &warp, const Inst &inst, LaneMask mask) {
  LaneMask low = combine(warp, inst, CompareHalf<H, 0>::apply(warp, inst));
  LaneMask high = combine(warp, inst, CompareHalf<H, 16>::apply(warp, inst));
  auto one = static_cast<uint32_t>(inst.imm);
  uint32_t *d = warp.narrow(inst.d);
  forEachLane(mask, [&](uint32_t lane) {
    d[lane] = (has(low, lane) ? one & 0xffff : 0) | (has(high, lane) ? one & 0xffff0000 : 0);
  });
}

struct CompareHandlers {
  Handler setp, set;
};

template <typename C> CompareHandlers handlers() { return {&setp<C>, &setValue<C>}; }

CompareHandlers handlersFor(Type type) {
  switch (type) {
  case Type::B16:
  case Type::U16:
    return handlers<Compare<uint16_t>>();
  case Type::S16:
    return handlers<Compare<int16_t>>();
  case Type::B32:
  case Type::U32:
    return handlers<Compare<uint32_t>>();
  case Type::S32:
    return handlers<Compare<int32_t>>();
  case Type::B64:
  case Type::U64:
    return handlers<Compare<uint64_t>>();
  case Type::S64:
    return handlers<Compare<int64_t>>();
  case Type::F32:
    return handlers<Compare<float>>();
  case Type::F64:
    return handlers<Compare<double>>();
  case Type::F16:
    return handlers<CompareHalf<F16, 0>>();
  case Type::BF16:
    return handlers<CompareHalf<BF16, 0>>();
  case Type::F16x2:
    return {&setpPair<F16>, &setPairValue<F16>};
  case Type::BF16x2:
    return {&setpPair<BF16>, &setPairValue<BF16>};
  default:
    return {nullptr, nullptr};
  }
}

/// The comparison, the combination and .ftz into inst.mode.
Status decodeCondition(InstDecoder &d, bool &floatOnly) {
  const CompareName *found = nullptr;
  for (const CompareName &compare : kCompares)
    if (!found && d.take(compare.name))
      found = &compare;
  if (!found)
    return d.unsupported();
  floatOnly = found->floatOnly;
  d.inst.mode = found->table;
  d.inst.mode |= static_cast<uint8_t>((1 + d.takeOneOf({"and", "or", "xor"})) << kBoolShift);
  if (d.take("ftz"))
    d.inst.mode |= kFlush;
  d.inst.cls = InstClass::Predicate;
  return {};
}

Status decodeSources(InstDecoder &d, Type type) {
  bool combined = d.inst.mode >> kBoolShift & 3;
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(combined ? 4 : 3));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::A, 1, type));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::B, 2, type));
  if (!combined)
    return {};
  bool negated = false;
  LLMOPT_RETURN_IF_ERROR(d.predicateInput(Field::C, d.operand(3), negated));
  if (negated)
    d.inst.mode |= kNotC;
  return {};
}

Status decodeSetp(InstDecoder &d) {
  bool floatOnly = false;
  LLMOPT_RETURN_IF_ERROR(decodeCondition(d, floatOnly));
  Type type = d.takeType();
  d.inst.run = handlersFor(type).setp;
  if (!d.inst.run || (floatOnly && !ptx::isFloat(type)))
    return d.unsupported();
  LLMOPT_RETURN_IF_ERROR(decodeSources(d, type));
  const ptx::Operand &target = d.operand(0);
  if (target.kind != ptx::Operand::Kind::Pair)
    return d.output(Field::D, target, Type::Pred);
  d.inst.imm = 1;
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, target.parts[0], Type::Pred));
  return d.output(Field::D2, target.parts[1], Type::Pred);
}

/// What set writes where the comparison holds; 0 if the type is not allowed.
uint32_t trueValue(Type type) {
  switch (type) {
  case Type::U32:
  case Type::S32:
    return ~0u;
  case Type::F32:
    return 0x3f800000;
  case Type::U16:
  case Type::S16:
    return 0xffff;
  case Type::F16:
    return 0x3c00;
  case Type::BF16:
    return 0x3f80;
  case Type::F16x2:
    return 0x3c003c00;
  case Type::BF16x2:
    return 0x3f803f80;
  default:
    return 0;
  }
}

Status decodeSet(InstDecoder &d) {
  bool floatOnly = false;
  LLMOPT_RETURN_IF_ERROR(decodeCondition(d, floatOnly));
  Type result = d.takeType(), type = d.takeType();
  d.inst.run = handlersFor(type).set;
  d.inst.imm = trueValue(result);
  if (!d.inst.run || !d.inst.imm || (floatOnly && !ptx::isFloat(type)))
    return d.unsupported();
  LLMOPT_RETURN_IF_ERROR(decodeSources(d, type));
  return d.output(Field::D, 0, result);
}

template <typename C> void select(Warp &warp, const Inst &inst, LaneMask mask) {
  const C *a = row<C>(warp, inst.a), *b = row<C>(warp, inst.b);
  LaneMask chooseA = warp.predicates[inst.c];
  alignas(64) C result[kLanes];
  for (uint32_t lane = 0; lane < kLanes; ++lane)
    result[lane] = chooseA & kLaneBit[lane] ? a[lane] : b[lane];
  storeRow(row<C>(warp, inst.d), result, mask);
}

Status decodeSelect(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(4));
  Type type = d.takeType();
  uint32_t bytes = ptx::sizeOf(type);
  if (bytes < 2 || bytes > 8)
    return d.unsupported();
  d.inst.cls = InstClass::Move;
  d.inst.run = bytes == 8 ? &select<uint64_t> : &select<uint32_t>;
  d.inst.masking = Masking::Select;
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, type));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::A, 1, type));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::B, 2, type));
  bool negated = false;
  LLMOPT_RETURN_IF_ERROR(d.predicateInput(Field::C, d.operand(3), negated));
  return negated ? d.unsupported() : Status();
}

/// a if c >= 0, else b; NaN chooses b. A flushed subnormal is a zero: chooses a.
template <typename C, typename Sign> C selectBySign(C a, C b, Sign c) { return c >= 0 ? a : b; }
template <typename C> C selectBySignFtz(C a, C b, float c) { return flushed<true>(c) >= 0 ? a : b; }

Status decodeSelectBySign(InstDecoder &d) {
  LLMOPT_RETURN_IF_ERROR(d.expectOperands(4));
  bool ftz = d.take("ftz");
  Type type = d.takeType(), sign = d.takeType();
  uint32_t bytes = ptx::sizeOf(type);
  if (bytes < 2 || bytes > 8 || (sign != Type::S32 && sign != Type::F32))
    return d.unsupported();
  d.inst.cls = InstClass::Move;
  if (bytes == 8)
    d.inst.run = sign == Type::S32 ? lanewise<&selectBySign<uint64_t, int32_t>>
                                   : lanewise<&selectBySign<uint64_t, float>>;
  else
    d.inst.run = sign == Type::S32 ? lanewise<&selectBySign<uint32_t, int32_t>>
                                   : lanewise<&selectBySign<uint32_t, float>>;
  if (ftz && sign == Type::F32)
    d.inst.run =
        bytes == 8 ? lanewise<&selectBySignFtz<uint64_t>> : lanewise<&selectBySignFtz<uint32_t>>;
  LLMOPT_RETURN_IF_ERROR(d.output(Field::D, 0, type));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::A, 1, type));
  LLMOPT_RETURN_IF_ERROR(d.input(Field::B, 2, type));
  return d.input(Field::C, 3, sign);
}

} // namespace

void addCompareOps(OpTable &table) {
  table["setp"] = &decodeSetp;
  table["set"] = &decodeSet;
  table["selp"] = &decodeSelect;
  table["slct"] = &decodeSelectBySign;
}

} // namespace llmopt::sim

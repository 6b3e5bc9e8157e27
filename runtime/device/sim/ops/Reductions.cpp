#include "runtime/device/sim/ops/Reductions.h"

#include "runtime/device/sim/exec/Lanes.h"
#include "runtime/device/sim/numeric/Float32.h"
#include "runtime/device/sim/numeric/Half.h"

#include <algorithm>

namespace llmopt::sim {

using ptx::Type;

namespace {

template <typename T> uint64_t toBits(T value) { return toCell<T>(value); }
template <typename T> T ofBits(uint64_t bits) { return fromCell<T>(static_cast<Cell<T>>(bits)); }

template <typename T> uint64_t addBits(uint64_t a, uint64_t b, uint64_t) {
  if constexpr (std::is_same_v<T, float>)
    return toBits(canonical(ofBits<float>(a) + ofBits<float>(b)));
  else
    return toBits(static_cast<T>(ofBits<T>(a) + ofBits<T>(b)));
}
uint64_t addFlushed(uint64_t a, uint64_t b, uint64_t) {
  return toBits(finished<true>(flushed<true>(ofBits<float>(a)) + flushed<true>(ofBits<float>(b))));
}
template <typename H> uint64_t addHalf(uint64_t a, uint64_t b, uint64_t) {
  return H(fromBits<H>(a).value() + fromBits<H>(b).value()).bits;
}
template <typename H> uint64_t addPair(uint64_t a, uint64_t b, uint64_t) {
  return addHalf<H>(a, b, 0) | addHalf<H>(a >> 16, b >> 16, 0) << 16;
}
template <typename T> uint64_t minBits(uint64_t a, uint64_t b, uint64_t) {
  return toBits(std::min(ofBits<T>(a), ofBits<T>(b)));
}
template <typename T> uint64_t maxBits(uint64_t a, uint64_t b, uint64_t) {
  return toBits(std::max(ofBits<T>(a), ofBits<T>(b)));
}
/// As min and max of f16 are: a NaN loses, and -0 is less than +0.
template <typename H, bool Max> uint64_t extremeHalf(uint64_t a, uint64_t b, uint64_t) {
  float x = fromBits<H>(a).value(), y = fromBits<H>(b).value();
  if (x != x)
    return H(y).bits;
  bool first = y != y || (x == y ? std::signbit(x) != Max : (x < y) != Max);
  return static_cast<uint16_t>(first ? a : b);
}
uint64_t andBits(uint64_t a, uint64_t b, uint64_t) { return a & b; }
uint64_t orBits(uint64_t a, uint64_t b, uint64_t) { return a | b; }
uint64_t xorBits(uint64_t a, uint64_t b, uint64_t) { return a ^ b; }
uint64_t exchange(uint64_t, uint64_t b, uint64_t) { return b; }
uint64_t compareAndSwap(uint64_t a, uint64_t b, uint64_t compare) { return a == compare ? b : a; }
uint64_t increment(uint64_t a, uint64_t b, uint64_t) { return a >= b ? 0 : a + 1; }
uint64_t decrement(uint64_t a, uint64_t b, uint64_t) { return a == 0 || a > b ? b : a - 1; }

// Which instructions have a row.
constexpr uint8_t kAtomic = 1, kBulkGlobal = 2, kBulkShared = 4;
constexpr uint8_t kAll = kAtomic | kBulkGlobal | kBulkShared, kGlobal = kAtomic | kBulkGlobal;

struct Row {
  AtomicOp op;
  Type type;
  Combine combine;
  uint8_t of;
};

constexpr Row kRows[] = {
    {AtomicOp::Add, Type::U32, &addBits<uint32_t>, kAll},
    {AtomicOp::Add, Type::S32, &addBits<uint32_t>, kAll},
    {AtomicOp::Add, Type::U64, &addBits<uint64_t>, kAll},
    {AtomicOp::Add, Type::S64, &addBits<uint64_t>, kAtomic},
    {AtomicOp::Add, Type::F32, &addBits<float>, kGlobal},
    {AtomicOp::Add, Type::F64, &addBits<double>, kGlobal},
    {AtomicOp::Add, Type::F16, &addHalf<F16>, kGlobal},
    {AtomicOp::Add, Type::BF16, &addHalf<BF16>, kGlobal},
    {AtomicOp::Add, Type::F16x2, &addPair<F16>, kAtomic},
    {AtomicOp::Add, Type::BF16x2, &addPair<BF16>, kAtomic},
    {AtomicOp::Min, Type::U32, &minBits<uint32_t>, kAll},
    {AtomicOp::Min, Type::S32, &minBits<int32_t>, kAll},
    {AtomicOp::Min, Type::U64, &minBits<uint64_t>, kGlobal},
    {AtomicOp::Min, Type::S64, &minBits<int64_t>, kGlobal},
    {AtomicOp::Min, Type::F16, &extremeHalf<F16, false>, kBulkGlobal},
    {AtomicOp::Min, Type::BF16, &extremeHalf<BF16, false>, kBulkGlobal},
    {AtomicOp::Max, Type::U32, &maxBits<uint32_t>, kAll},
    {AtomicOp::Max, Type::S32, &maxBits<int32_t>, kAll},
    {AtomicOp::Max, Type::U64, &maxBits<uint64_t>, kGlobal},
    {AtomicOp::Max, Type::S64, &maxBits<int64_t>, kGlobal},
    {AtomicOp::Max, Type::F16, &extremeHalf<F16, true>, kBulkGlobal},
    {AtomicOp::Max, Type::BF16, &extremeHalf<BF16, true>, kBulkGlobal},
    {AtomicOp::And, Type::B32, &andBits, kAll},
    {AtomicOp::And, Type::B64, &andBits, kGlobal},
    {AtomicOp::Or, Type::B32, &orBits, kAll},
    {AtomicOp::Or, Type::B64, &orBits, kGlobal},
    {AtomicOp::Xor, Type::B32, &xorBits, kAll},
    {AtomicOp::Xor, Type::B64, &xorBits, kGlobal},
    {AtomicOp::Exch, Type::B32, &exchange, kAtomic},
    {AtomicOp::Exch, Type::B64, &exchange, kAtomic},
    {AtomicOp::Cas, Type::B16, &compareAndSwap, kAtomic},
    {AtomicOp::Cas, Type::B32, &compareAndSwap, kAtomic},
    {AtomicOp::Cas, Type::B64, &compareAndSwap, kAtomic},
    {AtomicOp::Inc, Type::U32, &increment, kAll},
    {AtomicOp::Dec, Type::U32, &decrement, kAll},
};

Combine find(AtomicOp op, Type type, uint8_t of) {
  for (const Row &row : kRows)
    if (row.op == op && row.type == type && row.of & of)
      return row.combine;
  return nullptr;
}

} // namespace

Combine atomicOf(AtomicOp op, Type type) { return find(op, type, kAtomic); }

Combine onGlobal(Combine combine) { return combine == &addBits<float> ? &addFlushed : combine; }

Combine reductionOf(AtomicOp op, Type type, bool shared) {
  Combine combine = find(op, type, shared ? kBulkShared : kBulkGlobal);
  return shared ? combine : onGlobal(combine);
}

} // namespace llmopt::sim

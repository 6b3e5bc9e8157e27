// Handlers from functions on single values: lanewise<f> computes f on the rows
// a, b, c for all lanes at once and keeps the results of the active ones.
// Functions must be defined for every input, as inactive lanes hold anything.
#pragma once

#include "runtime/device/sim/exec/Warp.h"

#include <type_traits>

namespace llmopt::sim {

/// How a value lies in a register: the low bits of a cell.
template <typename T> using Cell = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <typename T> inline T fromCell(Cell<T> cell) {
  if constexpr (sizeof(T) == sizeof(cell))
    return std::bit_cast<T>(cell);
  else if constexpr (sizeof(T) == 2)
    return std::bit_cast<T>(static_cast<uint16_t>(cell));
  else
    return std::bit_cast<T>(static_cast<uint8_t>(cell));
}

template <typename T> inline Cell<T> toCell(T value) {
  if constexpr (sizeof(T) == sizeof(Cell<T>))
    return std::bit_cast<Cell<T>>(value);
  else if constexpr (sizeof(T) == 2)
    return std::bit_cast<uint16_t>(value);
  else
    return std::bit_cast<uint8_t>(value);
}

template <typename T> inline Cell<T> *row(const Warp &warp, uint32_t offset) {
  if constexpr (sizeof(T) == 8)
    return warp.wide(offset);
  else
    return warp.narrow(offset);
}

/// One bit of a mask, by lane; lets a compiler without variable shifts blend.
inline constexpr std::array<uint32_t, kLanes> kLaneBit = [] {
  std::array<uint32_t, kLanes> bits{};
  for (uint32_t lane = 0; lane < kLanes; ++lane)
    bits[lane] = 1u << lane;
  return bits;
}();

template <typename C> inline void storeRow(C *to, const C *values, LaneMask mask) {
  if (mask == kAllLanes) {
    std::memcpy(to, values, sizeof(C) * kLanes);
    return;
  }
  for (uint32_t lane = 0; lane < kLanes; ++lane)
    to[lane] = mask & kLaneBit[lane] ? values[lane] : to[lane];
}

template <auto F> struct Lanewise;

template <typename R, typename A, R (*F)(A)> struct Lanewise<F> {
  static void run(Warp &warp, const Inst &inst, LaneMask mask) {
    const Cell<A> *a = row<A>(warp, inst.a);
    alignas(64) Cell<R> result[kLanes];
    for (uint32_t lane = 0; lane < kLanes; ++lane)
      result[lane] = toCell<R>(F(fromCell<A>(a[lane])));
    storeRow(row<R>(warp, inst.d), result, mask);
  }
};

template <typename R, typename A, typename B, R (*F)(A, B)> struct Lanewise<F> {
  static void run(Warp &warp, const Inst &inst, LaneMask mask) {
    const Cell<A> *a = row<A>(warp, inst.a);
    const Cell<B> *b = row<B>(warp, inst.b);
    alignas(64) Cell<R> result[kLanes];
    for (uint32_t lane = 0; lane < kLanes; ++lane)
      result[lane] = toCell<R>(F(fromCell<A>(a[lane]), fromCell<B>(b[lane])));
    storeRow(row<R>(warp, inst.d), result, mask);
  }
};

template <typename R, typename A, typename B, typename C, R (*F)(A, B, C)> struct Lanewise<F> {
  static void run(Warp &warp, const Inst &inst, LaneMask mask) {
    const Cell<A> *a = row<A>(warp, inst.a);
    const Cell<B> *b = row<B>(warp, inst.b);
    const Cell<C> *c = row<C>(warp, inst.c);
    alignas(64) Cell<R> result[kLanes];
    for (uint32_t lane = 0; lane < kLanes; ++lane)
      result[lane] = toCell<R>(F(fromCell<A>(a[lane]), fromCell<B>(b[lane]), fromCell<C>(c[lane])));
    storeRow(row<R>(warp, inst.d), result, mask);
  }
};

template <auto F> inline constexpr Handler lanewise = &Lanewise<F>::run;

} // namespace llmopt::sim

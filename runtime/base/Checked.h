// Sizes made from a caller's numbers: what does not fit is the most that there is, which whoever
// takes the size refuses. Wrapped around, it would look like a small one.
#pragma once

#include <concepts>
#include <limits>
#include <type_traits>

namespace llmopt::runtime {

template <std::unsigned_integral T> constexpr T productOrMost(T a, std::type_identity_t<T> b) {
  T product;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<T>::max() : product;
}

template <std::unsigned_integral T> constexpr T sumOrMost(T a, std::type_identity_t<T> b) {
  T sum;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<T>::max() : sum;
}

} // namespace llmopt::runtime

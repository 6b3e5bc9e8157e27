// The functions of the host that the code of a CPU kernel may call by name: the compiler
// emits calls of these alone, the loader resolves these alone (and memcpy and its like).
#pragma once

#include <string_view>

/// f(x) and f(x, y) of C's <math.h>: APPLY(f) for each. A kernel calls `f` for f64 and
/// `f` with an f at the end for f32.
#define LLMOPT_UNARY_HOST_FUNCTIONS(APPLY)                                                         \
  APPLY(acos)                                                                                      \
  APPLY(acosh)                                                                                     \
  APPLY(asin)                                                                                      \
  APPLY(asinh)                                                                                     \
  APPLY(atan)                                                                                      \
  APPLY(atanh)                                                                                     \
  APPLY(cbrt)                                                                                      \
  APPLY(ceil)                                                                                      \
  APPLY(cos)                                                                                       \
  APPLY(cosh)                                                                                      \
  APPLY(erf)                                                                                       \
  APPLY(erfc)                                                                                      \
  APPLY(exp)                                                                                       \
  APPLY(exp2)                                                                                      \
  APPLY(expm1)                                                                                     \
  APPLY(fabs)                                                                                      \
  APPLY(floor)                                                                                     \
  APPLY(log)                                                                                       \
  APPLY(log10)                                                                                     \
  APPLY(log1p)                                                                                     \
  APPLY(log2)                                                                                      \
  APPLY(nearbyint)                                                                                 \
  APPLY(rint)                                                                                      \
  APPLY(round)                                                                                     \
  APPLY(roundeven)                                                                                 \
  APPLY(sin)                                                                                       \
  APPLY(sinh)                                                                                      \
  APPLY(sqrt)                                                                                      \
  APPLY(tan)                                                                                       \
  APPLY(tanh)                                                                                      \
  APPLY(trunc)
#define LLMOPT_BINARY_HOST_FUNCTIONS(APPLY)                                                        \
  APPLY(atan2)                                                                                     \
  APPLY(copysign)                                                                                  \
  APPLY(fdim)                                                                                      \
  APPLY(fmax)                                                                                      \
  APPLY(fmin)                                                                                      \
  APPLY(fmod)                                                                                      \
  APPLY(pow)                                                                                       \
  APPLY(remainder)

namespace llmopt::bundle {

/// Is `name` a function of mathematics or a conversion of 16-bit floats that every loader
/// of CPU kernels offers?
constexpr bool isHostFunction(std::string_view name) {
#define LLMOPT_NAMES(function) #function, #function "f",
  constexpr std::string_view names[] = {
      LLMOPT_UNARY_HOST_FUNCTIONS(LLMOPT_NAMES) LLMOPT_BINARY_HOST_FUNCTIONS(LLMOPT_NAMES)
      // LLVM's names, for a CPU without instructions that convert.
      "fma",
      "fmaf",
      "ldexp",
      "ldexpf",
      "__truncsfhf2",
      "__truncsfbf2",
      "__extendhfsf2"};
#undef LLMOPT_NAMES
  for (std::string_view known : names)
    if (known == name)
      return true;
  return false;
}

} // namespace llmopt::bundle

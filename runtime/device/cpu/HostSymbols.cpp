#include "runtime/device/cpu/HostSymbols.h"

#include "runtime/base/Half.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <math.h>

namespace llmopt::runtime {

namespace {

// LLVM calls these where the CPU has no instruction for a 16-bit conversion. A
// half travels in the low bits of a vector register, and so does a bfloat:
// _Float16 gives both the right place.
_Float16 truncateFloatToHalf(float value) { return std::bit_cast<_Float16>(f32ToF16(value)); }
_Float16 truncateFloatToBfloat(float value) { return std::bit_cast<_Float16>(f32ToBf16(value)); }
float extendHalfToFloat(_Float16 value) { return f16ToF32(std::bit_cast<uint16_t>(value)); }

struct HostSymbol {
  std::string_view name;
  void *address;
};

template <typename Result, typename... Args> void *addressOf(Result (*function)(Args...)) {
  return reinterpret_cast<void *>(function);
}

/// The f32 and the f64 version of a function of one or two arguments.
#define LLMOPT_MATH1(name)                                                                         \
  {#name "f", addressOf<float, float>(::name##f)}, { #name, addressOf<double, double>(::name) }
#define LLMOPT_MATH2(name)                                                                         \
  {#name "f", addressOf<float, float, float>(::name##f)}, {                                        \
    #name, addressOf<double, double, double>(::name)                                               \
  }

// Taken by address instead of looked up by name: the linker then proves that
// each exists, also in a statically linked program.
const HostSymbol kHostSymbols[] = {
    {"memcpy", addressOf<void *, void *, const void *, size_t>(::memcpy)},
    {"memmove", addressOf<void *, void *, const void *, size_t>(::memmove)},
    {"memset", addressOf<void *, void *, int, size_t>(::memset)},
    {"memcmp", addressOf<int, const void *, const void *, size_t>(::memcmp)},
    LLMOPT_MATH1(acos),
    LLMOPT_MATH1(acosh),
    LLMOPT_MATH1(asin),
    LLMOPT_MATH1(asinh),
    LLMOPT_MATH1(atan),
    LLMOPT_MATH1(atanh),
    LLMOPT_MATH1(cbrt),
    LLMOPT_MATH1(ceil),
    LLMOPT_MATH1(cos),
    LLMOPT_MATH1(cosh),
    LLMOPT_MATH1(erf),
    LLMOPT_MATH1(erfc),
    LLMOPT_MATH1(exp),
    LLMOPT_MATH1(exp2),
    LLMOPT_MATH1(expm1),
    LLMOPT_MATH1(fabs),
    LLMOPT_MATH1(floor),
    LLMOPT_MATH1(log),
    LLMOPT_MATH1(log10),
    LLMOPT_MATH1(log1p),
    LLMOPT_MATH1(log2),
    LLMOPT_MATH1(nearbyint),
    LLMOPT_MATH1(rint),
    LLMOPT_MATH1(round),
    LLMOPT_MATH1(sin),
    LLMOPT_MATH1(sinh),
    LLMOPT_MATH1(sqrt),
    LLMOPT_MATH1(tan),
    LLMOPT_MATH1(tanh),
    LLMOPT_MATH1(trunc),
    LLMOPT_MATH2(atan2),
    LLMOPT_MATH2(copysign),
    LLMOPT_MATH2(fdim),
    LLMOPT_MATH2(fmax),
    LLMOPT_MATH2(fmin),
    LLMOPT_MATH2(fmod),
    LLMOPT_MATH2(pow),
    LLMOPT_MATH2(remainder),
    {"fmaf", addressOf<float, float, float, float>(::fmaf)},
    {"fma", addressOf<double, double, double, double>(::fma)},
    {"ldexpf", addressOf<float, float, int>(::ldexpf)},
    {"ldexp", addressOf<double, double, int>(::ldexp)},
    {"__truncsfhf2", addressOf(truncateFloatToHalf)},
    {"__truncsfbf2", addressOf(truncateFloatToBfloat)},
    {"__extendhfsf2", addressOf(extendHalfToFloat)},
};

#undef LLMOPT_MATH1
#undef LLMOPT_MATH2

} // namespace

void *resolveHostSymbol(std::string_view name) {
  const auto *found = std::find_if(std::begin(kHostSymbols), std::end(kHostSymbols),
                                   [&](const HostSymbol &s) { return s.name == name; });
  return found == std::end(kHostSymbols) ? nullptr : found->address;
}

} // namespace llmopt::runtime

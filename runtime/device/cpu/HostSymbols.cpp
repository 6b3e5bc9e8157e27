#include "runtime/device/cpu/HostSymbols.h"

#include "runtime/base/Half.h"
#include "runtime/bundle/HostFunctions.h"

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
  {#name "f", addressOf<float, float>(::name##f)}, {#name, addressOf<double, double>(::name)},
#define LLMOPT_MATH2(name)                                                                         \
  {#name "f", addressOf<float, float, float>(::name##f)},                                          \
      {#name, addressOf<double, double, double>(::name)},

// Taken by address instead of looked up by name: the linker then proves that
// each exists, also in a statically linked program.
const HostSymbol kHostSymbols[] = {
    {"memcpy", addressOf<void *, void *, const void *, size_t>(::memcpy)},
    {"memmove", addressOf<void *, void *, const void *, size_t>(::memmove)},
    {"memset", addressOf<void *, void *, int, size_t>(::memset)},
    {"memcmp", addressOf<int, const void *, const void *, size_t>(::memcmp)},
    // clang-format off
    LLMOPT_UNARY_HOST_FUNCTIONS(LLMOPT_MATH1)
    LLMOPT_BINARY_HOST_FUNCTIONS(LLMOPT_MATH2)
    // clang-format on
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

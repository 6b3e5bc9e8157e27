#include "runtime/base/Half.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

using namespace llmopt::runtime;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

bool isNan16(uint16_t bits, uint16_t infinity) { return (bits & 0x7fff) > infinity; }

/// Between each two neighbouring finite values: below, at and above the middle.
template <typename Widen, typename Narrow>
void checkRounding(uint16_t infinity, Widen widen, Narrow narrow) {
  for (uint32_t bits = 0; bits + 1 < infinity; ++bits) {
    float low = widen(static_cast<uint16_t>(bits));
    float high = widen(static_cast<uint16_t>(bits + 1));
    float middle = static_cast<float>((double(low) + double(high)) / 2); // exact
    uint16_t even = static_cast<uint16_t>(bits + (bits & 1));
    ASSERT_EQ(narrow(middle), even) << bits;
    ASSERT_EQ(narrow(std::nextafter(middle, low)), bits) << bits;
    ASSERT_EQ(narrow(std::nextafter(middle, high)), bits + 1) << bits;
    ASSERT_EQ(narrow(-middle), even | 0x8000) << bits;
  }
}

} // namespace

TEST(Half, F16RoundTripsEveryValue) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    float value = f16ToF32(static_cast<uint16_t>(bits));
    if (isNan16(bits, 0x7c00)) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_EQ(f32ToF16(value), bits | 0x200) << "quiet, payload and sign kept";
    } else {
      ASSERT_EQ(f32ToF16(value), bits);
    }
  }
}

TEST(Half, F16ValuesMatchTheFormat) {
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    uint32_t exponent = bits >> 10, mantissa = bits & 0x3ff;
    double expected =
        exponent ? std::ldexp(1024 + mantissa, int(exponent) - 25) : std::ldexp(mantissa, -24);
    ASSERT_EQ(f16ToF32(static_cast<uint16_t>(bits)), expected);
    ASSERT_EQ(f16ToF32(static_cast<uint16_t>(bits | 0x8000)), -expected);
  }
  EXPECT_EQ(f16ToF32(0x7c00), kInfinity);
  EXPECT_EQ(f16ToF32(0xfc00), -kInfinity);
  EXPECT_TRUE(std::signbit(f16ToF32(0x8000)));
}

TEST(Half, F16RoundsToNearestEven) { checkRounding(0x7c00, f16ToF32, f32ToF16); }

TEST(Half, F16LimitsOfTheRange) {
  EXPECT_EQ(f32ToF16(65519.996f), 0x7bff);
  EXPECT_EQ(f32ToF16(65520.0f), 0x7c00);
  EXPECT_EQ(f32ToF16(std::numeric_limits<float>::max()), 0x7c00);
  EXPECT_EQ(f32ToF16(-kInfinity), 0xfc00);
  EXPECT_EQ(f32ToF16(0x1p-25f), 0);
  EXPECT_EQ(f32ToF16(std::nextafter(0x1p-25f, 1.0f)), 1);
  EXPECT_EQ(f32ToF16(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(f32ToF16(-0.0f), 0x8000);
  EXPECT_TRUE(isNan16(f32ToF16(std::bit_cast<float>(0x7f800001u)), 0x7c00));
}

TEST(Half, Bf16RoundTripsEveryValue) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    float value = bf16ToF32(static_cast<uint16_t>(bits));
    if (isNan16(bits, 0x7f80)) {
      EXPECT_EQ(f32ToBf16(value), bits | 0x40);
    } else {
      ASSERT_EQ(f32ToBf16(value), bits);
    }
  }
}

TEST(Half, Bf16RoundsToNearestEven) { checkRounding(0x7f80, bf16ToF32, f32ToBf16); }

TEST(Half, Bf16LimitsOfTheRange) {
  EXPECT_EQ(f32ToBf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(f32ToBf16(-kInfinity), 0xff80);
  EXPECT_TRUE(isNan16(f32ToBf16(std::bit_cast<float>(0x7f800001u)), 0x7f80));
}

static_assert(f32ToF16(1.0f) == 0x3c00 && f32ToBf16(1.0f) == 0x3f80);

#include "dialect/reference/Formats.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

namespace llmopt::reference {
namespace {

TEST(Formats, EveryHalfAndBrainFloatRoundTrips) {
  for (ElementType type : {ElementType::F16, ElementType::BF16})
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      uint16_t word = uint16_t(bits), back = 0;
      double value = load(&word, type, 0);
      store(&back, type, 0, value);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(load(&back, type, 0)));
        continue;
      }
      EXPECT_EQ(back, word);
      EXPECT_EQ(roundTo(type, value), value);
    }
}

TEST(Formats, RoundsToNearestEven) {
  EXPECT_EQ(roundTo(ElementType::F16, 1 + 0x1p-11), 1);
  EXPECT_EQ(roundTo(ElementType::F16, 1 + 0x1.8p-10), 1 + 0x1p-9);
  EXPECT_EQ(roundTo(ElementType::F16, 1 + 0x1.0001p-11), 1 + 0x1p-10);
  EXPECT_EQ(roundTo(ElementType::BF16, 1 + 0x1p-8), 1);
  EXPECT_EQ(roundTo(ElementType::BF16, -1 - 0x1.8p-7), -1 - 0x1p-6);
  EXPECT_EQ(roundTo(ElementType::F32, 1 + 0x1p-24), 1);
}

TEST(Formats, SubnormalsAndOverflow) {
  double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(roundTo(ElementType::F16, 0x1p-24), 0x1p-24);
  EXPECT_EQ(roundTo(ElementType::F16, 0x1p-25), 0);
  EXPECT_EQ(roundTo(ElementType::F16, 65519), 65504);
  EXPECT_EQ(roundTo(ElementType::F16, 65520), infinity);
  EXPECT_EQ(roundTo(ElementType::BF16, -1e39), -infinity);
  EXPECT_TRUE(std::isnan(roundTo(ElementType::BF16, std::nan(""))));
}

TEST(Formats, Ulp) {
  EXPECT_EQ(ulp(ElementType::F32, 1), 0x1p-23);
  EXPECT_EQ(ulp(ElementType::F16, -3), 0x1p-9);
  EXPECT_EQ(ulp(ElementType::BF16, 0.9), 0x1p-8);
  EXPECT_EQ(ulp(ElementType::F16, 0), 0x1p-24);
  EXPECT_EQ(unitRoundoff(ElementType::BF16), 0x1p-8);
}

TEST(Formats, Integers) {
  int8_t byte = -5;
  EXPECT_EQ(load(&byte, ElementType::I8, 0), -5);
  uint8_t truth = 7;
  EXPECT_EQ(load(&truth, ElementType::Bool, 0), 1);
  int64_t wide = 0;
  store(&wide, ElementType::I64, 0, -3e9);
  EXPECT_EQ(wide, -3000000000);
}

} // namespace
} // namespace llmopt::reference

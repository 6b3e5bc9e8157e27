// f16 and bf16 arithmetic against exact results rounded by search.
#include "runtime/base/Half.h"

#include "tests/unit/sim/Evaluate.h"
#include "tests/unit/sim/Support.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include <utility>

using namespace llmopt::sim::test;
using llmopt::runtime::bf16ToF32;
using llmopt::runtime::f16ToF32;

namespace {

using Long = __float128;

struct Format {
  std::string name;
  float (*decode)(uint16_t);
  uint16_t infinity;
};
const Format kF16 = {"f16", [](uint16_t b) { return f16ToF32(b); }, 0x7c00};
const Format kBF16 = {"bf16", [](uint16_t b) { return bf16ToF32(b); }, 0x7f80};

/// x + lost to nearest, ties to even, by looking at the two neighbours; `lost`
/// is too small to matter except where x lies half way.
uint16_t nearest(Long x, Long lost, const Format &format) {
  uint16_t sign = x < 0 ? 0x8000 : 0;
  Long magnitude = x < 0 ? -x : x;
  lost = x < 0 ? -lost : lost;
  // Magnitudes ascend with their bits; the place of infinity counts as one unit
  // above the largest number, which is where rounding overflows.
  auto value = [&](uint32_t bits) -> Long {
    if (bits < format.infinity)
      return format.decode(static_cast<uint16_t>(bits));
    Long last = format.decode(static_cast<uint16_t>(format.infinity - 1));
    return last + (last - format.decode(static_cast<uint16_t>(format.infinity - 2)));
  };
  uint32_t low = 0, high = format.infinity;
  if (magnitude >= value(high))
    return sign | format.infinity;
  while (high - low > 1) {
    uint32_t middle = (low + high) / 2;
    (value(middle) <= magnitude ? low : high) = middle;
  }
  Long below = magnitude - value(low), above = value(high) - magnitude;
  bool tie = above == below;
  bool up = tie ? lost > 0 || (lost == 0 && (low & 1)) : above < below;
  return static_cast<uint16_t>(sign | (up ? high : low));
}

std::vector<std::vector<uint64_t>> randomHalves(size_t columns) {
  std::mt19937 random(11);
  std::vector<std::vector<uint64_t>> inputs(6000);
  for (size_t i = 0; i < inputs.size(); ++i)
    for (size_t j = 0; j < columns; ++j)
      // A third of the rows has exponents near to each other.
      inputs[i].push_back(i % 3 ? random() & 0xffff : (random() & 0x83ff) | 0x3c00);
  return inputs;
}

void checkAgainstExact(const Format &format) {
  struct Op {
    std::string name;
    size_t inputs;
    std::pair<Long, Long> (*summands)(float, float, float);
  };
  using Pair = std::pair<Long, Long>;
  const Op kOps[] = {
      {"add", 2, [](float a, float b, float) { return Pair{a, b}; }},
      {"sub", 2, [](float a, float b, float) { return Pair{a, -b}; }},
      {"mul", 2, [](float a, float b, float) { return Pair{Long{a} * b, 0}; }},
      {"fma.rn", 3, [](float a, float b, float c) { return Pair{Long{a} * b, c}; }},
  };
  for (const Op &op : kOps) {
    auto inputs = randomHalves(op.inputs);
    std::string name = op.name + "." + format.name;
    auto out = evaluate(name, "b16", std::vector<std::string>(op.inputs, "b16"), inputs);
    auto pair = evaluate(name + "x2", "b32", std::vector<std::string>(op.inputs, "b32"), inputs);
    for (size_t i = 0; i < inputs.size(); ++i) {
      float a = format.decode(static_cast<uint16_t>(inputs[i][0]));
      float b = format.decode(static_cast<uint16_t>(inputs[i][1]));
      float c = op.inputs == 3 ? format.decode(static_cast<uint16_t>(inputs[i][2])) : 0;
      auto [x, y] = op.summands(a, b, c);
      if ((x < 0 ? -x : x) < (y < 0 ? -y : y))
        std::swap(x, y);
      Long exact = x + y;
      Long lost = y - (exact - x); // what 113 bits do not hold
      if (exact != exact) {
        EXPECT_EQ(out[i] & 0xffff, 0x7fffu) << name << " of " << a << ", " << b << ", " << c;
        continue;
      }
      if (exact == 0)
        continue; // signs of zeros: the tables below
      uint16_t expected = nearest(exact, lost, format);
      EXPECT_EQ(out[i] & 0xffff, expected) << name << " of " << a << ", " << b << ", " << c;
      EXPECT_EQ(pair[i] & 0xffff, expected) << name << "x2";
    }
  }
}

} // namespace

TEST(Half, F16IsRoundedOnce) { checkAgainstExact(kF16); }
TEST(Half, Bf16IsRoundedOnce) { checkAgainstExact(kBF16); }

TEST(Half, SpecialValues) {
  std::vector<std::string> two = {"b16", "b16"}, three = {"b16", "b16", "b16"};
  expectRows("add.f16", "b16", two,
             {{{0x7c00, 0xfc00}, 0x7fff}, {{0x8000, 0x8000}, 0x8000}, {{0x7bff, 0x7bff}, 0x7c00}});
  expectRows("add.ftz.f16", "b16", two, {{{1, 1}, 0}, {{0x0400, 0x83ff}, 0x0400}});
  expectRows("add.sat.f16", "b16", two,
             {{{0x3c00, 0x3c00}, 0x3c00}, {{0xbc00, 0}, 0}, {{0x7e00, 0}, 0}});
  expectRows("fma.rn.relu.f16", "b16", three,
             {{{0xbc00, 0x3c00, 0}, 0}, {{0x3c00, 0x4000, 0}, 0x4000}, {{0x7e00, 0, 0}, 0x7fff}});
  expectRows("fma.rn.relu.bf16", "b16", three, {{{0xbf80, 0x3f80, 0}, 0}});
  expectRows("max.f16", "b16", two,
             {{{0x7e00, 0x3c00}, 0x3c00}, {{0x8000, 0}, 0}, {{0x7e00, 0xfe00}, 0x7fff}});
  expectRows("min.NaN.bf16", "b16", two, {{{0x7fc0, 0x3f80}, 0x7fff}});
  expectRows("max.NaN.f16x2", "b32", {"b32", "b32"}, {{{0x3c007e00, 0x40003c00}, 0x40007fff}});
  expectRows("min.xorsign.abs.f16", "b16", two, {{{0xc000, 0x3c00}, 0xbc00}});
  expectRows("neg.bf16x2", "b32", {"b32"}, {{{0x3f80bf80}, 0xbf803f80}});
  expectRows("abs.f16", "b16", {"b16"}, {{{0xbc00}, 0x3c00}});
}

// Float instructions: NaN, infinities, zeros, subnormals, rounding, saturation.
#include "tests/unit/sim/Evaluate.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

using namespace llmopt::sim::test;

namespace {

const std::vector<std::string> kOne = {"f32"}, kTwo = {"f32", "f32"},
                               kThree = {"f32", "f32", "f32"};

/// Random floats of all exponents.
std::vector<std::vector<uint64_t>> randomFloats(size_t rows, size_t columns, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::vector<uint64_t>> inputs(rows);
  for (auto &row : inputs)
    for (size_t i = 0; i < columns; ++i)
      row.push_back(random());
  return inputs;
}

/// 113 bits: exact for sums and products of floats whose exponents are near.
using Long = __float128;

/// The f32 neighbours of x that enclose it, and which of them a rounding takes.
float roundTo(Long x, const std::string &mode) {
  auto nearest = static_cast<float>(x);
  float below = nearest, above = nearest;
  if (static_cast<Long>(nearest) > x)
    below = std::nextafterf(nearest, -INFINITY);
  else if (static_cast<Long>(nearest) < x)
    above = std::nextafterf(nearest, INFINITY);
  if (mode == "rm")
    return below;
  if (mode == "rp")
    return above;
  return x < 0 ? above : below; // rz
}

} // namespace

TEST(FloatArithmetic, SpecialValues) {
  expectRows("add.f32", "f32", kTwo,
             {{{kInf, kNegInf}, kNan},
              {{kQuiet, bits(1.0f)}, kNan},
              {{kNegZero, kNegZero}, kNegZero},
              {{kNegZero, 0}, 0},
              {{kTiny, kTiny}, 2},
              {{kLargest, kLargest}, kInf}});
  expectRows("add.ftz.f32", "f32", kTwo,
             {{{kTiny, kTiny}, 0},
              {{kNormal, 0x80000000 | kSubnormal}, kNormal},
              {{kNormal, 0x80c00000}, kNegZero}});
  expectRows("add.sat.f32", "f32", kTwo,
             {{{bits(0.5f), bits(0.25f)}, bits(0.75f)},
              {{bits(1.0f), bits(1.0f)}, bits(1.0f)},
              {{bits(-1.0f), 0}, 0},
              {{kQuiet, 0}, 0}});
  expectRows("sub.f32", "f32", kTwo,
             {{{kInf, kInf}, kNan}, {{0, 0}, 0}, {{kNegZero, 0}, kNegZero}});
  expectRows(
      "mul.f32", "f32", kTwo,
      {{{kInf, 0}, kNan}, {{kNegZero, bits(2.0f)}, kNegZero}, {{kNormal, bits(0.5f)}, 0x00400000}});
  expectRows("mul.ftz.f32", "f32", kTwo,
             {{{kNormal, bits(-0.5f)}, kNegZero}, {{kTiny, kLargest}, 0}});
  expectRows("div.rn.f32", "f32", kTwo,
             {{{bits(1.0f), 0}, kInf}, {{0, 0}, kNan}, {{bits(1.0f), bits(3.0f)}, 0x3eaaaaab}});
  expectRows("fma.rn.f32", "f32", kThree,
             {{{0x3f800800, 0x3f800800, bits(-1.0f)}, 0x3a000400},
              {{kInf, 0, bits(1.0f)}, kNan},
              {{kInf, bits(1.0f), kNegInf}, kNan},
              {{bits(2.0f), bits(3.0f), bits(4.0f)}, bits(10.0f)}});
  expectRows("fma.rn.ftz.f32", "f32", kThree, {{{kTiny, bits(1.0f), kTiny}, 0}});
  expectRows("fma.rn.sat.f32", "f32", kThree, {{{bits(2.0f), bits(3.0f), 0}, bits(1.0f)}});
  expectRows("neg.f32", "f32", kOne, {{{0}, kNegZero}, {{bits(1.0f)}, bits(-1.0f)}});
  expectRows("abs.ftz.f32", "f32", kOne, {{{0x80000001}, 0}, {{bits(-3.0f)}, bits(3.0f)}});
  expectRows("copysign.f32", "f32", kTwo, {{{bits(-1.0f), bits(5.0f)}, bits(-5.0f)}});
}

TEST(FloatArithmetic, MinMaxTreatNanAndZeros) {
  expectRows("max.f32", "f32", kTwo,
             {{{kQuiet, bits(1.0f)}, bits(1.0f)},
              {{bits(1.0f), kQuiet}, bits(1.0f)},
              {{kQuiet, kQuiet}, kNan},
              {{kNegZero, 0}, 0},
              {{0, kNegZero}, 0},
              {{bits(-2.0f), bits(-1.0f)}, bits(-1.0f)},
              {{kNegInf, kInf}, kInf}});
  expectRows("min.f32", "f32", kTwo,
             {{{kNegZero, 0}, kNegZero}, {{0, kNegZero}, kNegZero}, {{kQuiet, kInf}, kInf}});
  expectRows("max.NaN.f32", "f32", kTwo,
             {{{kQuiet, bits(1.0f)}, kNan}, {{bits(1.0f), kQuiet}, kNan}});
  expectRows("min.ftz.f32", "f32", kTwo, {{{kTiny, bits(1.0f)}, 0}});
  expectRows("max.xorsign.abs.f32", "f32", kTwo,
             {{{bits(-3.0f), bits(2.0f)}, bits(-3.0f)}, {{bits(-3.0f), bits(-4.0f)}, bits(4.0f)}});
  expectRows("max.f32", "f32", kThree, {{{bits(1.0f), bits(3.0f), bits(2.0f)}, bits(3.0f)}});
  expectRows("max.f64", "f64", {"f64", "f64"}, {{{bits(std::nan("")), bits(1.0)}, bits(1.0)}});
}

TEST(FloatArithmetic, DirectedRounding) {
  auto inputs = randomFloats(2000, 3, 7);
  // Near values as well: exponents far apart leave nothing to round.
  for (size_t i = 0; i < inputs.size(); i += 2)
    for (uint64_t &x : inputs[i])
      x = (x & 0x83ffffff) | 0x3c000000;
  for (std::string mode : {"rz", "rm", "rp"}) {
    struct Op {
      std::string name;
      size_t inputs;
      Long (*exact)(float, float, float);
      bool nearOnly;
    };
    const Op kOps[] = {
        {"mul", 2, [](float a, float b, float) -> Long { return Long{a} * b; }, false},
        {"add", 2, [](float a, float b, float) -> Long { return Long{a} + b; }, true},
        {"sub", 2, [](float a, float b, float) -> Long { return Long{a} - b; }, true},
        {"div", 2, [](float a, float b, float) -> Long { return Long{a} / b; }, false},
        {"fma", 3, [](float a, float b, float c) -> Long { return Long{a} * b + c; }, true},
    };
    for (const Op &op : kOps) {
      std::vector<std::string> sources(op.inputs, "f32");
      auto out = evaluate(op.name + "." + mode + ".f32", "f32", sources, inputs);
      for (size_t i = 0; i < inputs.size(); i += op.nearOnly ? 2 : 1) {
        float a = toFloat(inputs[i][0]), b = toFloat(inputs[i][1]), c = toFloat(inputs[i][2]);
        Long exact = op.exact(a, b, c);
        float got = toFloat(out[i]);
        if (exact != exact) {
          EXPECT_EQ(out[i] & 0xffffffff, kNan);
          continue;
        }
        if (!std::isfinite(static_cast<float>(exact)) || exact == 0)
          continue;
        EXPECT_EQ(bits(got), bits(roundTo(exact, mode)))
            << op.name << "." << mode << " of " << a << ", " << b << ", " << c;
      }
    }
  }
  expectRows("add.rm.f32", "f32", kTwo, {{{bits(1.0f), bits(-1.0f)}, kNegZero}, {{0, 0}, 0}});
  expectRows("add.rz.f32", "f32", kTwo, {{{kLargest, kLargest}, kLargest}});
  expectRows("mul.rm.f32", "f32", kTwo,
             {{{kLargest, bits(-2.0f)}, kNegInf}, {{kLargest, bits(2.0f)}, kLargest}});
  expectRows("mul.rp.f32", "f32", kTwo, {{{kTiny, kTiny}, kTiny}, {{kTiny, 0x80000001}, kNegZero}});
  expectRows("rcp.rz.f32", "f32", kOne, {{{bits(3.0f)}, 0x3eaaaaaa}, {{0}, kInf}});
  expectRows("sqrt.rp.f32", "f32", kOne, {{{bits(2.0f)}, 0x3fb504f4}, {{bits(4.0f)}, bits(2.0f)}});
  expectRows("sqrt.rm.f32", "f32", kOne, {{{bits(2.0f)}, 0x3fb504f3}, {{bits(-1.0f)}, kNan}});
}

TEST(FloatArithmetic, Doubles) {
  std::vector<std::string> two = {"f64", "f64"};
  expectRows("add.f64", "f64", two, {{{bits(0.1), bits(0.2)}, bits(0.1 + 0.2)}});
  expectRows("mul.rn.f64", "f64", two, {{{bits(1e300), bits(1e300)}, bits(INFINITY * 1.0)}});
  expectRows("div.rn.f64", "f64", two, {{{bits(1.0), bits(3.0)}, bits(1.0 / 3.0)}});
  expectRows("fma.rn.f64", "f64", {"f64", "f64", "f64"},
             {{{bits(0.1), bits(10.0), bits(-1.0)}, bits(std::fma(0.1, 10.0, -1.0))}});
  expectRows("sqrt.rn.f64", "f64", {"f64"}, {{{bits(2.0)}, bits(std::sqrt(2.0))}});
  expectRows("neg.f64", "f64", {"f64"}, {{{bits(2.0)}, bits(-2.0)}});
}

// Bounds of the PTX ISA for the approximations.
TEST(FloatFunction, StaysWithinTheDocumentedError) {
  struct Function {
    std::string name;
    double (*exact)(double);
    float low, high;
    double relative, absolute;
  };
  const Function kFunctions[] = {
      {"ex2.approx.f32", [](double x) { return std::exp2(x); }, -125.0f, 127.0f, 0x1p-22, 0},
      {"ex2.approx.ftz.f32", [](double x) { return std::exp2(x); }, -1.0f, 1.0f, 0x1p-22, 0},
      {"lg2.approx.f32", [](double x) { return std::log2(x); }, 2.0f, 1e30f, 0x1p-22, 0},
      {"lg2.approx.ftz.f32", [](double x) { return std::log2(x); }, 0.5f, 2.0f, 0, 0x1p-22},
      {"rcp.approx.ftz.f32", [](double x) { return 1 / x; }, 1e-3f, 1e3f, 0x1p-23, 0},
      {"rsqrt.approx.f32", [](double x) { return 1 / std::sqrt(x); }, 1e-3f, 1e3f, 0x1p-22, 0},
      {"sqrt.approx.f32", [](double x) { return std::sqrt(x); }, 1e-3f, 1e3f, 0x1p-23, 0},
      {"sin.approx.f32", [](double x) { return std::sin(x); }, -3.1415f, 3.1415f, 0, 0x1p-20},
      {"cos.approx.f32", [](double x) { return std::cos(x); }, -3.1415f, 3.1415f, 0, 0x1p-20},
      {"tanh.approx.f32", [](double x) { return std::tanh(x); }, -5.0f, 5.0f, 0x1p-11, 0},
  };
  for (const Function &f : kFunctions) {
    std::mt19937 random(3);
    std::uniform_real_distribution<float> uniform(f.low, f.high);
    std::vector<std::vector<uint64_t>> inputs(4096);
    for (auto &row : inputs)
      row = {bits(uniform(random))};
    auto out = evaluate(f.name, "f32", kOne, inputs);
    for (size_t i = 0; i < inputs.size(); ++i) {
      double x = toFloat(inputs[i][0]), exact = f.exact(x);
      EXPECT_LE(std::fabs(toFloat(out[i]) - exact), f.relative * std::fabs(exact) + f.absolute)
          << f.name << " of " << x;
    }
  }
}

TEST(FloatFunction, SpecialValues) {
  expectRows("ex2.approx.f32", "f32", kOne,
             {{{kNegInf}, 0},
              {{kInf}, kInf},
              {{kQuiet}, kNan},
              {{0}, bits(1.0f)},
              {{bits(-149.0f)}, kTiny},
              {{bits(-127.0f)}, 0x00400000},
              {{bits(128.0f)}, kInf},
              {{bits(-3.0f)}, bits(0.125f)},
              {{bits(127.0f)}, bits(0x1p127f)},
              {{bits(-151.0f)}, 0}});
  expectRows("ex2.approx.ftz.f32", "f32", kOne, {{{bits(-127.0f)}, 0}, {{kTiny}, bits(1.0f)}});
  expectRows("lg2.approx.f32", "f32", kOne,
             {{{0}, kNegInf},
              {{kNegZero}, kNegInf},
              {{bits(-1.0f)}, kNan},
              {{kInf}, kInf},
              {{bits(8.0f)}, bits(3.0f)},
              {{kTiny}, bits(-149.0f)}});
  expectRows("lg2.approx.ftz.f32", "f32", kOne, {{{kTiny}, kNegInf}});
  expectRows("rcp.approx.ftz.f32", "f32", kOne,
             {{{0}, kInf}, {{kNegZero}, kNegInf}, {{kInf}, 0}, {{kTiny}, kInf}});
  expectRows(
      "rsqrt.approx.f32", "f32", kOne,
      {{{0}, kInf}, {{kNegZero}, kNegInf}, {{bits(-1.0f)}, kNan}, {{bits(4.0f)}, bits(0.5f)}});
  expectRows("sqrt.rn.f32", "f32", kOne,
             {{{kNegZero}, kNegZero}, {{bits(2.0f)}, bits(std::sqrt(2.0f))}});
  expectRows("ex2.approx.f16", "b16", {"b16"}, {{{0x3c00}, 0x4000}, {{0xfc00}, 0}});
  expectRows("tanh.approx.bf16x2", "b32", {"b32"}, {{{0x7f80ff80}, 0x3f80bf80}});
  expectRows("testp.subnormal.f32", "pred", kOne, {{{kTiny}, 1}, {{kNormal}, 0}});
  expectRows("testp.notanumber.f32", "pred", kOne, {{{kQuiet}, 1}, {{kInf}, 0}});
  expectRows("testp.finite.f64", "pred", {"f64"}, {{{bits(1.0)}, 1}, {{0x7ff0000000000000}, 0}});
}

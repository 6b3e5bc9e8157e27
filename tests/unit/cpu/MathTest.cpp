// Accuracy of the math expansions over all exponents, and their special values.
#include "tests/unit/cpu/Harness.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>

using namespace llmopt::cpu::test;

namespace {

/// Applies a unary op, or a body that makes %v of %a, to 64 x 64 values.
std::string program(const std::string &op) {
  std::string body = op.find(' ') == op.npos ? "%v = " + op + " %a : f32" : op;
  return R"(
func.func @apply(%x: memref<?xf32>, %y: memref<?xf32>) attributes {tile.kernel} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %rows = tile.strided_rows %c0, %c64, %c64 : tensor<64x1xi64>
  %t = tile.load %x[%rows] : memref<?xf32>, tensor<64x1xi64> -> tensor<64x64xf32>
  %o = tile.map(%t : tensor<64x64xf32>) {
  ^bb0(%a: f32, %r: i32, %c: i32):
    )" + body +
         R"(
    tile.yield %v : f32
  } -> tensor<64x64xf32>
  tile.store %o, %y[%rows] : tensor<64x64xf32>, memref<?xf32>, tensor<64x1xi64>
  return
})";
}

constexpr size_t kCount = 64 * 64;

/// Values of every exponent and both signs, 8 a binade, and the special ones.
std::vector<float> everyExponent() {
  std::vector<float> values;
  for (uint32_t exponent = 0; exponent < 256; ++exponent)
    for (uint32_t i = 0; i < 8; ++i) {
      uint32_t bits = exponent << 23 | i * 0x00123457u % 0x800000u;
      float value;
      std::memcpy(&value, &bits, 4);
      values.push_back(value);
      values.push_back(-value);
    }
  values.resize(kCount, 0.0f);
  return values;
}

struct Function {
  const char *op;
  double (*exact)(double);
  double low, high; ///< where a dense sample is taken
  double bound;     ///< ulps
};

void check(const Function &function, const Isa &isa) {
  SCOPED_TRACE(std::string(function.op) + " " + isa.name);
  auto kernel = Kernel::compile(program(function.op), optionsFor(isa), "apply");
  ASSERT_TRUE(kernel);
  std::vector<float> x = everyExponent(), y(kCount);
  double worst = 0, at = 0;
  for (int round = 0; round < 20; ++round) {
    kernel->clear();
    kernel->slot(x.data()).slot(y.data());
    ASSERT_EQ(kernel->run(), 0);
    for (size_t i = 0; i < kCount; ++i) {
      double wanted = function.exact(x[i]);
      // Results below the normal range may be flushed to zero.
      if (std::fabs(wanted) < 1.2e-38 && std::fabs(y[i]) <= 1.2e-38)
        continue;
      double error = ulps(y[i], wanted);
      if (!std::isnan(wanted) && std::signbit(y[i]) != std::signbit(wanted))
        error = INFINITY;
      if (!(error <= worst))
        worst = error, at = x[i];
    }
    for (size_t i = 0; i < kCount; ++i)
      x[i] = float(function.low +
                   (function.high - function.low) * (round * kCount + i) / (20.0 * kCount));
  }
  EXPECT_LE(worst, function.bound) << "at " << at;
  printf("%-10s %-8s %.2f ulp at %g\n", isa.name, function.op, worst, at);
}

TEST(Math, accuracy_over_all_exponents) {
  const Function functions[] = {
      {"math.exp2", [](double x) { return std::exp2(x); }, -127, 128, 2},
      {"math.exp", [](double x) { return std::exp(x); }, -87.3, 88.7, 2},
      {"math.sinh", [](double x) { return std::sinh(x); }, -89.4, 89.4, 5},
      {"math.cosh", [](double x) { return std::cosh(x); }, -89.4, 89.4, 5},
      {"math.tanh", [](double x) { return std::tanh(x); }, -9, 9, 6},
      {"math.log", [](double x) { return std::log(x); }, 0.5, 2, 3},
      {"math.log2", [](double x) { return std::log2(x); }, 0.5, 2, 3}};
  for (const Isa &isa : availableIsas())
    for (const Function &function : functions)
      check(function, isa);
}

/// Without code of our own: right to the last bits for every argument, huge ones too. The
/// bounds are those that the manual of the C library gives for x86-64.
TEST(Math, functions_of_the_library_over_all_exponents) {
  const Function functions[] = {{"math.sin", [](double x) { return std::sin(x); }, -20, 20, 1},
                                {"math.cos", [](double x) { return std::cos(x); }, -20, 20, 1},
                                {"math.tan", [](double x) { return std::tan(x); }, -20, 20, 1},
                                {"math.asin", [](double x) { return std::asin(x); }, -1, 1, 1},
                                {"math.acos", [](double x) { return std::acos(x); }, -1, 1, 1},
                                {"math.atan", [](double x) { return std::atan(x); }, -9, 9, 1},
                                {"math.asinh", [](double x) { return std::asinh(x); }, -9, 9, 2},
                                {"math.acosh", [](double x) { return std::acosh(x); }, 1, 9, 2},
                                {"math.atanh", [](double x) { return std::atanh(x); }, -1, 1, 2},
                                {"math.cbrt", [](double x) { return std::cbrt(x); }, -9, 9, 1},
                                {"math.erf", [](double x) { return std::erf(x); }, -4, 4, 1},
                                {"math.erfc", [](double x) { return std::erfc(x); }, -4, 10, 3},
                                {"math.expm1", [](double x) { return std::expm1(x); }, -9, 88, 1},
                                {"math.log1p", [](double x) { return std::log1p(x); }, -1, 9, 1},
                                {"math.log10", [](double x) { return std::log10(x); }, 0.1, 10, 2}};
  for (const Isa &isa : availableIsas())
    for (const Function &function : functions)
      check(function, isa);
}

TEST(Math, roundings_and_signs_are_exact) {
  const Function functions[] = {
      {"math.floor", [](double x) { return std::floor(x); }, -4, 4, 0},
      {"math.ceil", [](double x) { return std::ceil(x); }, -4, 4, 0},
      {"math.trunc", [](double x) { return std::trunc(x); }, -4, 4, 0},
      {"math.round", [](double x) { return std::round(x); }, -4, 4, 0},
      {"math.roundeven", [](double x) { return std::nearbyint(x); }, -4, 4, 0},
      {"math.absf", [](double x) { return std::fabs(x); }, -4, 4, 0},
      {"math.sqrt", [](double x) { return std::sqrt(x); }, 0, 4, 0.5}};
  for (const Isa &isa : availableIsas())
    for (const Function &function : functions)
      check(function, isa);
  // Ties, and what adding one half would round up.
  const float ties[] = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 0.49999997f, 8388607.5f, 8388609.0f};
  for (const Isa &isa : availableIsas()) {
    std::vector<float> x(kCount), away(kCount), even(kCount);
    std::copy(std::begin(ties), std::end(ties), x.begin());
    for (auto [op, y] : {std::pair("math.round", &away), std::pair("math.roundeven", &even)}) {
      auto kernel = Kernel::compile(program(op), optionsFor(isa), "apply");
      ASSERT_TRUE(kernel);
      kernel->slot(x.data()).slot(y->data()).run();
    }
    for (size_t i = 0; i < std::size(ties); ++i) {
      EXPECT_EQ(away[i], std::round(x[i])) << isa.name << " " << x[i];
      EXPECT_EQ(even[i], std::nearbyint(x[i])) << isa.name << " " << x[i];
    }
  }
}

/// In f64 no function has code of its own; in f16 and bf16 all compute in f32.
TEST(Math, other_widths) {
  auto in = [](const std::string &type, const std::string &op) {
    bool isWide = type == "f64";
    return "%w = arith." + std::string(isWide ? "extf" : "truncf") + " %a : f32 to " + type +
           "\n%z = " + op + " %w : " + type + "\n%v = arith." + (isWide ? "truncf" : "extf") +
           " %z : " + type + (isWide ? " to f32" : " to f32");
  };
  const std::pair<const char *, double (*)(double)> functions[] = {
      {"math.exp", std::exp},   {"math.exp2", std::exp2},   {"math.log", std::log},
      {"math.log2", std::log2}, {"math.tanh", std::tanh},   {"math.sinh", std::sinh},
      {"math.cosh", std::cosh}, {"math.sin", std::sin},     {"math.acos", std::acos},
      {"math.erf", std::erf},   {"math.floor", std::floor}, {"math.roundeven", std::nearbyint},
      {"math.sqrt", std::sqrt}, {"math.absf", std::fabs}};
  for (const Isa &isa : availableIsas())
    for (auto [op, exact] : functions)
      for (std::string type : {"f64", "f16", "bf16"}) {
        SCOPED_TRACE(std::string(op) + " " + isa.name + " " + type);
        bool isWide = type == "f64", isBrain = type == "bf16";
        auto kernel = Kernel::compile(program(in(type, op)), optionsFor(isa), "apply");
        ASSERT_TRUE(kernel);
        std::vector<float> x(kCount), y(kCount);
        for (size_t i = 0; i < kCount; ++i) // multiples of 1/256: exact in f16
          x[i] =
              isBrain ? fromBf16(toBf16(float(int(i) - 2048) / 256)) : float(int(i) - 2048) / 256;
        kernel->slot(x.data()).slot(y.data()).run();
        for (size_t i = 0; i < kCount; ++i) {
          double wanted = exact(x[i]);
          float rounded = isWide    ? float(wanted)
                          : isBrain ? fromBf16(toBf16(float(wanted)))
                                    : fromF16(toF16(float(wanted)));
          if (std::isnan(wanted))
            EXPECT_TRUE(std::isnan(y[i])) << x[i];
          else if (isWide || std::isinf(rounded))
            EXPECT_LE(ulps(y[i], wanted), 0.51) << x[i];
          else // one place, where f32's error crosses a middle
            EXPECT_LE(std::fabs(y[i] - rounded),
                      std::fabs(rounded) / (isBrain ? 128 : 1024) + (isBrain ? 0 : 6e-8))
                << x[i];
        }
      }
}

/// Integer powers of reals and of integers.
TEST(Math, integer_powers) {
  for (const Isa &isa : availableIsas()) {
    SCOPED_TRACE(isa.name);
    auto real = Kernel::compile(program("%n = arith.subi %r, %c : i32\n"
                                        "%v = math.fpowi %a, %n : f32, i32"),
                                optionsFor(isa), "apply");
    auto whole = Kernel::compile(program("%n = arith.subi %c, %r : i32\n"
                                         "%k = arith.fptosi %a : f32 to i32\n"
                                         "%p = math.ipowi %k, %n : i32\n"
                                         "%v = arith.sitofp %p : i32 to f32"),
                                 optionsFor(isa), "apply");
    ASSERT_TRUE(real && whole);
    std::vector<float> x(kCount), y(kCount), z(kCount);
    const float bases[] = {0, 1, -1, 2, -2, 3, -0.5f, 46341, 7, -0.0f, -3, 5};
    for (size_t i = 0; i < kCount; ++i)
      x[i] = bases[i % std::size(bases)];
    real->slot(x.data()).slot(y.data()).run();
    whole->slot(x.data()).slot(z.data()).run();
    for (size_t i = 0; i < kCount; ++i) {
      int n = int(i / 64) - int(i % 64);
      SCOPED_TRACE(testing::Message() << x[i] << " ^ " << n);
      EXPECT_LE(ulps(y[i], std::pow(double(x[i]), n)), 0.51);
      uint32_t base = uint32_t(int32_t(x[i])), power = 1;
      for (int k = 0; k < -n; ++k)
        power *= base;
      if (n > 0) {
        int32_t b = int32_t(base);
        power = uint32_t(b == 1 ? 1 : b != -1 ? 0 : n % 2 ? -1 : 1);
      }
      EXPECT_EQ(z[i], float(int32_t(power)));
    }
  }
}

TEST(Math, special_values) {
  for (const Isa &isa : availableIsas()) {
    SCOPED_TRACE(isa.name);
    auto apply = [&](const char *op, std::vector<float> x) {
      auto kernel = Kernel::compile(program(op), optionsFor(isa), "apply");
      std::vector<float> y(kCount);
      size_t count = x.size();
      x.resize(kCount, 1.0f);
      if (kernel)
        kernel->slot(x.data()).slot(y.data()).run();
      y.resize(count);
      return y;
    };
    float payload;
    uint32_t bits = 0x7fc001ff;
    std::memcpy(&payload, &bits, 4);
    auto exp2 =
        apply("math.exp2", {-INFINITY, -1e30f, -127, 0, 1, INFINITY, NAN, payload, 127.5f, 128});
    EXPECT_EQ(exp2[0], 0);
    EXPECT_EQ(exp2[1], 0);
    EXPECT_EQ(exp2[2], 0);
    EXPECT_EQ(exp2[3], 1);
    EXPECT_EQ(exp2[4], 2);
    EXPECT_EQ(exp2[5], INFINITY);
    EXPECT_TRUE(std::isnan(exp2[6]));
    EXPECT_TRUE(std::isnan(exp2[7]));
    EXPECT_LE(ulps(exp2[8], std::exp2(127.5)), 2);
    EXPECT_EQ(exp2[9], INFINITY);
    auto exp = apply("math.exp", {-INFINITY, 0, INFINITY, NAN, 89, payload});
    EXPECT_EQ(exp[0], 0);
    EXPECT_EQ(exp[1], 1);
    EXPECT_EQ(exp[2], INFINITY);
    EXPECT_TRUE(std::isnan(exp[3]));
    EXPECT_EQ(exp[4], INFINITY);
    EXPECT_TRUE(std::isnan(exp[5]));
    auto log = apply("math.log", {0, -1, INFINITY, NAN, 1, -0.0f});
    EXPECT_EQ(log[0], -INFINITY);
    EXPECT_TRUE(std::isnan(log[1]));
    EXPECT_EQ(log[2], INFINITY);
    EXPECT_TRUE(std::isnan(log[3]));
    EXPECT_EQ(log[4], 0);
    EXPECT_EQ(log[5], -INFINITY);
    auto tanh = apply("math.tanh", {INFINITY, -INFINITY, NAN, 0});
    EXPECT_EQ(tanh[0], 1);
    EXPECT_EQ(tanh[1], -1);
    EXPECT_TRUE(std::isnan(tanh[2]));
    EXPECT_EQ(tanh[3], 0);
  }
}

/// Overflow gives infinity of the right sign, not NaN, from the first argument on that
/// float32 cannot hold the result of.
TEST(Math, overflow_is_infinite) {
  const std::pair<const char *, double (*)(double)> functions[] = {{"math.exp", std::exp},
                                                                   {"math.exp2", std::exp2},
                                                                   {"math.expm1", std::expm1},
                                                                   {"math.sinh", std::sinh},
                                                                   {"math.cosh", std::cosh}};
  for (const Isa &isa : availableIsas())
    for (auto [op, exact] : functions) {
      SCOPED_TRACE(std::string(op) + " " + isa.name);
      auto kernel = Kernel::compile(program(op), optionsFor(isa), "apply");
      ASSERT_TRUE(kernel);
      std::vector<float> x = everyExponent(), y(kCount);
      for (int i = 0; i < 2000; ++i) // 87 to 129 of either sign: where they all overflow
        x[size_t(i)] = float((i % 2 ? 1 : -1) * (87 + 42.0 * i / 2000));
      kernel->slot(x.data()).slot(y.data()).run();
      for (size_t i = 0; i < kCount; ++i) {
        double wanted = exact(x[i]);
        bool atLimit = std::fabs(std::fabs(wanted) / 3.40282347e38 - 1) < 1e-5;
        if (std::isnan(wanted))
          EXPECT_TRUE(std::isnan(y[i])) << x[i];
        else if (std::isinf(float(wanted)) && !atLimit)
          EXPECT_EQ(y[i], float(wanted)) << x[i];
        else if (!atLimit)
          EXPECT_TRUE(std::isfinite(y[i])) << x[i];
      }
    }
}

/// x ^ y over all pairs of values at which C gives a rule, and ordinary ones.
TEST(Math, powers_follow_ieee) {
  const float values[] = {0.0f,     -0.0f,     1,     -1,      2,        -2,        3,
                          -3,       0.5f,      -0.5f, 2.5f,    -2.5f,    100,       -101,
                          16777216, -16777215, 3e38f, -1e-30f, INFINITY, -INFINITY, NAN};
  const char *text = R"(
func.func @apply(%x: memref<?xf32>, %y: memref<?xf32>, %z: memref<?xf32>) attributes {tile.kernel} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %rows = tile.strided_rows %c0, %c64, %c64 : tensor<64x1xi64>
  %s = tile.load %x[%rows] : memref<?xf32>, tensor<64x1xi64> -> tensor<64x64xf32>
  %t = tile.load %z[%rows] : memref<?xf32>, tensor<64x1xi64> -> tensor<64x64xf32>
  %o = tile.map(%s, %t : tensor<64x64xf32>, tensor<64x64xf32>) {
  ^bb0(%a: f32, %b: f32, %r: i32, %c: i32):
    %v = math.powf %a, %b : f32
    tile.yield %v : f32
  } -> tensor<64x64xf32>
  tile.store %o, %y[%rows] : tensor<64x64xf32>, memref<?xf32>, tensor<64x1xi64>
  return
})";
  for (const Isa &isa : availableIsas()) {
    SCOPED_TRACE(isa.name);
    auto kernel = Kernel::compile(text, optionsFor(isa), "apply");
    ASSERT_TRUE(kernel);
    std::vector<float> x(kCount, 1), y(kCount), z(kCount, 1);
    size_t count = 0;
    for (float base : values)
      for (float power : values)
        x[count] = base, z[count++] = power;
    kernel->slot(x.data()).slot(y.data()).slot(z.data()).run();
    for (size_t i = 0; i < count; ++i) {
      SCOPED_TRACE(testing::Message() << x[i] << " ^ " << z[i] << " = " << y[i]);
      float wanted = std::pow(x[i], z[i]);
      bool isTiny = std::fabs(wanted) < 1.2e-38f; // may be flushed to zero
      if (std::isnan(wanted))
        EXPECT_TRUE(std::isnan(y[i]));
      else if (isTiny)
        EXPECT_LE(std::fabs(y[i]), 1.2e-38f);
      else if (std::isinf(wanted))
        EXPECT_EQ(y[i], wanted);
      else
        EXPECT_LE(std::fabs(y[i] / wanted - 1), 2e-5);
      if (!std::isnan(wanted))
        EXPECT_EQ(std::signbit(y[i]), std::signbit(wanted));
    }
  }
}

/// Every f16 and bf16 pattern goes to f32 exactly and back to itself; values between two
/// round to even.
TEST(Math, conversions) {
  for (const Isa &isa : availableIsas())
    for (bool brain : {false, true}) {
      SCOPED_TRACE(std::string(isa.name) + (brain ? " bf16" : " f16"));
      std::string type = brain ? "bf16" : "f16";
      std::string text = R"(
func.func @convert(%x: memref<?xT>, %y: memref<?xf32>, %z: memref<?xT>) attributes {tile.kernel} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %c1024 = arith.constant 1024 : index
  %rows = tile.strided_rows %c0, %c64, %c1024 : tensor<1024x1xi64>
  %t = tile.load %x[%rows] : memref<?xT>, tensor<1024x1xi64> -> tensor<1024x64xf32>
  tile.store %t, %y[%rows] : tensor<1024x64xf32>, memref<?xf32>, tensor<1024x1xi64>
  %h = tile.map(%t : tensor<1024x64xf32>) {
  ^bb0(%a: f32, %r: i32, %c: i32):
    %one = arith.constant 1.00048828125 : f32
    %b = arith.mulf %a, %one : f32
    %v = arith.truncf %b : f32 to T
    tile.yield %v : T
  } -> tensor<1024x64xT>
  tile.store %h, %z[%rows] : tensor<1024x64xT>, memref<?xT>, tensor<1024x1xi64>
  return
})";
      for (size_t at; (at = text.find("xT")) != std::string::npos;)
        text.replace(at + 1, 1, type);
      for (size_t at; (at = text.find("to T")) != std::string::npos;)
        text.replace(at + 3, 1, type);
      for (size_t at; (at = text.find(": T")) != std::string::npos;)
        text.replace(at + 2, 1, type);
      auto kernel = Kernel::compile(text, optionsFor(isa), "convert");
      ASSERT_TRUE(kernel);
      std::vector<uint16_t> x(65536), z(65536);
      std::vector<float> y(65536);
      for (size_t i = 0; i < x.size(); ++i)
        x[i] = i;
      kernel->slot(x.data()).slot(y.data()).slot(z.data()).run();
      size_t wrong = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        float wide = brain ? fromBf16(i) : fromF16(i);
        bool same = std::isnan(wide) ? std::isnan(y[i]) : wide == y[i];
        float scaled = wide * 1.00048828125f;
        // The bf16 instructions flush subnormals, which the spec's tolerance covers.
        if (brain && std::fabs(scaled) < 1.2e-38f)
          continue;
        uint16_t back = brain ? toBf16(scaled) : toF16(scaled);
        float got = brain ? fromBf16(z[i]) : fromF16(z[i]);
        same &= std::isnan(scaled) ? std::isnan(got) : back == z[i];
        wrong += !same;
      }
      EXPECT_EQ(wrong, 0u);
    }
}

} // namespace

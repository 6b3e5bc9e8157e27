// cvt: ranges, roundings, saturation, NaN, narrow formats.
#include "tests/unit/sim/Evaluate.h"

#include <cmath>
#include <gtest/gtest.h>

using namespace llmopt::sim::test;

TEST(Convert, Integers) {
  expectRows("cvt.s64.s32", "b64", {"b32"}, {{{bits(-5)}, bits(int64_t{-5})}});
  expectRows("cvt.u64.u32", "b64", {"b32"}, {{{bits(-5)}, 0xfffffffb}});
  expectRows("cvt.u32.u64", "b32", {"b64"}, {{{0x1234567890abcdef}, 0x90abcdef}});
  expectRows("cvt.s32.s8", "b32", {"b32"}, {{{0x1280}, bits(-128)}});
  expectRows("cvt.u32.u8", "b32", {"b32"}, {{{0x1280}, 0x80}});
  expectRows("cvt.s8.s32", "b32", {"b32"}, {{{0x80}, bits(-128)}});
  expectRows("cvt.u16.u32", "b16", {"b32"}, {{{0x12345}, 0x2345}});
  expectRows("cvt.sat.u8.s32", "b32", {"b32"}, {{{bits(-5)}, 0}, {{300}, 255}, {{77}, 77}});
  expectRows("cvt.sat.s8.s32", "b32", {"b32"}, {{{bits(-500)}, bits(-128)}, {{300}, 127}});
  expectRows("cvt.sat.u32.s64", "b32", {"b64"}, {{{~0ull}, 0}, {{1ull << 40}, 0xffffffff}});
}

TEST(Convert, FloatToInteger) {
  struct Mode {
    std::string name;
    int32_t of25, ofMinus25, of35, of27;
  };
  for (const Mode &mode : {Mode{"rni", 2, -2, 4, 3}, Mode{"rzi", 2, -2, 3, 2},
                           Mode{"rmi", 2, -3, 3, 2}, Mode{"rpi", 3, -2, 4, 3}})
    expectRows("cvt." + mode.name + ".s32.f32", "b32", {"f32"},
               {{{bits(2.5f)}, bits(mode.of25)},
                {{bits(-2.5f)}, bits(mode.ofMinus25)},
                {{bits(3.5f)}, bits(mode.of35)},
                {{bits(2.7f)}, bits(mode.of27)}});
  expectRows("cvt.rzi.s32.f32", "b32", {"f32"},
             {{{bits(3e9f)}, 0x7fffffff},
              {{bits(-3e9f)}, 0x80000000},
              {{kQuiet}, 0},
              {{kInf}, 0x7fffffff},
              {{kNegInf}, 0x80000000}});
  expectRows(
      "cvt.rzi.u32.f32", "b32", {"f32"},
      {{{bits(-1.0f)}, 0}, {{bits(3e9f)}, 3000000000}, {{bits(5e9f)}, 0xffffffff}, {{kQuiet}, 0}});
  expectRows("cvt.rzi.s64.f32", "b64", {"f32"},
             {{{kQuiet}, 0x8000000000000000},
              {{bits(1e30f)}, 0x7fffffffffffffff},
              {{bits(-1.5f)}, ~0ull}});
  expectRows("cvt.rzi.u64.f64", "b64", {"f64"},
             {{{bits(1e19)}, 10000000000000000000ull}, {{bits(-1.0)}, 0}});
  expectRows("cvt.rni.s32.f16", "b32", {"b16"}, {{{0x4100}, 2}, {{0x4300}, 4}});
  expectRows("cvt.rzi.u8.f32", "b32", {"f32"}, {{{bits(300.0f)}, 255}});
  expectRows("cvt.rmi.ftz.s32.f32", "b32", {"f32"}, {{{0x80000001}, 0}});
  expectRows("cvt.rmi.s32.f32", "b32", {"f32"}, {{{0x80000001}, bits(-1)}});
}

TEST(Convert, IntegerToFloat) {
  expectRows("cvt.rn.f32.s32", "f32", {"b32"},
             {{{bits(-3)}, bits(-3.0f)}, {{16777217}, bits(16777216.0f)}});
  expectRows("cvt.rp.f32.s32", "f32", {"b32"}, {{{16777217}, bits(16777218.0f)}});
  expectRows("cvt.rz.f32.s32", "f32", {"b32"}, {{{bits(-16777217)}, bits(-16777216.0f)}});
  expectRows("cvt.rn.f32.u32", "f32", {"b32"}, {{{0xffffffff}, bits(4294967296.0f)}});
  expectRows("cvt.rn.f32.u64", "f32", {"b64"},
             {{{~0ull}, bits(18446744073709551616.0f)}, {{0x8000008000000001}, 0x5f000001}});
  expectRows("cvt.rn.f64.s64", "f64", {"b64"},
             {{{~0ull}, bits(-1.0)}, {{(1ull << 53) + 1}, bits(0x1p53)}});
  expectRows("cvt.rn.f16.s32", "b16", {"b32"}, {{{70000}, 0x7c00}, {{2049}, 0x6800}});
  expectRows("cvt.rn.f32.s8", "f32", {"b32"}, {{{0x1ff}, bits(-1.0f)}});
}

TEST(Convert, FloatToFloat) {
  expectRows("cvt.rni.f32.f32", "f32", {"f32"},
             {{{bits(2.5f)}, bits(2.0f)},
              {{bits(-0.3f)}, kNegZero},
              {{kInf}, kInf},
              {{bits(1e20f)}, bits(1e20f)}});
  expectRows("cvt.rpi.f32.f32", "f32", {"f32"}, {{{bits(0.1f)}, bits(1.0f)}});
  expectRows(
      "cvt.sat.f32.f32", "f32", {"f32"},
      {{{bits(2.0f)}, bits(1.0f)}, {{kQuiet}, 0}, {{bits(-2.0f)}, 0}, {{bits(0.5f)}, bits(0.5f)}});
  expectRows("cvt.f64.f32", "f64", {"f32"}, {{{bits(1.5f)}, bits(1.5)}, {{kTiny}, bits(0x1p-149)}});
  expectRows("cvt.rn.f32.f64", "f32", {"f64"},
             {{{bits(1e300)}, kInf}, {{bits(0.1)}, bits(0.1f)}, {{bits(std::nan(""))}, kNan}});
  expectRows("cvt.rz.f32.f64", "f32", {"f64"}, {{{bits(1e300)}, kLargest}});
  expectRows(
      "cvt.f32.f16", "f32", {"b16"},
      {{{0x3c00}, bits(1.0f)}, {{1}, bits(0x1p-24f)}, {{0xfc00}, kNegInf}, {{0x7e00}, kNan}});
  expectRows("cvt.rn.f16.f32", "b16", {"f32"},
             {{{bits(65504.0f)}, 0x7bff},
              {{bits(65520.0f)}, 0x7c00},
              {{bits(0x1p-25f)}, 0},
              {{bits(0x1.8p-25f)}, 1},
              {{kQuiet}, 0x7fff},
              {{bits(1.00048828125f)}, 0x3c00}});
  expectRows("cvt.rz.f16.f32", "b16", {"f32"},
             {{{bits(65520.0f)}, 0x7bff}, {{bits(-1.0009765f)}, 0xbc00}});
  expectRows("cvt.rp.f16.f32", "b16", {"f32"}, {{{bits(1.0001f)}, 0x3c01}});
  expectRows("cvt.f32.bf16", "f32", {"b16"}, {{{0x3f80}, bits(1.0f)}});
  expectRows(
      "cvt.rn.bf16.f32", "b16", {"f32"},
      {{{0x3f808000}, 0x3f80}, {{0x3f818000}, 0x3f82}, {{kQuiet}, 0x7fff}, {{kLargest}, 0x7f80}});
  expectRows("cvt.rz.bf16.f32", "b16", {"f32"}, {{{0x3f80ffff}, 0x3f80}});
}

TEST(Convert, Pairs) {
  std::vector<std::string> two = {"f32", "f32"};
  // The first source is the upper half.
  expectRows("cvt.rn.bf16x2.f32", "b32", two,
             {{{bits(1.0f), bits(2.0f)}, 0x3f804000}, {{kQuiet, kInf}, 0x7fff7f80}});
  expectRows("cvt.rn.f16x2.f32", "b32", two, {{{bits(1.0f), bits(2.0f)}, 0x3c004000}});
  expectRows("cvt.rz.f16x2.f32", "b32", two, {{{bits(65520.0f), bits(1.0f)}, 0x7bff3c00}});
  expectRows("cvt.rn.relu.bf16x2.f32", "b32", two, {{{bits(-1.0f), bits(2.0f)}, 0x00004000}});
}

TEST(Convert, NarrowFormats) {
  std::vector<std::string> two = {"f32", "f32"};
  expectRows("cvt.rn.satfinite.e4m3x2.f32", "b16", two,
             {{{bits(1.0f), bits(-2.0f)}, 0x38c0},
              {{bits(1000.0f), bits(-1000.0f)}, 0x7efe},
              {{kQuiet, kInf}, 0x7f7e},
              {{bits(0x1p-9f), bits(0x1p-10f)}, 0x0100},
              {{bits(448.0f), bits(464.0f)}, 0x7e7e},
              {{bits(17.0f), bits(19.0f)}, 0x585a}});
  expectRows("cvt.rn.satfinite.e5m2x2.f32", "b16", two,
             {{{bits(1.0f), bits(1e6f)}, 0x3c7b}, {{kQuiet, bits(-0.0f)}, 0x7f80}});
  expectRows("cvt.rn.f16x2.e4m3x2", "b32", {"b16"},
             {{{0x38c0}, 0x3c00c000}, {{0x7f01}, 0x7fff1800}});
  expectRows("cvt.rn.f16x2.e5m2x2", "b32", {"b16"}, {{{0x3cfc}, 0x3c00fc00}});
  expectRows("cvt.rn.satfinite.e4m3x2.f16x2", "b16", {"b32"}, {{{0x3c00c000}, 0x38c0}});
  expectRows("cvt.rna.tf32.f32", "b32", {"f32"},
             {{{0x3f801000}, 0x3f802000}, {{0x3f800fff}, 0x3f800000}, {{0xbf801000}, 0xbf802000}});
  expectRows("cvt.rn.tf32.f32", "b32", {"f32"},
             {{{0x3f801000}, 0x3f800000}, {{0x3f803000}, 0x3f804000}});
}

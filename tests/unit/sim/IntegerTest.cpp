// Integer instructions, by the sections of the PTX ISA.
#include "tests/unit/sim/Evaluate.h"

#include <gtest/gtest.h>

using namespace llmopt::sim::test;

namespace {

constexpr uint64_t kMin32 = 0x80000000, kMax32 = 0x7fffffff;
constexpr uint64_t kMin64 = 0x8000000000000000, kMax64 = 0x7fffffffffffffff;
const std::vector<std::string> kOne32 = {"b32"}, kTwo32 = {"b32", "b32"},
                               kThree32 = {"b32", "b32", "b32"}, kTwo64 = {"b64", "b64"};

} // namespace

TEST(IntegerArithmetic, AddSubWrapAndSaturate) {
  expectRows("add.s32", "b32", kTwo32, {{{kMax32, 1}, kMin32}, {{5, bits(-7)}, bits(-2)}});
  expectRows("add.sat.s32", "b32", kTwo32,
             {{{kMax32, 1}, kMax32}, {{kMin32, bits(-1)}, kMin32}, {{3, 4}, 7}});
  expectRows("sub.sat.s32", "b32", kTwo32, {{{kMin32, 1}, kMin32}, {{kMax32, bits(-1)}, kMax32}});
  expectRows("add.u64", "b64", kTwo64, {{{~0ull, 1}, 0}, {{1ull << 40, 1ull << 40}, 1ull << 41}});
  expectRows("sub.s64", "b64", kTwo64, {{{0, 1}, ~0ull}, {{kMin64, 1}, kMax64}});
  expectRows("sub.u16", "b16", {"b16", "b16"}, {{{0, 1}, 0xffff}, {{9, 2}, 7}});
  expectRows("add.u16x2", "b32", kTwo32, {{{0x0001ffff, 0x00020001}, 0x00030000}});
}

TEST(IntegerArithmetic, Products) {
  expectRows("mul.lo.s32", "b32", kTwo32,
             {{{0x10001, 0x10001}, 0x20001}, {{bits(-3), 7}, bits(-21)}});
  expectRows("mul.hi.s32", "b32", kTwo32, {{{kMin32, kMin32}, 0x40000000}, {{bits(-1), 1}, ~0ull}});
  expectRows("mul.hi.u32", "b32", kTwo32, {{{0xffffffff, 0xffffffff}, 0xfffffffe}});
  expectRows("mul.wide.s32", "b64", kTwo32, {{{bits(-2), 3}, bits(int64_t{-6})}});
  expectRows("mul.wide.u32", "b64", kTwo32, {{{0xffffffff, 2}, 0x1fffffffe}});
  expectRows("mul.wide.s16", "b32", {"b16", "b16"}, {{{0xffff, 5}, bits(-5)}});
  expectRows("mul.hi.u64", "b64", kTwo64, {{{~0ull, ~0ull}, ~0ull - 1}, {{1ull << 63, 4}, 2}});
  expectRows("mul.hi.s64", "b64", kTwo64, {{{~0ull, 5}, ~0ull}});
  expectRows("mul.lo.u64", "b64", kTwo64,
             {{{1ull << 33, 1ull << 33}, 0}, {{3, 1ull << 40}, 3ull << 40}});
  expectRows("mad.lo.s32", "b32", kThree32, {{{7, bits(-6), 2}, bits(-40)}});
  expectRows("mad.hi.u32", "b32", kThree32, {{{0x80000000, 6, 1}, 4}});
  expectRows("mad.wide.u32", "b64", {"b32", "b32", "b64"}, {{{0xffffffff, 16, 1}, 0xffffffff1}});
  expectRows("mad.lo.s64", "b64", {"b64", "b64", "b64"}, {{{3, 5, ~0ull}, 14}});
  expectRows("mul24.lo.u32", "b32", kTwo32, {{{0xff000003, 5}, 15}});
  expectRows("mul24.lo.s32", "b32", kTwo32, {{{0x00ffffff, 5}, bits(-5)}});
  expectRows("sad.u32", "b32", kThree32, {{{3, 10, 100}, 107}, {{10, 3, 100}, 107}});
  expectRows("sad.s32", "b32", kThree32, {{{bits(-3), 10, 100}, 113}});
  expectRows("dp4a.s32.s32", "b32", kThree32, {{{0x01ff02fe, 0x01010101, 10}, 10}});
  expectRows("dp4a.u32.u32", "b32", kThree32, {{{0xffffffff, 0x01010101, 1}, 1021}});
  expectRows("dp4a.u32.s32", "b32", kThree32, {{{0x000000ff, 0x000000ff, 0}, bits(-255)}});
  expectRows("dp2a.lo.s32.s32", "b32", kThree32, {{{0x0002ffff, 0xffff0305, 1}, 2}});
  expectRows("dp2a.hi.s32.s32", "b32", kThree32, {{{0x0002ffff, 0x03050000, 1}, 2}});
}

TEST(IntegerArithmetic, DivisionIsTotal) {
  expectRows("div.s32", "b32", kTwo32,
             {{{bits(-7), 2}, bits(-3)},
              {{7, bits(-2)}, bits(-3)},
              {{kMin32, bits(-1)}, kMin32},
              {{5, 0}, ~0ull}});
  expectRows("rem.s32", "b32", kTwo32,
             {{{bits(-7), 2}, bits(-1)}, {{7, bits(-2)}, 1}, {{kMin32, bits(-1)}, 0}, {{5, 0}, 5}});
  expectRows("div.u32", "b32", kTwo32, {{{0xfffffffe, 2}, kMax32}, {{5, 0}, ~0ull}});
  expectRows("rem.u64", "b64", kTwo64, {{{1000000000001, 10}, 1}, {{9, 0}, 9}});
  expectRows("div.s64", "b64", kTwo64, {{{kMin64, ~0ull}, kMin64}, {{~0ull, 1}, ~0ull}});
}

TEST(IntegerArithmetic, MinMaxNegAbs) {
  expectRows("min.s32", "b32", kTwo32, {{{bits(-1), 1}, bits(-1)}});
  expectRows("min.u32", "b32", kTwo32, {{{bits(-1), 1}, 1}});
  expectRows("max.s64", "b64", kTwo64, {{{~0ull, 1}, 1}});
  expectRows("max.u64", "b64", kTwo64, {{{~0ull, 1}, ~0ull}});
  expectRows("min.s16", "b16", {"b16", "b16"}, {{{0xffff, 1}, 0xffff}});
  expectRows("max.u16x2", "b32", kTwo32, {{{0xffff0001, 0x00010002}, 0xffff0002}});
  expectRows("min.s16x2", "b32", kTwo32, {{{0xffff0001, 0x00010002}, 0xffff0001}});
  expectRows("neg.s32", "b32", kOne32, {{{5}, bits(-5)}, {{kMin32}, kMin32}});
  expectRows("abs.s32", "b32", kOne32, {{{bits(-5)}, 5}, {{kMin32}, kMin32}});
}

TEST(IntegerArithmetic, CarriesAcrossRegisters) {
  // The upper halves of 64-bit results from 32-bit pieces a, b (low), c, e (high).
  std::vector<std::string> four = {"b32", "b32", "b32", "b32"};
  expectRows("{.reg .b32 t; add.cc.u32 t, $a, $b; addc.u32 $d, $c, $e;}", "b32", four,
             {{{~0u, 1, 2, 3}, 6}, {{5, 1, 2, 3}, 5}});
  expectRows("{.reg .b32 t; sub.cc.u32 t, $a, $b; subc.u32 $d, $c, $e;}", "b32", four,
             {{{0, 1, 7, 3}, 3}, {{5, 1, 7, 3}, 4}});
  // A carry that itself makes a carry, and one that is read but not written.
  expectRows("{.reg .b32 t; add.cc.u32 t, $a, $b; addc.cc.u32 t, $c, $e; addc.u32 $d, 0, 0;}",
             "b32", four, {{{~0u, 1, ~0u, 0}, 1}, {{0, 0, ~0u, 0}, 0}});
  expectRows("{.reg .b32 t; mad.lo.cc.u32 t, $a, $b, $c; madc.hi.u32 $d, $a, $b, $e;}", "b32", four,
             {{{0x80000000, 2, 0, 5}, 6}, {{0xffffffff, 0xffffffff, 0xffffffff, 0}, 0xffffffff}});
  expectRows("{.reg .b64 t; add.cc.u64 t, $a, $b; addc.u64 $d, 0, 0;}", "b64", kTwo64,
             {{{~0ull, 1}, 1}, {{1, 1}, 0}});
}

TEST(Bits, LogicOnRegistersAndPredicates) {
  expectRows("and.b32", "b32", kTwo32, {{{0xf0f0, 0xff00}, 0xf000}});
  expectRows("or.b64", "b64", kTwo64, {{{1, 1ull << 63}, kMin64 | 1}});
  expectRows("xor.b16", "b16", {"b16", "b16"}, {{{0xffff, 0x00ff}, 0xff00}});
  expectRows("not.b32", "b32", kOne32, {{{0xf}, 0xfffffff0}});
  expectRows("cnot.b32", "b32", kOne32, {{{0}, 1}, {{7}, 0}});
  std::vector<std::string> two = {"pred", "pred"};
  expectRows("and.pred", "pred", two, {{{1, 1}, 1}, {{1, 0}, 0}});
  expectRows("or.pred", "pred", two, {{{0, 1}, 1}, {{0, 0}, 0}});
  expectRows("xor.pred", "pred", two, {{{1, 1}, 0}, {{1, 0}, 1}});
  expectRows("not.pred", "pred", {"pred"}, {{{1}, 0}, {{0}, 1}});
  expectRows("and.pred $d, $a, !$b;", "pred", two, {{{1, 0}, 1}, {{1, 1}, 0}});
  for (uint64_t table : {0xe8ull, 0x96ull, 0x1full, 0xfeull}) {
    uint64_t a = 0xf0, b = 0xcc, c = 0xaa, expected = 0;
    for (int i = 0; i < 8; ++i)
      expected |= (table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1) << i;
    expectRows("lop3.b32 $d, $a, $b, $c, " + std::to_string(table) + ";", "b32", kThree32,
               {{{a, b, c}, expected | (table & 1 ? 0xffffff00 : 0)}});
  }
}

TEST(Bits, ShiftsClampTheirAmount) {
  expectRows("shl.b32", "b32", kTwo32, {{{1, 31}, kMin32}, {{1, 32}, 0}, {{3, 0}, 3}});
  expectRows("shr.u32", "b32", kTwo32, {{{kMin32, 31}, 1}, {{kMin32, 40}, 0}});
  expectRows("shr.s32", "b32", kTwo32,
             {{{kMin32, 31}, ~0ull}, {{kMin32, 99}, ~0ull}, {{64, 3}, 8}});
  expectRows("shr.s16", "b16", {"b16", "b32"}, {{{0x8000, 15}, 0xffff}, {{0x8000, 99}, 0xffff}});
  expectRows("shl.b64", "b64", {"b64", "b32"}, {{{1, 63}, kMin64}, {{1, 64}, 0}});
  expectRows("shr.s64", "b64", {"b64", "b32"}, {{{kMin64, 63}, ~0ull}});
  expectRows("shf.l.wrap.b32", "b32", kThree32,
             {{{0x89abcdef, 0x01234567, 8}, 0x23456789}, {{0xf0000000, 1, 36}, 0x1f}});
  expectRows("shf.r.wrap.b32", "b32", kThree32, {{{0x89abcdef, 0x01234567, 8}, 0x6789abcd}});
  expectRows("shf.l.clamp.b32", "b32", kThree32, {{{0x89abcdef, 0x01234567, 99}, 0x89abcdef}});
  expectRows("shf.r.clamp.b32", "b32", kThree32, {{{0x89abcdef, 0x01234567, 32}, 0x01234567}});
}

TEST(Bits, Fields) {
  expectRows("popc.b32", "b32", kOne32, {{{0xf00f}, 8}});
  expectRows("popc.b64", "b32", {"b64"}, {{{~0ull}, 64}});
  expectRows("clz.b32", "b32", kOne32, {{{1}, 31}, {{0}, 32}});
  expectRows("clz.b64", "b32", {"b64"}, {{{1}, 63}, {{0}, 64}});
  expectRows("brev.b32", "b32", kOne32, {{{1}, kMin32}, {{0x0f}, 0xf0000000}});
  expectRows("bfind.u32", "b32", kOne32, {{{0x10}, 4}, {{0}, ~0ull}});
  expectRows("bfind.s32", "b32", kOne32, {{{bits(-1)}, ~0ull}, {{bits(-17)}, 4}});
  expectRows("bfind.shiftamt.u32", "b32", kOne32, {{{0x10}, 27}});
  expectRows("bfe.u32", "b32", kThree32,
             {{{0xabcd1234, 8, 8}, 0x12},
              {{0xabcd1234, 0, 32}, 0xabcd1234},
              {{~0ull, 40, 4}, 0},
              {{~0ull, 28, 8}, 0xf},
              {{~0ull, 3, 0}, 0}});
  expectRows("bfe.s32", "b32", kThree32,
             {{{0x80, 4, 4}, bits(-8)},
              {{kMin32, 28, 8}, bits(-8)},
              {{kMin32, 40, 4}, ~0ull},
              {{~0ull, 3, 0}, 0}});
  expectRows("bfe.u64", "b64", {"b64", "b32", "b32"}, {{{0xabcdull << 40, 40, 16}, 0xabcd}});
  std::vector<std::string> insert = {"b32", "b32", "b32", "b32"};
  expectRows("bfi.b32", "b32", insert,
             {{{0xff, 0, 8, 4}, 0xf00},
              {{0, ~0ull, 8, 8}, 0xffff00ff},
              {{7, 9, 40, 4}, 9},
              {{7, 9, 0, 0}, 9},
              {{0x12345678, 0, 0, 32}, 0x12345678}});
  expectRows("bmsk.clamp.b32", "b32", kTwo32, {{{4, 8}, 0xff0}, {{32, 1}, 0}, {{0, 99}, ~0ull}});
  expectRows("bmsk.wrap.b32", "b32", kTwo32, {{{36, 8}, 0xff0}});
}

TEST(Bits, Permute) {
  expectRows("prmt.b32", "b32", kThree32,
             {{{0x33221100, 0x77665544, 0x5410}, 0x55441100},
              {{0x33221100, 0x77665544, 0x7531}, 0x77553311},
              {{0x80, 0, 0x0008}, 0x808080ff}});
  expectRows("prmt.b32.f4e", "b32", kThree32, {{{0x33221100, 0x77665544, 1}, 0x44332211}});
  expectRows("prmt.b32.b4e", "b32", kThree32, {{{0x33221100, 0x77665544, 1}, 0x66770011}});
  expectRows("prmt.b32.rc8", "b32", kThree32, {{{0x33221100, 0, 2}, 0x22222222}});
  expectRows("prmt.b32.ecl", "b32", kThree32, {{{0x33221100, 0, 1}, 0x33221111}});
  expectRows("prmt.b32.ecr", "b32", kThree32, {{{0x33221100, 0, 1}, 0x11111100}});
  expectRows("prmt.b32.rc16", "b32", kThree32, {{{0x33221100, 0, 1}, 0x33223322}});
}

TEST(Moves, PackAndUnpack) {
  expectRows("mov.b32 $d, {$a, $b};", "b32", {"b16", "b16"}, {{{0x1234, 0xabcd}, 0xabcd1234}});
  expectRows("mov.b64 $d, {$a, $b};", "b64", kTwo32, {{{1, 2}, 0x200000001}});
  expectRows("{.reg .b16 lo, hi; mov.b32 {lo, hi}, $a; mov.b16 $d, hi;}", "b16", kOne32,
             {{{0xabcd1234}, 0xabcd}});
  expectRows("{.reg .b32 hi; mov.b64 {_, hi}, $a; mov.b32 $d, hi;}", "b32", {"b64"},
             {{{0x500000003}, 5}});
  expectRows("mov.b32 $d, {0, $a};", "b32", {"b16"}, {{{0x3f80}, 0x3f800000}});
  expectRows("mov.u32 $d, 0xFFFFFFFFU;", "b32", {}, {{{}, 0xffffffff}});
  expectRows("mov.f32 $d, 0f3F800000;", "f32", {}, {{{}, bits(1.0f)}});
  expectRows("mov.f32 $d, -1.5;", "f32", {}, {{{}, bits(-1.5f)}});
  expectRows("mov.f64 $d, 0d4000000000000000;", "f64", {}, {{{}, bits(2.0)}});
}

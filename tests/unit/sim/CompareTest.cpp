// setp, set, selp, slct and predication.
#include "tests/unit/sim/Evaluate.h"

#include <gtest/gtest.h>

using namespace llmopt::sim::test;

namespace {
const std::vector<std::string> kInts = {"b32", "b32"}, kFloats = {"f32", "f32"};
} // namespace

TEST(Compare, Integers) {
  expectRows("setp.lt.s32", "pred", kInts, {{{bits(-1), 0}, 1}, {{0, 0}, 0}});
  expectRows("setp.lt.u32", "pred", kInts, {{{bits(-1), 0}, 0}, {{0, 1}, 1}});
  expectRows("setp.hs.u32", "pred", kInts, {{{bits(-1), 0}, 1}});
  expectRows("setp.ne.b32", "pred", kInts, {{{1, 2}, 1}, {{2, 2}, 0}});
  expectRows("setp.ge.s64", "pred", {"b64", "b64"}, {{{~0ull, 0}, 0}});
  expectRows("setp.gt.u64", "pred", {"b64", "b64"}, {{{~0ull, 0}, 1}});
  expectRows("setp.le.s16", "pred", {"b16", "b16"},
             {{{0x8000, 0}, 1}, {{0xffff8000 & 0xffff, 0x8000}, 1}});
}

TEST(Compare, FloatsWithNanAndZeros) {
  struct Name {
    const char *name;
    uint64_t less, equal, greater, unordered;
  };
  constexpr Name kNames[] = {{"eq", 0, 1, 0, 0},  {"ne", 1, 0, 1, 0},  {"lt", 1, 0, 0, 0},
                             {"le", 1, 1, 0, 0},  {"gt", 0, 0, 1, 0},  {"ge", 0, 1, 1, 0},
                             {"equ", 0, 1, 0, 1}, {"neu", 1, 0, 1, 1}, {"ltu", 1, 0, 0, 1},
                             {"leu", 1, 1, 0, 1}, {"gtu", 0, 0, 1, 1}, {"geu", 0, 1, 1, 1},
                             {"num", 1, 1, 1, 0}, {"nan", 0, 0, 0, 1}};
  for (const Name &n : kNames) {
    std::string op = std::string("setp.") + n.name;
    expectRows(op + ".f32", "pred", kFloats,
               {{{bits(1.0f), bits(2.0f)}, n.less},
                {{bits(0.0f), kNegZero}, n.equal},
                {{kInf, kNegInf}, n.greater},
                {{kQuiet, bits(1.0f)}, n.unordered},
                {{kQuiet, kQuiet}, n.unordered},
                {{kTiny, bits(0.0f)}, n.greater}});
    expectRows(op + ".ftz.f32", "pred", kFloats, {{{kTiny, bits(0.0f)}, n.equal}});
    expectRows(op + ".f64", "pred", {"f64", "f64"},
               {{{bits(-1.0), bits(1.0)}, n.less}, {{bits(1.0), bits(1.0)}, n.equal}});
    expectRows(
        op + ".f16", "pred", {"b16", "b16"},
        {{{0x3c00, 0x4000}, n.less}, {{0x0000, 0x8000}, n.equal}, {{0x7e00, 0}, n.unordered}});
    expectRows(op + ".bf16", "pred", {"b16", "b16"}, {{{0x4000, 0x3f80}, n.greater}});
  }
}

TEST(Compare, CombinesWithAPredicate) {
  std::vector<std::string> sources = {"b32", "b32", "pred"};
  expectRows("setp.eq.and.s32", "pred", sources, {{{1, 1, 1}, 1}, {{1, 1, 0}, 0}});
  expectRows("setp.eq.or.s32", "pred", sources, {{{1, 2, 1}, 1}, {{1, 2, 0}, 0}});
  expectRows("setp.eq.xor.s32", "pred", sources, {{{1, 1, 1}, 0}, {{1, 2, 1}, 1}});
  expectRows("setp.eq.and.s32 $d, $a, $b, !$c;", "pred", sources, {{{1, 1, 0}, 1}});
  // The second result combines the opposite comparison with the same predicate.
  expectRows("{.reg .pred p; setp.eq.and.s32 p|$d, $a, $b, $c;}", "pred", sources,
             {{{1, 2, 1}, 1}, {{1, 2, 0}, 0}, {{1, 1, 1}, 0}});
}

TEST(Compare, PairsOfHalves) {
  expectRows("{.reg .pred q; setp.lt.f16x2 $d|q, $a, $b;}", "pred", kInts,
             {{{0x40003c00, 0x40004000}, 1}});
  expectRows("{.reg .pred p; setp.lt.f16x2 p|$d, $a, $b;}", "pred", kInts,
             {{{0x40003c00, 0x40004000}, 0}});
  expectRows("set.eq.f16x2.f16x2", "b32", kInts, {{{0x40003c00, 0x40004000}, 0x3c000000}});
  expectRows("set.lt.bf16x2.bf16x2", "b32", kInts, {{{0x40003f80, 0x40004000}, 0x3f80}});
}

TEST(Compare, SetSelectSlct) {
  expectRows("set.gt.u32.s32", "b32", kInts, {{{5, bits(-5)}, ~0ull}, {{0, 0}, 0}});
  expectRows("set.nan.f32.f32", "f32", kFloats, {{{kQuiet, 0}, bits(1.0f)}, {{0, 0}, 0}});
  expectRows("selp.b32", "b32", {"b32", "b32", "pred"}, {{{1, 2, 1}, 1}, {{1, 2, 0}, 2}});
  expectRows("selp.f64", "f64", {"f64", "f64", "pred"}, {{{bits(1.0), bits(2.0), 0}, bits(2.0)}});
  expectRows("slct.u32.s32", "b32", {"b32", "b32", "b32"}, {{{1, 2, 0}, 1}, {{1, 2, bits(-1)}, 2}});
  expectRows("slct.u32.f32", "b32", {"b32", "b32", "f32"},
             {{{1, 2, kNegZero}, 1},
              {{1, 2, kQuiet}, 2},
              {{1, 2, bits(-1.0f)}, 2},
              {{1, 2, 0x80000001}, 2}});
  expectRows("slct.ftz.u32.f32", "b32", {"b32", "b32", "f32"}, {{{1, 2, 0x80000001}, 1}});
}

TEST(Compare, GuardedInstructionKeepsOtherLanes) {
  expectRows("mov.b32 $d, $a; @$c mov.b32 $d, $b;", "b32", {"b32", "b32", "pred"},
             {{{1, 2, 1}, 2}, {{1, 2, 0}, 1}});
  expectRows("mov.b32 $d, $a; @!$c mov.b32 $d, $b;", "b32", {"b32", "b32", "pred"},
             {{{1, 2, 1}, 1}, {{1, 2, 0}, 2}});
}

// mma.sync, ldmatrix, stmatrix, movmatrix. Fragments are filled here from the
// figures of the PTX ISA, written down as they stand there: groupID is the lane
// divided by 4, threadID_in_group the lane modulo 4.
#include "runtime/base/Half.h"

#include "tests/unit/sim/Support.h"

#include <cmath>
#include <numeric>
#include <random>

using namespace llmopt::sim;
using namespace llmopt::sim::test;
using namespace llmopt;

namespace {

struct Place {
  uint32_t row, col;
};

// "a_i" of the ISA: element i of lane l.
Place placeA16(uint32_t lane, uint32_t i, uint32_t k) { // .f16, .bf16
  uint32_t row = lane / 4 + ((k == 16 ? (i < 2 || (i >= 4 && i < 6)) : i < 2) ? 0 : 8);
  uint32_t col = lane % 4 * 2 + (i & 1) + (i >= 4 ? 8 : 0);
  return {row, col};
}
Place placeB16(uint32_t lane, uint32_t i) {
  return {lane % 4 * 2 + (i & 1) + (i >= 2 ? 8 : 0), lane / 4};
}
Place placeA32(uint32_t lane, uint32_t i) { // .tf32
  return {lane / 4 + (i & 1 ? 8 : 0), lane % 4 + (i >= 2 ? 4 : 0)};
}
Place placeB32(uint32_t lane, uint32_t i) { return {lane % 4 + (i ? 4 : 0), lane / 4}; }
Place placeA8(uint32_t lane, uint32_t i, uint32_t k) { // .s8, .e4m3, ...
  bool upper = k == 32 ? (i < 4 || (i >= 8 && i < 12)) : i < 4;
  return {lane / 4 + (upper ? 0 : 8), lane % 4 * 4 + (i & 3) + (i >= 8 ? 16 : 0)};
}
Place placeB8(uint32_t lane, uint32_t i) {
  return {lane % 4 * 4 + (i & 3) + (i >= 4 ? 16 : 0), lane / 4};
}
Place placeC(uint32_t lane, uint32_t i) {
  return {lane / 4 + (i < 2 ? 0 : 8), lane % 4 * 2 + (i & 1)};
}

/// What a test matrix product is made of.
struct Product {
  std::string shape, types;
  uint32_t k = 16, elementBytes = 2;
  bool half = false;          ///< C and D are f16
  std::vector<uint32_t> a, b; ///< element bits: 16 x k and k x 8
  std::vector<uint32_t> c, d; ///< bits of 16 x 8
  Counters counters;

  uint32_t registersA() const { return 16 * k * elementBytes / 128; }
  uint32_t registersB() const { return k * 8 * elementBytes / 128; }

  Place placeA(uint32_t lane, uint32_t i) const {
    return elementBytes == 4   ? placeA32(lane, i)
           : elementBytes == 2 ? placeA16(lane, i, k)
                               : placeA8(lane, i, k);
  }
  Place placeB(uint32_t lane, uint32_t i) const {
    return elementBytes == 4   ? placeB32(lane, i)
           : elementBytes == 2 ? placeB16(lane, i)
                               : placeB8(lane, i);
  }

  void execute() {
    uint32_t per = 4 / elementBytes, count = half ? 2 : 4;
    uint32_t inputs = registersA() + registersB() + count;
    std::vector<uint32_t> in(32 * inputs), out(32 * 4);
    for (uint32_t lane = 0; lane < 32; ++lane) {
      uint32_t *regs = &in[lane * inputs];
      for (uint32_t i = 0; i < registersA() * per; ++i) {
        Place p = placeA(lane, i);
        regs[i / per] |= a[p.row * k + p.col] << 8 * elementBytes * (i % per);
      }
      regs += registersA();
      for (uint32_t i = 0; i < registersB() * per; ++i) {
        Place p = placeB(lane, i);
        regs[i / per] |= b[p.row * 8 + p.col] << 8 * elementBytes * (i % per);
      }
      regs += registersB();
      for (uint32_t i = 0; i < 4; ++i) {
        Place p = placeC(lane, i);
        regs[half ? i / 2 : i] |= c[p.row * 8 + p.col] << (half ? 16 * (i % 2) : 0);
      }
    }
    RunResult result = runKernel(kernelText(text(inputs, count)), in, out);
    ASSERT_TRUE(result.status.ok()) << result.status.toString();
    counters = result.counters;
    d.assign(128, 0);
    for (uint32_t lane = 0; lane < 32; ++lane)
      for (uint32_t i = 0; i < 4; ++i) {
        Place p = placeC(lane, i);
        uint32_t cell = out[lane * 4 + (half ? i / 2 : i)];
        d[p.row * 8 + p.col] = half ? cell >> 16 * (i % 2) & 0xffff : cell;
      }
  }

  std::string text(uint32_t inputs, uint32_t count) const {
    std::string body = fmt::format(
        "  mad.wide.u32 %d2, %r0, {}, %d0;\n  mad.wide.u32 %d3, %r0, 16, %d1;\n", 4 * inputs);
    for (uint32_t i = 0; i < inputs; ++i)
      body += fmt::format("  ld.global.b32 %r{}, [%d2+{}];\n", 10 + i, 4 * i);
    auto list = [&](uint32_t first, uint32_t n) {
      std::string s = "{";
      for (uint32_t i = 0; i < n; ++i)
        s += fmt::format("{}%r{}", i ? ", " : "", first + i);
      return s + "}";
    };
    uint32_t b = 10 + registersA(), c = b + registersB();
    body +=
        fmt::format("  mma.sync.aligned.{}.row.col.{} {}, {}, {}, {};\n", shape, types,
                    list(40, count), list(10, registersA()), list(b, registersB()), list(c, count));
    for (uint32_t i = 0; i < count; ++i)
      body += fmt::format("  st.global.b32 [%d3+{}], %r{};\n", 4 * i, 40 + i);
    return body;
  }
};

/// Small integers, exact in every format and sum.
int32_t small(std::mt19937 &random) { return static_cast<int32_t>(random() % 9) - 4; }

uint32_t f32Bits(float x) { return std::bit_cast<uint32_t>(x); }
uint32_t f16Bits(float x) { return runtime::f32ToF16(x); }
uint32_t bf16Bits(float x) { return runtime::f32ToBf16(x); }
/// Of integers from -4 to 4.
uint32_t e4m3Bits(float x) {
  constexpr uint32_t kMagnitudes[] = {0, 0x38, 0x40, 0x44, 0x48};
  return kMagnitudes[static_cast<int>(std::fabs(x))] | (x < 0 ? 0x80 : 0);
}
uint32_t e5m2Bits(float x) {
  constexpr uint32_t kMagnitudes[] = {0, 0x3c, 0x40, 0x42, 0x44};
  return kMagnitudes[static_cast<int>(std::fabs(x))] | (x < 0 ? 0x80 : 0);
}
uint32_t byteBits(float x) { return static_cast<uint8_t>(static_cast<int>(x)); }
uint32_t intBits(float x) { return static_cast<uint32_t>(static_cast<int>(x)); }

using ToBits = uint32_t (*)(float);

void checkProduct(const std::string &shape, const std::string &types, uint32_t k, uint32_t bytes,
                  ToBits toA, ToBits toB, ToBits toC, bool half = false) {
  SCOPED_TRACE(shape + "." + types);
  std::mt19937 random(5);
  Product p;
  p.shape = shape;
  p.types = types;
  p.k = k;
  p.elementBytes = bytes;
  p.half = half;
  std::vector<int32_t> a(16 * k), b(k * 8), c(128);
  for (auto *matrix : {&a, &b, &c})
    for (int32_t &x : *matrix)
      x = small(random);
  for (int32_t x : a)
    p.a.push_back(toA(static_cast<float>(x)));
  for (int32_t x : b)
    p.b.push_back(toB(static_cast<float>(x)));
  for (int32_t x : c)
    p.c.push_back(toC(static_cast<float>(x)));
  p.execute();
  ASSERT_EQ(p.d.size(), 128u);
  for (uint32_t m = 0; m < 16; ++m)
    for (uint32_t n = 0; n < 8; ++n) {
      int32_t sum = c[m * 8 + n];
      for (uint32_t i = 0; i < k; ++i)
        sum += a[m * k + i] * b[i * 8 + n];
      EXPECT_EQ(p.d[m * 8 + n], toC(static_cast<float>(sum))) << m << ", " << n;
    }
  EXPECT_EQ(p.counters.mma, 1u);
  EXPECT_EQ(p.counters.mmaMultiplyAdds, 16u * 8 * k);
}

} // namespace

TEST(Mma, EveryShapeMultipliesByTheFiguresOfTheIsa) {
  checkProduct("m16n8k16", "f32.bf16.bf16.f32", 16, 2, bf16Bits, bf16Bits, f32Bits);
  checkProduct("m16n8k8", "f32.bf16.bf16.f32", 8, 2, bf16Bits, bf16Bits, f32Bits);
  checkProduct("m16n8k16", "f32.f16.f16.f32", 16, 2, f16Bits, f16Bits, f32Bits);
  checkProduct("m16n8k8", "f32.f16.f16.f32", 8, 2, f16Bits, f16Bits, f32Bits);
  checkProduct("m16n8k16", "f16.f16.f16.f16", 16, 2, f16Bits, f16Bits, f16Bits, true);
  checkProduct("m16n8k8", "f16.f16.f16.f16", 8, 2, f16Bits, f16Bits, f16Bits, true);
  checkProduct("m16n8k8", "f32.tf32.tf32.f32", 8, 4, f32Bits, f32Bits, f32Bits);
  checkProduct("m16n8k4", "f32.tf32.tf32.f32", 4, 4, f32Bits, f32Bits, f32Bits);
  checkProduct("m16n8k32", "f32.e4m3.e4m3.f32", 32, 1, e4m3Bits, e4m3Bits, f32Bits);
  checkProduct("m16n8k32", "f32.e4m3.e5m2.f32", 32, 1, e4m3Bits, e5m2Bits, f32Bits);
  checkProduct("m16n8k32", "f16.e5m2.e4m3.f16", 32, 1, e5m2Bits, e4m3Bits, f16Bits, true);
  checkProduct("m16n8k32.kind::f8f6f4", "f32.e4m3.e4m3.f32", 32, 1, e4m3Bits, e4m3Bits, f32Bits);
  checkProduct("m16n8k32", "s32.s8.s8.s32", 32, 1, byteBits, byteBits, intBits);
  checkProduct("m16n8k16", "s32.s8.s8.s32", 16, 1, byteBits, byteBits, intBits);
}

TEST(Mma, SpecialValues) {
  Product p;
  p.shape = "m16n8k16";
  p.types = "f32.f16.f16.f32";
  p.a.assign(256, 0);
  p.b.assign(128, 0x3c00);
  p.c.assign(128, f32Bits(1.0f));
  p.a[0] = 0x7c00;  // row 0: infinity
  p.a[16] = 0x7e00; // row 1: NaN
  p.a[32] = 0x0001; // row 2: a subnormal counts
  p.a[48] = 0x7c00; // row 3: infinity - infinity
  p.a[49] = 0xfc00;
  p.execute();
  EXPECT_EQ(p.d[0], 0x7f800000u);
  EXPECT_EQ(p.d[8], 0x7fffffffu);
  EXPECT_EQ(p.d[16], f32Bits(1.0f + 0x1p-24f));
  EXPECT_EQ(p.d[24], 0x7fffffffu);
  EXPECT_EQ(p.d[32], f32Bits(1.0f));

  // tf32 does not see the lower 13 bits.
  Product t;
  t.shape = "m16n8k8";
  t.types = "f32.tf32.tf32.f32";
  t.k = 8;
  t.elementBytes = 4;
  t.a.assign(128, 0x3f801fff);
  t.b.assign(64, f32Bits(1.0f));
  t.c.assign(128, 0);
  t.execute();
  EXPECT_EQ(t.d[5], f32Bits(8.0f));

  Product s;
  s.shape = "m16n8k32";
  s.types = "satfinite.s32.s8.u8.s32";
  s.k = 32;
  s.elementBytes = 1;
  s.a.assign(512, 127);
  s.b.assign(256, 255);
  s.c.assign(128, 0x7fffffff);
  s.execute();
  EXPECT_EQ(s.d[0], 0x7fffffffu);
}

TEST(Mma, NeedsAllLanes) {
  std::vector<uint32_t> in(4), out(4);
  std::string mma = "  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1,%r2,%r3,%r4}, "
                    "{%r5,%r6,%r7,%r8}, {%r9,%r10}, {%r1,%r2,%r3,%r4};";
  RunResult result = runKernel(kernelText(mma), in, out, {16, 1, 1}, {1, 1, 1}, 0, kRelaxed);
  EXPECT_EQ(result.fault.kind, FaultKind::DivergentSync) << result.status.toString();
  result = runKernel(kernelText("  setp.lt.u32 %p1, %r0, 8;\n  @%p1 bra L;\n" + mma + "\nL:"), in,
                     out, {32, 1, 1}, {1, 1, 1}, 0, kRelaxed);
  EXPECT_EQ(result.fault.kind, FaultKind::DivergentSync) << result.status.toString();
}

namespace {

/// Four 8x8 matrices in shared memory, element (m, r, c) = 100 m + 10 r + c;
/// matrix rows are 48 bytes apart.
const char *kFill = R"(
  mov.u32 %r20, s;
  mov.u32 %r1, 0;
FILL:
  add.u32 %r2, %r0, %r1;
  shr.u32 %r3, %r2, 6;
  bfe.u32 %r4, %r2, 3, 3;
  and.b32 %r5, %r2, 7;
  mad.lo.u32 %r6, %r3, 100, %r5;
  mad.lo.u32 %r6, %r4, 10, %r6;
  bfe.u32 %r7, %r2, 3, 5;
  mul.lo.u32 %r7, %r7, 48;
  shl.b32 %r5, %r5, 1;
  add.u32 %r7, %r7, %r5;
  st.shared.u16 [%r7], %r6;
  add.u32 %r1, %r1, 32;
  setp.lt.u32 %p1, %r1, 256;
  @%p1 bra FILL;
  bar.warp.sync -1;
  mul.lo.u32 %r8, %r0, 48;
  mad.wide.u32 %d3, %r0, 16, %d1;
)";

std::vector<uint32_t> withMatrices(const std::string &body) {
  std::vector<uint32_t> in(4), out(128);
  RunResult result = runKernel(kernelText(kFill + body, ".shared .align 16 .b8 s[4096];"), in, out);
  EXPECT_TRUE(result.status.ok()) << result.status.toString();
  return out;
}

uint32_t pair(uint32_t low, uint32_t high) { return high << 16 | low; }

} // namespace

TEST(MatrixMove, LoadsRowsToLanes) {
  auto out =
      withMatrices("  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10,%r11,%r12,%r13}, [%r8];\n"
                   "  st.global.v4.b32 [%d3], {%r10,%r11,%r12,%r13};");
  auto trans = withMatrices(
      "  ldmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 {%r10,%r11,%r12,%r13}, [%r8];\n"
      "  st.global.v4.b32 [%d3], {%r10,%r11,%r12,%r13};");
  for (uint32_t l = 0; l < 32; ++l)
    for (uint32_t m = 0; m < 4; ++m) {
      uint32_t row = l / 4, col = l % 4 * 2;
      EXPECT_EQ(out[4 * l + m], pair(100 * m + 10 * row + col, 100 * m + 10 * row + col + 1));
      EXPECT_EQ(trans[4 * l + m], pair(100 * m + 10 * col + row, 100 * m + 10 * (col + 1) + row));
    }
}

TEST(MatrixMove, X2ReadsAddressesOfSixteenLanes) {
  auto out = withMatrices("  setp.ge.u32 %p2, %r0, 16;\n  @%p2 mov.u32 %r8, 1000000;\n"
                          "  ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r10,%r11}, [%r8];\n"
                          "  st.global.v2.b32 [%d3], {%r10,%r11};");
  EXPECT_EQ(out[4 * 5 + 1], pair(112, 113));
}

TEST(MatrixMove, StoreIsTheInverseOfLoad) {
  for (std::string trans : {"", ".trans"}) {
    auto out =
        withMatrices("  ldmatrix.sync.aligned.m8n8.x4" + trans +
                     ".shared.b16 {%r10,%r11,%r12,%r13}, [%r8];\n"
                     "  add.u32 %r9, %r8, 2048;\n"
                     "  stmatrix.sync.aligned.m8n8.x4" +
                     trans +
                     ".shared.b16 [%r9], {%r10,%r11,%r12,%r13};\n"
                     "  bar.warp.sync -1;\n  ld.shared.v4.b32 {%r10,%r11,%r12,%r13}, [%r9];\n"
                     "  st.global.v4.b32 [%d3], {%r10,%r11,%r12,%r13};");
    for (uint32_t l = 0; l < 32; ++l)
      for (uint32_t i = 0; i < 4; ++i)
        EXPECT_EQ(out[4 * l + i], pair(100 * (l / 8) + 10 * (l % 8) + 2 * i,
                                       100 * (l / 8) + 10 * (l % 8) + 2 * i + 1));
  }
}

TEST(MatrixMove, Transposes) {
  auto out = withMatrices(
      "  ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, [%r8];\n"
      "  movmatrix.sync.aligned.m8n8.trans.b16 %r11, %r10;\n  st.global.b32 [%d3], %r11;");
  for (uint32_t l = 0; l < 32; ++l)
    EXPECT_EQ(out[4 * l], pair(10 * (l % 4 * 2) + l / 4, 10 * (l % 4 * 2 + 1) + l / 4));
}

TEST(MatrixMove, CountsBankConflicts) {
  // Rows 128 bytes apart lie in the same banks; 144 bytes apart they do not.
  for (uint32_t stride : {128u, 144u}) {
    std::vector<uint32_t> in(4), out(4);
    RunResult result = runKernel(
        kernelText(
            fmt::format("  mov.u32 %r20, s;\n  mul.lo.u32 %r1, %r0, {};\n"
                        "  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r2,%r3,%r4,%r5}}, [%r1];",
                        stride),
            ".shared .align 16 .b8 s[8192];"),
        in, out, {32, 1, 1}, {1, 1, 1}, 0, kRelaxed);
    ASSERT_TRUE(result.status.ok()) << result.status.toString();
    EXPECT_EQ(result.counters.sharedIdeal, 4u);
    EXPECT_EQ(result.counters.sharedWavefronts, stride == 128 ? 32u : 4u);
  }
}

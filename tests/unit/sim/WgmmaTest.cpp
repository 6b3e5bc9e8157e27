// wgmma (PTX ISA 9.7.15). Where elements lie is written down here from the figures of
// the ISA and the canonical layouts of its section on matrix descriptors, not computed as
// the simulator does.
#include "runtime/base/Half.h"

#include "tests/unit/sim/AsyncSupport.h"

#include <cmath>
#include <random>

using namespace llmopt::sim;
using namespace llmopt::sim::test;
using namespace llmopt;

namespace {

enum class Layout { None, B128, B64, B32 }; // numbered as in a descriptor

uint32_t rowBytes(Layout layout) {
  constexpr uint32_t kBytes[] = {16, 128, 64, 32};
  return kBytes[static_cast<int>(layout)];
}

/// One operand in shared memory.
struct Operand {
  Layout layout = Layout::B128;
  bool transposed = false;
  uint32_t base = 0;
  uint32_t leading = 0, stride = 0; ///< bytes

  uint64_t descriptor() const {
    return base >> 4 | uint64_t{leading >> 4} << 16 | uint64_t{stride >> 4} << 32 |
           static_cast<uint64_t>(layout) << 62;
  }
  /// Byte of the element of row r (m or n) and column k, with elements of `bytes`. The
  /// canonical layouts, in units of T = 16 bytes:
  ///   k contiguous, none:  ((8,m),(T,2)) : ((1T,SBO),(1,LBO))
  ///   k contiguous, 32 B...: ((8,m),(T,2)) : ((2T|4T|8T,SBO),(1,T))
  ///   rows contiguous, none: ((T,1,m),(8,k)) : ((1,T,SBO),(1T,LBO))
  ///   rows contiguous, 32 B...: ((T,2|4|8,m),(8,k)) : ((1,T,LBO),(2T|4T|8T,SBO))
  uint32_t at(uint32_t r, uint32_t k, uint32_t bytes) const {
    uint32_t t = 16 / bytes, span = rowBytes(layout), across = span / 16, offset = 0;
    if (!transposed)
      offset = r % 8 * span + r / 8 * stride + k % t * bytes +
               k / t * (layout == Layout::None ? leading : 16);
    else if (layout == Layout::None)
      offset = r % t * bytes + r / t * stride + k % 8 * 16 + k / 8 * leading;
    else
      offset = r % t * bytes + r / t % across * 16 + r / t / across * leading + k % 8 * span +
               k / 8 * stride;
    // Swizzle<log2(across), 4, 3>: bits 4... of the address xor bits 7...
    uint32_t address = base + offset;
    return address ^ ((address >> 7) % across) << 4;
  }
};

struct Product {
  uint32_t n = 64;
  std::string types = "f32.bf16.bf16";
  uint32_t bytes = 2;
  uint32_t (*encodeA)(float) = nullptr, (*encodeB)(float) = nullptr;
  bool registersA = false, halfD = false, add = true;
  std::string saturate; ///< of integers: ".satfinite"
  uint32_t initial = 1; ///< of D, of integers

  bool integer() const { return types.starts_with("s32"); }
  int signA = 1, signB = 1;
  Operand a, b;
};

uint32_t bf16(float x) { return runtime::f32ToBf16(x); }
uint32_t f16(float x) { return runtime::f32ToF16(x); }
uint32_t tf32(float x) { return std::bit_cast<uint32_t>(x); }
// Integers from -4 to 4.
uint32_t e4m3(float x) {
  constexpr uint32_t kMagnitudes[] = {0, 0x38, 0x40, 0x44, 0x48};
  return kMagnitudes[static_cast<int>(std::fabs(x))] | (x < 0 ? 0x80 : 0);
}
uint32_t e5m2(float x) {
  constexpr uint32_t kMagnitudes[] = {0, 0x3c, 0x40, 0x42, 0x44};
  return kMagnitudes[static_cast<int>(std::fabs(x))] | (x < 0 ? 0x80 : 0);
}

uint32_t s8(float x) { return static_cast<uint8_t>(static_cast<int8_t>(x)); }
uint32_t u8(float x) { return static_cast<uint8_t>(std::fabs(x)); }

constexpr uint32_t kImage = 40960; ///< bytes of shared memory

/// Text that copies the image to shared memory, multiplies, and stores D; thread t has
/// its registers of A at in + kImage + 16 t, of D at out + 512 t.
std::string textOf(const Product &p, const std::string &before = "",
                   const std::string &wait = "wgmma.wait_group.sync.aligned 0;") {
  uint32_t registers = p.n / (p.halfD ? 4 : 2);
  std::string type = p.halfD || p.integer() ? "b32" : "f32", sums, initial, stores;
  for (uint32_t i = 0; i < registers; ++i) {
    sums += fmt::format("{}%acc{}", i ? "," : "", i);
    // D begins as 1 (f32) or as pairs of 1 (f16).
    initial += p.integer() ? fmt::format("  mov.b32 %acc{}, {};\n", i, p.initial)
               : p.halfD   ? fmt::format("  mov.b32 %acc{}, 0x3c003c00;\n", i)
                           : fmt::format("  mov.f32 %acc{}, 0f3f800000;\n", i);
    stores += fmt::format("  st.global.{} [%d4+{}], %acc{};\n", type, 4 * i, i);
  }
  std::string a = p.registersA ? "{%r10,%r11,%r12,%r13}" : "%d5", flags;
  flags = p.integer() ? "" : fmt::format(", {}, {}", p.signA, p.signB);
  if (p.bytes == 2)
    flags += p.registersA ? fmt::format(", {:d}", p.b.transposed)
                          : fmt::format(", {:d}, {:d}", p.a.transposed, p.b.transposed);
  return kernelText(fmt::format(R"(
  .reg .{} %acc<{}>;
  mov.u32 %r1, s;
  shl.b32 %r2, %r0, 4;
  add.u32 %r3, %r2, %r1;
  cvt.u64.u32 %d2, %r2;
  add.u64 %d3, %d0, %d2;
  mul.wide.u32 %d4, %r0, 512;
  add.u64 %d4, %d1, %d4;
  mov.u32 %r4, 0;
COPY:
  ld.global.v4.u32 {{%r10,%r11,%r12,%r13}}, [%d3];
  st.shared.v4.u32 [%r3], {{%r10,%r11,%r12,%r13}};
  add.u64 %d3, %d3, 2048;
  add.u32 %r3, %r3, 2048;
  add.u32 %r4, %r4, 2048;
  setp.lt.u32 %p1, %r4, {};
  @%p1 bra COPY;
  ld.global.v4.u32 {{%r10,%r11,%r12,%r13}}, [%d3];
  mov.u64 %d5, {};
  mov.u64 %d6, {};
  setp.{}.u32 %p2, %r1, %r1;
{}  fence.proxy.async.shared::cta;
  bar.sync 0;
  wgmma.fence.sync.aligned;
  {}
  wgmma.mma_async.sync.aligned.m64n{}k{}{}.{} {{{}}}, {}, %d6, %p2{};
  wgmma.commit_group.sync.aligned;
  {}
{})",
                                type, registers, kImage, p.a.descriptor(), p.b.descriptor(),
                                p.add ? "eq" : "ne", initial, before, p.n, 32 / p.bytes, p.saturate,
                                p.types, sums, a, flags, wait, stores),
                    fmt::format(".shared .align 1024 .b8 s[{}];", kImage), "sm_90a");
}

struct Data {
  std::vector<float> a, b; ///< 64 x k, n x k
  std::vector<uint8_t> in = std::vector<uint8_t>(kImage + 128 * 16);
  std::vector<uint32_t> out = std::vector<uint32_t>(128 * 128);
};

Data dataOf(const Product &p) {
  Data d;
  uint32_t k = 32 / p.bytes;
  std::mt19937 random(p.n);
  for (uint32_t i = 0; i < 64 * k; ++i)
    d.a.push_back(static_cast<float>(random() % 9) - 4);
  for (uint32_t i = 0; i < p.n * k; ++i)
    d.b.push_back(static_cast<float>(random() % 9) - 4);
  auto put = [&](const Operand &operand, uint32_t r, uint32_t c, uint32_t bits) {
    uint32_t at = operand.at(r, c, p.bytes);
    ASSERT_LE(at + p.bytes, kImage);
    std::memcpy(&d.in[at], &bits, p.bytes);
  };
  for (uint32_t c = 0; c < k; ++c) {
    for (uint32_t r = 0; r < p.n; ++r)
      put(p.b, r, c, p.encodeB(d.b[r * k + c]));
    for (uint32_t r = 0; r < 64 && !p.registersA; ++r)
      put(p.a, r, c, p.encodeA(d.a[r * k + c]));
  }
  // A in registers: warp w has rows 16 w to 16 w + 15, as mma.m16n8k* has them.
  uint32_t per = 4 / p.bytes;
  for (uint32_t thread = 0; thread < 128 && p.registersA; ++thread)
    for (uint32_t reg = 0; reg < 4; ++reg)
      for (uint32_t e = 0; e < per; ++e) {
        uint32_t lane = thread % 32;
        uint32_t row = thread / 32 * 16 + lane / 4 + (reg & 1 ? 8 : 0);
        uint32_t column = lane % 4 * per + e + (reg & 2 ? 4 * per : 0);
        uint32_t bits = p.encodeA(d.a[row * k + column]);
        std::memcpy(&d.in[kImage + thread * 16 + reg * 4 + e * p.bytes], &bits, p.bytes);
      }
  return d;
}

RunResult execute(const Product &p, Data &d, const std::string &text) {
  return runKernel(text, d.in, d.out, {128, 1, 1}, {1, 1, 1}, 0, {1, 1 << 20});
}

void expectProduct(const Product &p) {
  Data d = dataOf(p);
  RunResult result = execute(p, d, textOf(p));
  ASSERT_TRUE(result.status.ok()) << result.status.toString();
  uint32_t k = 32 / p.bytes;
  EXPECT_EQ(result.counters.mma, 4u);
  EXPECT_EQ(result.counters.mmaMultiplyAdds, 64u * p.n * k);
  for (uint32_t thread = 0; thread < 128; ++thread)
    for (uint32_t i = 0; i < p.n / 2; ++i) {
      uint32_t lane = thread % 32; // "matrix fragments for D"
      uint32_t row = thread / 32 * 16 + lane / 4 + (i & 2 ? 8 : 0);
      uint32_t column = i / 4 * 8 + lane % 4 * 2 + (i & 1);
      double want = p.add ? 1 : 0;
      for (uint32_t c = 0; c < k; ++c)
        want += double{d.a[row * k + c]} * p.signA * d.b[column * k + c] * p.signB;
      uint32_t cell = d.out[thread * 128 + (p.halfD ? i / 2 : i)];
      float got = p.integer() ? static_cast<float>(static_cast<int32_t>(cell))
                  : p.halfD   ? runtime::f16ToF32(static_cast<uint16_t>(cell >> 16 * (i % 2)))
                              : std::bit_cast<float>(cell);
      ASSERT_EQ(got, want) << p.types << " n " << p.n << " thread " << thread << " sum " << i;
    }
}

/// An operand of that many rows, as densely as the layout allows.
Operand dense(Layout layout, bool transposed, uint32_t base, uint32_t rows) {
  Operand o{layout, transposed, base, 0, 0};
  uint32_t span = rowBytes(layout);
  if (!transposed) {
    o.stride = 8 * span;
    o.leading = layout == Layout::None ? rows * 16 : 16;
  } else if (layout == Layout::None) {
    o.stride = 256; // two groups of 8 k next to each other
    o.leading = 128;
  } else {
    o.stride = 8 * span;      // the next 8 k
    o.leading = 2 * o.stride; // the next `span` bytes of rows
  }
  return o;
}

Product productOf(uint32_t n, Layout a, bool transposeA, Layout b, bool transposeB) {
  Product p;
  p.n = n;
  p.encodeA = p.encodeB = &bf16;
  p.a = dense(a, transposeA, 0, 64);
  p.b = dense(b, transposeB, 8192, n);
  return p;
}

constexpr Layout kLayouts[] = {Layout::None, Layout::B32, Layout::B64, Layout::B128};

} // namespace

TEST(Wgmma, EveryN) {
  for (uint32_t n = 8; n <= 256; n += 8)
    expectProduct(productOf(n, Layout::B128, false, Layout::B128, false));
}

TEST(Wgmma, Layouts) {
  for (Layout a : kLayouts)
    for (bool transposeA : {false, true})
      for (Layout b : kLayouts)
        for (bool transposeB : {false, true})
          expectProduct(productOf(64, a, transposeA, b, transposeB));
  for (Layout b : kLayouts)
    for (bool transposeB : {false, true})
      expectProduct(productOf(256, Layout::B64, false, b, transposeB));
}

TEST(Wgmma, PartsOfARow) {
  // The second k step of rows of 128 bytes begins 32 bytes on, within the swizzle.
  for (uint32_t offset : {0u, 32u, 64u, 96u}) {
    Product p = productOf(64, Layout::B128, false, Layout::B128, false);
    p.a.base += offset;
    p.b.base += offset;
    expectProduct(p);
  }
}

TEST(Wgmma, AInRegisters) {
  for (bool transposeB : {false, true}) {
    Product p = productOf(96, Layout::B128, false, Layout::B128, transposeB);
    p.registersA = true;
    expectProduct(p);
  }
}

TEST(Wgmma, Types) {
  struct Row {
    const char *types;
    uint32_t bytes;
    uint32_t (*a)(float), (*b)(float);
    bool half;
  };
  for (const Row &row : {Row{"f32.f16.f16", 2, &f16, &f16, false},
                         {"f16.f16.f16", 2, &f16, &f16, true},
                         {"f32.tf32.tf32", 4, &tf32, &tf32, false},
                         {"f32.e4m3.e4m3", 1, &e4m3, &e4m3, false},
                         {"f32.e4m3.e5m2", 1, &e4m3, &e5m2, false},
                         {"f32.e5m2.e4m3", 1, &e5m2, &e4m3, false},
                         {"f16.e5m2.e5m2", 1, &e5m2, &e5m2, true},
                         {"s32.s8.s8", 1, &s8, &s8, false}})
    for (bool registersA : {false, true})
      for (Layout layout : {Layout::B128, Layout::None}) {
        // Integers have no n of 40.
        uint32_t n = row.types[0] == 's' ? 48 : 40;
        Product p = productOf(n, layout, false, layout, false);
        p.types = row.types;
        p.bytes = row.bytes;
        p.encodeA = row.a;
        p.encodeB = row.b;
        p.halfD = row.half;
        p.registersA = registersA;
        expectProduct(p);
      }
}

TEST(Wgmma, Integers) {
  for (uint32_t n : {8u, 24u, 32u, 208u, 256u}) {
    Product p = productOf(n, Layout::B64, false, Layout::B64, false);
    p.types = "s32.s8.s8";
    p.bytes = 1;
    p.encodeA = p.encodeB = &s8;
    expectProduct(p);
    p.add = false;
    expectProduct(p);
  }
  // Bytes from -128 or to 255, which is not what a float of the test's data is.
  auto sumOf = [](const std::string &types, uint32_t byte, uint32_t initial,
                  const std::string &saturate) {
    Product p = productOf(8, Layout::None, false, Layout::None, false);
    p.types = types;
    p.bytes = 1;
    p.saturate = saturate;
    p.initial = initial;
    p.encodeA = p.encodeB = &u8;
    Data d = dataOf(p);
    std::fill(d.in.begin(), d.in.begin() + kImage, static_cast<uint8_t>(byte));
    EXPECT_TRUE(execute(p, d, textOf(p)).status.ok());
    return d.out[0];
  };
  EXPECT_EQ(sumOf("s32.u8.u8", 255, 1, ""), 1u + 32 * 255 * 255);
  EXPECT_EQ(sumOf("s32.s8.s8", 128, 1, ""), 1u + 32 * 128 * 128);
  EXPECT_EQ(sumOf("s32.s8.u8", 255, 1, ""), 1u - 32 * 255);
  EXPECT_EQ(sumOf("s32.u8.s8", 255, 1, ""), 1u - 32 * 255);
  EXPECT_EQ(sumOf("s32.u8.u8", 255, 0x7fffffff, ""), 0x7fffffffu + 32 * 255 * 255);
  EXPECT_EQ(sumOf("s32.u8.u8", 255, 0x7fffffff, ".satfinite"), 0x7fffffffu);
  EXPECT_EQ(sumOf("s32.s8.u8", 255, 0x80000001, ".satfinite"), 0x80000000u);
}

TEST(Wgmma, ScalesAndNothingToAdd) {
  Product p = productOf(16, Layout::B32, false, Layout::B32, false);
  for (int signA : {1, -1})
    for (int signB : {1, -1})
      for (bool add : {true, false}) {
        p.signA = signA;
        p.signB = signB;
        p.add = add;
        expectProduct(p);
      }
}

TEST(Wgmma, MistakesAroundIt) {
  Product p = productOf(16, Layout::B128, false, Layout::B128, false);
  Product r = p;
  r.registersA = true;
  auto kind = [](const Product &product, const std::string &text) {
    Data d = dataOf(product);
    RunResult result = execute(product, d, text);
    return result.status.ok() ? "" : std::string(toString(result.fault.kind));
  };
  const std::string text = textOf(p), inRegisters = textOf(r);
  EXPECT_EQ(kind(p, text), "");
  EXPECT_EQ(kind(p, with(text, "  fence.proxy.async.shared::cta;\n", "")), "missing-proxy-fence");
  EXPECT_EQ(kind(p, with(text, "  bar.sync 0;\n", "")), "shared-race");
  EXPECT_EQ(kind(p, with(text, "  wgmma.fence.sync.aligned;\n", "")), "missing-wgmma-fence");
  EXPECT_EQ(kind(p, with(text, "  wgmma.commit_group.sync.aligned;\n", "")), "unfinished-wgmma");
  EXPECT_EQ(kind(p, with(text, "wait_group.sync.aligned 0", "wait_group.sync.aligned 1")),
            "unfinished-wgmma");
  // What is under way may be moved, and nothing else.
  const std::string wait = "wgmma.wait_group.sync.aligned 0;";
  EXPECT_EQ(kind(p, with(text, wait, "mov.f32 %f1, %acc3;\n  " + wait)), "");
  EXPECT_EQ(kind(p, with(text, wait, "add.f32 %f1, %acc3, %acc3;\n  " + wait)), "unfinished-wgmma");
  EXPECT_EQ(kind(p, with(text, wait, "mov.f32 %acc3, 0f00000000;\n  " + wait)), "unfinished-wgmma");
  EXPECT_EQ(kind(p, with(text, "  wgmma.fence.sync.aligned;\n",
                         "  wgmma.fence.sync.aligned;\n  add.f32 %acc3, %acc3, %acc3;\n")),
            "missing-wgmma-fence");
  // Another one that adds to the same sums: no fence between those of the same shape.
  const std::string again =
      text.substr(text.find("  wgmma.mma_async"),
                  text.find("  wgmma.commit_group") - text.find("  wgmma.mma_async"));
  const std::string fewer = "  wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
                            "{%acc0,%acc1,%acc2,%acc3}, %d5, %d6, %p2, 1, 1, 0, 0;\n";
  const std::string commit = "  wgmma.commit_group.sync.aligned;\n",
                    fence = "  wgmma.fence.sync.aligned;\n";
  EXPECT_EQ(kind(p, with(text, commit, again + commit)), "");
  EXPECT_EQ(kind(p, with(text, commit, fewer + commit)), "missing-wgmma-fence");
  EXPECT_EQ(kind(p, with(text, commit, commit + "  " + wait + "\n" + fewer + commit)),
            "missing-wgmma-fence");
  EXPECT_EQ(kind(p, with(text, commit, commit + "  " + wait + "\n" + fence + fewer + commit)), "");
  EXPECT_EQ(kind(r, inRegisters), "");
  // Its A becomes the sum of another, after the wait.
  const std::string other = "  wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
                            "{%r10,%r11,%r12,%r13}, %d6, %d6, %p2, 1, 1, 0, 0;\n";
  EXPECT_EQ(kind(r, with(inRegisters, commit, commit + "  " + wait + "\n" + other + commit)),
            "missing-wgmma-fence");
  EXPECT_EQ(
      kind(r, with(inRegisters, commit, commit + "  " + wait + "\n" + fence + other + commit)), "");
  EXPECT_EQ(kind(r, with(inRegisters, wait, "add.u32 %r10, %r10, 1;\n  " + wait)),
            "unfinished-wgmma");
  EXPECT_EQ(kind(r, with(inRegisters, wait, "add.u32 %r20, %r10, 1;\n  " + wait)), "");
  // Its operands in shared memory.
  EXPECT_EQ(kind(p, with(text, wait, "st.shared.u32 [%r1], 7;\n  " + wait)), "unfinished-wgmma");
  EXPECT_EQ(kind(p, with(text, wait, wait + "\n  bar.sync 0;\n  @%p1 st.shared.u32 [%r1], %r0;")),
            "");
  EXPECT_EQ(kind(p, with(text, "mov.u64 %d6, ", "mov.u64 %d6, 16383; //")), "shared-out-of-bounds");
  EXPECT_EQ(kind(p, with(text, "setp.eq.u32 %p2, %r1, %r1;",
                         "setp.eq.u32 %p2, %r1, %r1;\n  cvt.u64.u32 %d7, %r0;\n"
                         "  add.u64 %d6, %d6, %d7;")),
            "invalid-address");
  // A warp that never comes.
  EXPECT_EQ(
      kind(p, with(text, "  wgmma.fence.sync.aligned;\n",
                   "  setp.ge.u32 %p3, %r0, 96;\n  @%p3 exit;\n  wgmma.fence.sync.aligned;\n")),
      "deadlock");
}

TEST(Wgmma, FreedByOneWarpForAll) {
  // After its own wait, warp 0 overwrites what all four read.
  Product p = productOf(16, Layout::B128, false, Layout::B128, false);
  const std::string wait = "wgmma.wait_group.sync.aligned 0;";
  const std::string one = wait + "\n  setp.lt.u32 %p3, %r0, 32;\n  SYNC\n"
                                 "  @%p3 st.shared.u32 [%r1+8192], 7;";
  auto run = [&](const std::string &sync, bool strict) {
    Data d = dataOf(p);
    auto module = load(textOf(p, "", with(one, "SYNC", sync)));
    Arrays memory;
    memory.in(d.in, "in").out(d.out, "out");
    Params params;
    params.add(d.in.data()).add(d.out.data());
    std::vector<Fault> warnings;
    Fault fault;
    Options options{1, 1 << 20};
    options.unprovenFaults = strict;
    auto counters =
        llmopt::sim::run(*module, memory, {"k", {1, 1, 1}, {128, 1, 1}, 0, params.span()}, options,
                         &fault, nullptr, &warnings);
    std::string found = counters.ok() ? "ok" : std::string(toString(fault.kind));
    for (const Fault &warning : warnings)
      found += fmt::format(" {}", toString(warning.kind));
    return found;
  };
  EXPECT_EQ(run("", false), "ok unproven-release");
  EXPECT_EQ(run("", true), "unproven-release");
  EXPECT_EQ(run("bar.sync 1, 128;", true), "ok");
}

TEST(Wgmma, UnknownFormsAreRefused) {
  for (
      const char *text :
      {"wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.e4m3 {%r1,%r2,%r3,%r4}, %d1, %d2, %p1;",
       "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%r1,%r2,%r3,%r4}, %d1, %d2, %p1, 1, 1;",
       "wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.s8 {%r1,%r2,%r3,%r4}, %d1, %d2, %p1;",
       "wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc {%r1,%r2,%r3,%r4}, %d1, %d2, "
       "%p1;",
       "wgmma.mma_async.sync.aligned.m64n12k16.f32.bf16.bf16 {%f1,%f2,%f3,%f4}, %d1, %d2, %p1, 1, "
       "1, 0, 0;",
       "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%f1,%f2,%f3,%f4}, %d1, %d2, %p1, 1, 1, "
       "0, 1;",
       "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1,%f2,%f3}, %d1, %d2, %p1, 1, 1, 0, "
       "0;",
       "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1,%f2,%f3,%f4}, %d1, %d2, %p1, 2, "
       "1, 0, 0;"}) {
    auto module = loadPtx(kernelText(text), "test.ptx");
    ASSERT_FALSE(module.ok()) << text;
    EXPECT_NE(module.status().message().find("test.ptx:16"), std::string::npos)
        << module.status().message();
  }
}

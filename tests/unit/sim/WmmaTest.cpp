// wmma.load, wmma.mma, wmma.store. What fragments hold is open, so tests load matrices, multiply,
// and store; and change elements in between alike, which the ISA allows.
#include "runtime/base/Half.h"

#include "tests/unit/sim/Support.h"

#include <random>

using namespace llmopt::sim;
using namespace llmopt::sim::test;
using namespace llmopt;

namespace {

constexpr uint32_t kAtB = 4096, kAtC = 8192, kBytes = 16384;

struct Type {
  std::string name;
  uint32_t bytes;
  uint32_t (*encode)(float);
  float (*decode)(uint32_t);
};

uint32_t toWord(float x) { return std::bit_cast<uint32_t>(x); }
float ofWord(uint32_t x) { return std::bit_cast<float>(x); }
uint32_t toInteger(float x) { return static_cast<uint32_t>(static_cast<int32_t>(x)); }
float ofInteger(uint32_t x) { return static_cast<float>(static_cast<int32_t>(x)); }

const Type kF16 = {"f16", 2, [](float x) { return uint32_t{runtime::f32ToF16(x)}; },
                   [](uint32_t x) { return runtime::f16ToF32(static_cast<uint16_t>(x)); }};
const Type kBF16 = {"bf16", 2, [](float x) { return uint32_t{runtime::f32ToBf16(x)}; },
                    [](uint32_t x) { return runtime::bf16ToF32(static_cast<uint16_t>(x)); }};
const Type kTF32 = {"tf32", 4, &toWord, &ofWord};
const Type kF32 = {"f32", 4, &toWord, &ofWord};
const Type kS8 = {"s8", 1, &toInteger, &ofInteger};
const Type kU8 = {"u8", 1, [](float x) { return toInteger(x < 0 ? -x : x); }, &ofInteger};
const Type kS32 = {"s32", 4, &toInteger, &ofInteger};

struct Product {
  uint32_t m = 16, n = 16, k = 16;
  Type a = kF16, b = kF16, c = kF32, d = kF32;
  bool rowsA = true, rowsB = true, rowsC = true, rowsD = true;
  std::string space = ".global";
  uint32_t pad = 0; ///< elements between lines, in multiples of 16 bytes

  std::string shape() const { return fmt::format("m{}n{}k{}", m, n, k); }
  /// Registers of the fragments (9.7.14.4.1).
  uint32_t registers(const Type &type, uint32_t elements, bool operand) const {
    return operand && type.name == "f16" ? 8 : elements * type.bytes / 128;
  }
  uint32_t lineOf(const Type &type, bool rows, uint32_t height, uint32_t width) const {
    return (rows ? width : height) + pad * 16 / type.bytes;
  }
};

std::string list(const std::string &name, uint32_t count) {
  std::string text = "{";
  for (uint32_t i = 0; i < count; ++i)
    text += fmt::format("{}%{}{}", i ? "," : "", name, i);
  return text + "}";
}

/// `between` may change elements of C (%c0 ...).
std::string textOf(const Product &p, const std::string &between = "",
                   const std::string &saturate = "") {
  auto word = [](bool rows) { return rows ? "row" : "col"; };
  uint32_t a = p.registers(p.a, p.m * p.k, true), b = p.registers(p.b, p.k * p.n, true);
  uint32_t c = p.registers(p.c, p.m * p.n, false), d = p.registers(p.d, p.m * p.n, false);
  std::string types = p.a.name == "f16"
                          ? p.d.name + "." + p.c.name
                          : fmt::format("{}.{}.{}.{}", p.d.name, p.a.name, p.b.name, p.c.name);
  // Through shared memory, if that is asked for.
  std::string from = "%d0";
  std::string copy;
  if (p.space == ".shared") {
    copy = fmt::format(R"(
  mov.u32 %r1, s;
  shl.b32 %r2, %r0, 4;
  add.u32 %r1, %r1, %r2;
  cvt.u64.u32 %d3, %r2;
  add.u64 %d3, %d0, %d3;
  mov.u32 %r2, 0;
COPY:
  ld.global.v4.u32 {{%r4,%r5,%r6,%r7}}, [%d3];
  st.shared.v4.u32 [%r1], {{%r4,%r5,%r6,%r7}};
  add.u64 %d3, %d3, 512;
  add.u32 %r1, %r1, 512;
  add.u32 %r2, %r2, 512;
  setp.lt.u32 %p1, %r2, {};
  @%p1 bra COPY;
  bar.sync 0;
  mov.u64 %d4, s;
)",
                       kBytes);
    from = "%d4";
  }
  return kernelText(fmt::format("  .reg .b32 %a<8>, %b<8>, %c<8>, %e<8>;\n{}"
                                "  wmma.load.a.sync.aligned.{}.{}{}.{} {}, [{}], {};\n"
                                "  wmma.load.b.sync.aligned.{}.{}{}.{} {}, [{}+{}], {};\n"
                                "  wmma.load.c.sync.aligned.{}.{}{}.{} {}, [{}+{}], {};\n"
                                "{}"
                                "  wmma.mma.sync.aligned.{}.{}.{}.{}{} {}, {}, {}, {};\n"
                                "  wmma.store.d.sync.aligned.{}.{}.global.{} [%d1], {}, {};\n",
                                copy, word(p.rowsA), p.shape(), p.space, p.a.name, list("a", a),
                                from, p.lineOf(p.a, p.rowsA, p.m, p.k), word(p.rowsB), p.shape(),
                                p.space, p.b.name, list("b", b), from, kAtB,
                                p.lineOf(p.b, p.rowsB, p.k, p.n), word(p.rowsC), p.shape(), p.space,
                                p.c.name, list("c", c), from, kAtC,
                                p.lineOf(p.c, p.rowsC, p.m, p.n), between, word(p.rowsA),
                                word(p.rowsB), p.shape(), types, saturate, list("e", d),
                                list("a", a), list("b", b), list("c", c), word(p.rowsD), p.shape(),
                                p.d.name, list("e", d), p.lineOf(p.d, p.rowsD, p.m, p.n)),
                    fmt::format(".shared .align 128 .b8 s[{}];", kBytes));
}

void expectProduct(const Product &p) {
  SCOPED_TRACE(testing::Message() << p.shape() << " " << p.a.name << " " << p.b.name << " "
                                  << p.c.name << " " << p.d.name << p.space << " " << p.rowsA
                                  << p.rowsB << p.rowsC << p.rowsD << " pad " << p.pad);
  std::mt19937 random(p.m + p.k);
  std::vector<uint8_t> in(kBytes), out(kBytes);
  auto fill = [&](const Type &type, bool rows, uint32_t height, uint32_t width, uint32_t begin) {
    std::vector<float> values(height * width);
    for (uint32_t r = 0; r < height; ++r)
      for (uint32_t c = 0; c < width; ++c) {
        float x = static_cast<float>(random() % 9) - 4;
        uint32_t line = p.lineOf(type, rows, height, width);
        uint32_t bits = type.encode(x), at = (rows ? r * line + c : c * line + r) * type.bytes;
        std::memcpy(&in[begin + at], &bits, type.bytes);
        values[r * width + c] = type.name == "u8" && x < 0 ? -x : x;
      }
    return values;
  };
  std::vector<float> a = fill(p.a, p.rowsA, p.m, p.k, 0), b = fill(p.b, p.rowsB, p.k, p.n, kAtB);
  std::vector<float> c = fill(p.c, p.rowsC, p.m, p.n, kAtC);
  RunResult result = runKernel(textOf(p), in, out);
  ASSERT_TRUE(result.status.ok()) << result.status.toString();
  EXPECT_EQ(result.counters.mma, 1u);
  EXPECT_EQ(result.counters.mmaMultiplyAdds, p.m * p.n * p.k);
  for (uint32_t row = 0; row < p.m; ++row)
    for (uint32_t col = 0; col < p.n; ++col) {
      float want = c[row * p.n + col];
      for (uint32_t k = 0; k < p.k; ++k)
        want += a[row * p.k + k] * b[k * p.n + col];
      uint32_t line = p.lineOf(p.d, p.rowsD, p.m, p.n), bits = 0;
      std::memcpy(&bits, &out[(p.rowsD ? row * line + col : col * line + row) * p.d.bytes],
                  p.d.bytes);
      ASSERT_EQ(p.d.decode(bits), want) << "row " << row << " column " << col;
    }
}

} // namespace

TEST(Wmma, TypesAndShapes) {
  for (auto [m, n] : {std::pair{16u, 16u}, {32u, 8u}, {8u, 32u}})
    for (bool rows : {false, true}) {
      Product p;
      p.m = m;
      p.n = n;
      p.rowsA = p.rowsC = rows;
      p.rowsB = p.rowsD = !rows;
      expectProduct(p);
      p.c = p.d = kF16;
      expectProduct(p);
      p.d = kF32;
      expectProduct(p);
      p.c = kF32;
      p.a = p.b = kBF16;
      expectProduct(p);
      p.c = p.d = kS32;
      for (const Type &left : {kS8, kU8})
        for (const Type &right : {kS8, kU8}) {
          p.a = left;
          p.b = right;
          expectProduct(p);
        }
    }
  Product p;
  p.k = 8;
  p.a = p.b = kTF32;
  expectProduct(p);
}

TEST(Wmma, LayoutsStridesAndSpaces) {
  for (const char *space : {".global", ".shared", ""})
    for (uint32_t layouts = 0; layouts < 16; ++layouts) {
      Product p;
      p.space = space;
      p.rowsA = layouts & 1;
      p.rowsB = layouts & 2;
      p.rowsC = layouts & 4;
      p.rowsD = layouts & 8;
      p.pad = layouts % 3;
      expectProduct(p);
    }
}

TEST(Wmma, ElementsChangedAlike) {
  // C is doubled in its registers, whatever lies where.
  Product p;
  std::string twice;
  for (int i = 0; i < 8; ++i)
    twice += fmt::format("  add.f32 %c{0}, %c{0}, %c{0};\n", i);
  std::vector<float> in(kBytes / 4), out(kBytes / 4);
  for (uint32_t i = 0; i < 256; ++i)
    in[kAtC / 4 + i] = static_cast<float>(i);
  RunResult result = runKernel(textOf(p, twice), in, out);
  ASSERT_TRUE(result.status.ok()) << result.status.toString();
  for (uint32_t i = 0; i < 256; ++i)
    EXPECT_EQ(out[i], 2.0f * static_cast<float>(i));
}

TEST(Wmma, SaturatedIntegers) {
  Product p;
  p.a = p.b = kS8;
  p.c = p.d = kS32;
  std::vector<uint8_t> in(kBytes), out(kBytes);
  std::fill(in.begin(), in.begin() + kAtC, uint8_t{127});
  int32_t nearly = 0x7fffffff - 10;
  for (uint32_t i = 0; i < 256; ++i)
    std::memcpy(&in[kAtC + 4 * i], &nearly, 4);
  auto first = [&](const std::string &saturate) {
    EXPECT_TRUE(runKernel(textOf(p, "", saturate), in, out).status.ok());
    uint32_t bits = 0;
    std::memcpy(&bits, out.data(), 4);
    return bits;
  };
  EXPECT_EQ(first(".satfinite"), 0x7fffffffu);
  EXPECT_EQ(first(""), static_cast<uint32_t>(nearly) + 16 * 127 * 127);
}

TEST(Wmma, Mistakes) {
  auto kind = [](const std::string &text, uint32_t threads = 32) {
    std::vector<uint8_t> in(kBytes), out(kBytes);
    RunResult result = runKernel(text, in, out, {threads, 1, 1});
    return result.status.ok() ? "" : std::string(toString(result.fault.kind));
  };
  Product p;
  const std::string good = textOf(p);
  auto changed = [&](const std::string &what, const std::string &by) {
    std::string text = good;
    size_t at = text.find(what);
    EXPECT_NE(at, std::string::npos);
    return text.replace(at, what.size(), by);
  };
  EXPECT_EQ(kind(good), "");
  EXPECT_EQ(kind(good, 31), "divergent-sync");
  EXPECT_EQ(kind(changed("[%d0], 16", "[%d0+2], 16")), "misaligned");
  EXPECT_EQ(kind(changed("[%d0], 16", "[%d0], 8192")), "global-out-of-bounds");
  EXPECT_EQ(kind(changed("[%d1], {%e0", "[%d0], {%e0")), "write-to-read-only");
  for (const char *text :
       {"wmma.load.a.sync.aligned.row.m8n8k4.global.f64 {%d2}, [%d0], 4;",
        "wmma.load.a.sync.aligned.row.m16n16k8.global.f16 {%r1,%r2,%r3,%r4}, [%d0], 8;",
        "wmma.load.a.sync.aligned.row.m16n16k16.local.f16 {%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8}, "
        "[%d0], 16;",
        "wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32 {%r1,%r2}, {%r3}, {%r4}, "
        "{%r5,%r6};"}) {
    auto module = loadPtx(kernelText(text), "test.ptx");
    ASSERT_FALSE(module.ok()) << text;
    EXPECT_NE(module.status().message().find("unsupported instruction"), std::string::npos)
        << module.status().message();
  }
  auto few = loadPtx(kernelText("wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r1,%r2}, "
                                "[%d0], 16;"),
                     "test.ptx");
  ASSERT_FALSE(few.ok());
  EXPECT_NE(few.status().message().find("operand 1 has 2 registers; this matrix has 8"),
            std::string::npos);
}

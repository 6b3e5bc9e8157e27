// Loads, stores, spaces, atomics, variables; and the faults of memory.
#include "tests/unit/sim/Support.h"

using namespace llmopt::sim;
using namespace llmopt::sim::test;

namespace {

const char *kAddresses = R"(
  mul.wide.u32 %d2, %r0, 16;
  add.u64 %d3, %d0, %d2;
  add.u64 %d4, %d1, %d2;)";

/// One row of four words for each lane.
std::vector<uint32_t> inputWords() {
  std::vector<uint32_t> in(128);
  for (uint32_t i = 0; i < in.size(); ++i)
    in[i] = 0x80000000 + 0x01020304 * i;
  return in;
}

struct Words {
  std::vector<uint32_t> in = inputWords(), out = std::vector<uint32_t>(128);
  RunResult result;
  Words(const std::string &body, const std::string &declarations = "", uint32_t dynamicShared = 0,
        uint32_t threads = 32) {
    result = runKernel(kernelText(kAddresses + body, declarations), in, out, {threads, 1, 1},
                       {1, 1, 1}, dynamicShared);
  }
};

} // namespace

TEST(Memory, VectorsAndCacheHints) {
  Words w("  ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%r1, %r2, %r3, %r4}, [%d3];\n"
          "  st.global.cs.v2.b32 [%d4], {%r3, %r4};\n  st.global.v2.f32 [%d4+8], {%r1, %r2};");
  ASSERT_TRUE(w.result.status.ok()) << w.result.status.toString();
  for (uint32_t i = 0; i < 128; ++i)
    EXPECT_EQ(w.out[i], w.in[i ^ 2]);
  EXPECT_EQ(w.result.counters.globalLoadBytes, 512u);
  auto sectors = [](const std::vector<uint32_t> &buffer) {
    auto begin = reinterpret_cast<uint64_t>(buffer.data());
    return (begin + 511) / 32 - begin / 32 + 1;
  };
  // Each of the stores, of 8 bytes out of 16, touches all sectors.
  EXPECT_EQ(w.result.counters.globalSectors, sectors(w.in) + 2 * sectors(w.out));
}

TEST(Memory, ThirtyTwoBytesAtATime) {
  // From the first multiple of 32 bytes in the buffer on.
  Words w("  setp.ge.u32 %p1, %r0, 8;\n  @%p1 exit;\n  add.u64 %d3, %d0, 31;\n  and.b64 %d3, %d3, "
          "-32;\n"
          "  mad.wide.u32 %d3, %r0, 32, %d3;\n"
          "  ld.global.v8.b32 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%d3];\n"
          "  st.global.v4.b32 [%d4], {%r8, %r7, %r6, %r5};");
  ASSERT_TRUE(w.result.status.ok()) << w.result.status.toString();
  size_t first = (32 - reinterpret_cast<uint64_t>(w.in.data()) % 32) % 32 / 4;
  for (uint32_t l = 0; l < 8; ++l)
    for (uint32_t i = 0; i < 4; ++i)
      EXPECT_EQ(w.out[4 * l + i], w.in[first + 8 * l + 7 - i]);
}

TEST(Memory, NarrowLoadsExtendBySign) {
  Words w(
      "  ld.global.s8 %r1, [%d3+3];\n  ld.global.u8 %r2, [%d3+3];\n  ld.global.s16 %r3, [%d3+2];\n"
      "  ld.global.s32 %d5, [%d3];\n  shr.u64 %d5, %d5, 32;\n  cvt.u32.u64 %r4, %d5;\n"
      "  st.global.v4.u32 [%d4], {%r1, %r2, %r3, %r4};\n  st.global.u8 [%d4+7], 0x155;");
  ASSERT_TRUE(w.result.status.ok()) << w.result.status.toString();
  for (uint32_t l = 0; l < 32; ++l) {
    uint32_t x = w.in[4 * l];
    EXPECT_EQ(w.out[4 * l], static_cast<uint32_t>(static_cast<int8_t>(x >> 24)));
    EXPECT_EQ(w.out[4 * l + 1], x >> 24 | 0x55000000);
    EXPECT_EQ(w.out[4 * l + 2], static_cast<uint32_t>(static_cast<int16_t>(x >> 16)));
    EXPECT_EQ(w.out[4 * l + 3], x >> 31 ? 0xffffffff : 0u);
  }
}

TEST(Memory, SharedStaticAndDynamic) {
  // The dynamic array begins behind the static one, at its own alignment.
  Words w("  mov.u32 %r1, fixed;\n  mov.u64 %d5, dyn;\n  cvt.u32.u64 %r2, %d5;\n"
          "  shl.b32 %r3, %r0, 2;\n  add.u32 %r4, %r2, %r3;\n"
          "  st.shared.u32 [%r4], %r0;\n  bar.sync 0;\n  xor.b32 %r5, %r3, 4;\n  add.u32 %r5, %r2, "
          "%r5;\n"
          "  ld.shared.u32 %r6, [%r5];\n  cvta.shared.u64 %d6, %d5;\n  ld.u32 %r7, [%d6+8];\n"
          "  st.global.v4.u32 [%d4], {%r1, %r2, %r6, %r7};",
          ".shared .align 4 .b8 fixed[20];\n.extern .shared .align 64 .b8 dyn[];", 128);
  ASSERT_TRUE(w.result.status.ok()) << w.result.status.toString();
  for (uint32_t l = 0; l < 32; ++l) {
    EXPECT_EQ(w.out[4 * l], 0u);
    EXPECT_EQ(w.out[4 * l + 1], 64u);
    EXPECT_EQ(w.out[4 * l + 2], l ^ 1);
    EXPECT_EQ(w.out[4 * l + 3], 2u);
  }
}

TEST(Memory, LocalAndGenericAddresses) {
  Words w(R"(
  .local .align 8 .b8 depot[64];
  .reg .b64 %SP, %SPL;
  mov.u64 %SPL, depot;
  cvta.local.u64 %SP, %SPL;
  and.b32 %r1, %r0, 15;
  mul.wide.u32 %d5, %r1, 4;
  add.u64 %d6, %SPL, %d5;
  st.local.u32 [%d6], %r0;
  add.u64 %d7, %SP, %d5;
  ld.u32 %r2, [%d7];
  isspacep.local %p1, %d7;
  selp.u32 %r3, 1, 0, %p1;
  isspacep.global %p2, %d3;
  selp.u32 %r4, 1, 0, %p2;
  ld.u32 %r5, [%d3];
  st.global.v4.u32 [%d4], {%r2, %r3, %r4, %r5};)");
  ASSERT_TRUE(w.result.status.ok()) << w.result.status.toString();
  for (uint32_t l = 0; l < 32; ++l) {
    EXPECT_EQ(w.out[4 * l], l);
    EXPECT_EQ(w.out[4 * l + 1], 1u);
    EXPECT_EQ(w.out[4 * l + 2], 1u);
    EXPECT_EQ(w.out[4 * l + 3], w.in[4 * l]);
  }
}

TEST(Memory, VariablesKeepWhatKernelsWrite) {
  std::string ptx = kernelText(R"(
  ld.const.f32 %f1, [table+4];
  ld.global.u64 %d5, [pointer];
  ld.global.u32 %r1, [%d5];
  setp.eq.u32 %p1, %r0, 0;
  @%p1 atom.global.add.u32 %r2, [count], 2;
  @%p1 st.global.f32 [%d1], %f1;
  @%p1 st.global.u32 [%d1+4], %r1;
  @%p1 st.global.u32 [%d1+8], %r2;)",
                               ".const .align 4 .f32 table[2] = {0f3F800000, 2.5};\n"
                               ".global .align 4 .b8 bytes[8] = {1, 2, 3, 4, 5, 6};\n"
                               ".global .u64 pointer = generic(bytes)+4;\n"
                               ".global .u32 count = 40;");
  auto module = load(ptx);
  ASSERT_TRUE(module);
  GlobalMemory memory;
  std::vector<uint32_t> out(4);
  ASSERT_TRUE(memory.add(out.data(), 16, "out", Access::ReadWrite).ok());
  Params params;
  params.add(uint64_t{0}).add(out.data());
  for (uint32_t expected : {40u, 42u}) {
    auto counters = run(*module, memory, {"k", {1, 1, 1}, {32, 1, 1}, 0, params.span()});
    ASSERT_TRUE(counters.ok()) << counters.status().toString();
    EXPECT_EQ(out[0], 0x40200000u);
    EXPECT_EQ(out[1], 0x0605u);
    EXPECT_EQ(out[2], expected);
  }
}

TEST(Memory, Atomics) {
  Words w(R"(
  st.shared.u32 [s], 100;
  atom.shared.add.u32 %r1, [s], 1;
  ld.shared.u32 %r2, [s];
  red.global.max.s32 [%d1+12], %r0;
  atom.global.cas.b32 %r3, [%d4], 0, 77;
  atom.global.exch.b32 %r4, [%d4], %r1;
  atom.add.u32 %r5, [%d4+4], 5;
  red.relaxed.gpu.global.add.f32 [%d4+8], 0f3F800000;
  red.relaxed.gpu.global.add.f32 [%d4+8], 0f3F800000;)",
          ".shared .align 4 .u32 s;");
  ASSERT_TRUE(w.result.status.ok()) << w.result.status.toString();
  for (uint32_t l = 0; l < 32; ++l) {
    EXPECT_EQ(w.out[4 * l], 100 + l); // lanes in order; cas had put 77 there
    EXPECT_EQ(w.out[4 * l + 1], 5u);
    EXPECT_EQ(w.out[4 * l + 2], 0x40000000u);
  }
  EXPECT_EQ(w.out[3], 31u);
}

TEST(Memory, AtomicOpsOnOneCell) {
  struct Case {
    std::string op;
    uint32_t start, operand, expected;
  };
  for (const Case &c :
       {Case{"min.s32", 5, 0xffffffff, 0xffffffff}, Case{"min.u32", 5, 0xffffffff, 5},
        Case{"and.b32", 12, 10, 8}, Case{"or.b32", 12, 10, 14}, Case{"xor.b32", 12, 10, 6},
        Case{"inc.u32", 5, 5, 0}, Case{"inc.u32", 4, 5, 5}, Case{"dec.u32", 0, 9, 9},
        Case{"dec.u32", 20, 9, 9}, Case{"dec.u32", 3, 9, 2},
        Case{"add.noftz.f16x2", 0x3c003c00, 0x3c004000, 0x40004200},
        Case{"add.noftz.bf16x2", 0x3f803f80, 0x3f803f80, 0x40004000}}) {
    std::vector<uint32_t> in = {c.operand}, out = {c.start, 0};
    RunResult result = runKernel(kernelText("  ld.global.u32 %r1, [%d0];\n  atom.global." + c.op +
                                            " %r2, [%d1], %r1;\n  st.global.u32 [%d1+4], %r2;"),
                                 in, out, {1, 1, 1});
    EXPECT_TRUE(result.status.ok()) << result.status.toString();
    EXPECT_EQ(out[0], c.expected) << c.op;
    EXPECT_EQ(out[1], c.start) << c.op;
  }
}

TEST(MemoryFault, NamesTheNearestBufferAndThePlace) {
  Words w("  ld.global.u32 %r1, [%d3+64];\n  st.global.u32 [%d4], %r1;");
  EXPECT_EQ(w.result.fault.kind, FaultKind::GlobalOutOfBounds);
  EXPECT_EQ(w.result.fault.lane, 28u);
  EXPECT_EQ(w.result.fault.line, 19u);
  EXPECT_EQ(w.result.fault.instruction, "ld.global.u32 %r1, [%d3+64]");
  EXPECT_EQ(w.result.fault.buffer, "0 bytes after the end of 'in' (512 bytes)");
  EXPECT_EQ(
      w.result.status.message(),
      fmt::format("global-out-of-bounds in kernel 'k', block (0, 0, 0), warp 0, lane 28: load of "
                  "4 bytes of global memory outside every buffer; address {:#x}, 0 bytes after "
                  "the end of 'in' (512 bytes); at test.ptx:19: 'ld.global.u32 %r1, [%d3+64]'",
                  reinterpret_cast<uint64_t>(w.in.data() + 128)));
}

TEST(MemoryFault, Kinds) {
  auto kind = [](const std::string &body, const std::string &declarations = "") {
    Words w(body, declarations, 64);
    EXPECT_FALSE(w.result.status.ok()) << body;
    return w.result.fault.kind;
  };
  EXPECT_EQ(kind("  st.global.u32 [%d3], 1;"), FaultKind::WriteToReadOnly);
  EXPECT_EQ(kind("  red.global.add.u32 [%d3], 1;"), FaultKind::WriteToReadOnly);
  EXPECT_EQ(kind("  ld.global.u32 %r1, [%d3+2];"), FaultKind::Misaligned);
  EXPECT_EQ(kind("  ld.global.v2.u32 {%r1, %r2}, [%d3+4];"), FaultKind::Misaligned);
  EXPECT_EQ(kind("  mov.u32 %r1, 60;\n  ld.shared.u64 %d5, [%r1+4];"),
            FaultKind::SharedOutOfBounds);
  EXPECT_EQ(kind("  mov.u32 %r1, 0;\n  st.shared.u32 [%r1+-4], 1;"), FaultKind::SharedOutOfBounds);
  EXPECT_EQ(kind("  mov.u32 %r1, 2;\n  ld.shared.u32 %r2, [%r1];"), FaultKind::Misaligned);
  EXPECT_EQ(kind("  mov.u64 %d5, 0;\n  cvta.shared.u64 %d6, %d5;\n  ld.shared.u32 %r1, [%d6];"),
            FaultKind::SharedOutOfBounds);
  EXPECT_EQ(kind("  mov.u64 %d5, 0;\n  cvta.shared.u64 %d6, %d5;\n  ld.global.u32 %r1, [%d6];"),
            FaultKind::InvalidAddress);
  EXPECT_EQ(kind("  mov.u64 %d5, 0;\n  ld.u32 %r1, [%d5];"), FaultKind::GlobalOutOfBounds);
  EXPECT_EQ(kind("  .local .b32 x[2];\n  mov.u64 %d5, x;\n  ld.local.u32 %r1, [%d5+16];"),
            FaultKind::LocalOutOfBounds);
  EXPECT_EQ(kind("  mov.u64 %d5, 16;\n  ld.param.u32 %r1, [%d5];"), FaultKind::ParamOutOfBounds);
  EXPECT_EQ(kind("  ld.const.u32 %r1, [c];\n  cvta.const.u64 %d5, %d0;\n  mov.u64 %d6, c;\n"
                 "  st.global.u32 [%d6], 1;",
                 ".const .u32 c = 5;"),
            FaultKind::WriteToReadOnly);
}

TEST(MemoryFault, InactiveLanesTouchNothing) {
  Words w("  setp.lt.u32 %p1, %r0, 28;\n  @%p1 ld.global.u32 %r1, [%d3+64];\n  st.global.u32 "
          "[%d4], 1;");
  EXPECT_TRUE(w.result.status.ok()) << w.result.status.toString();
}

TEST(GlobalMemory, RefusesOverlapAndForgetsRemovedBuffers) {
  GlobalMemory memory;
  std::vector<uint32_t> data(8);
  EXPECT_EQ(memory.describe(1000), "no buffer is registered");
  ASSERT_TRUE(memory.add(data.data(), 16, "low", Access::ReadWrite).ok());
  ASSERT_TRUE(memory.add(data.data() + 4, 16, "high", Access::ReadOnly).ok());
  EXPECT_FALSE(memory.add(data.data() + 2, 4, "inside", Access::ReadOnly).ok());
  auto at = reinterpret_cast<uint64_t>(data.data());
  EXPECT_EQ(memory.find(at + 12, 4)->name, "low");
  EXPECT_EQ(memory.find(at + 12, 8), nullptr);
  EXPECT_EQ(memory.describe(at + 20), "byte 4 of 'high' (16 bytes)");
  EXPECT_EQ(memory.describe(at - 3), "3 bytes before 'low' (16 bytes)");
  EXPECT_TRUE(memory.remove(data.data()).ok());
  EXPECT_EQ(memory.remove(data.data()).code(), llmopt::runtime::StatusCode::NotFound);
  EXPECT_EQ(memory.find(at, 4), nullptr);
}

// An address in an empty array is in no bounds; its neighbour has nothing to do with it.
TEST(GlobalMemory, NamesEmptyBuffers) {
  GlobalMemory memory;
  std::vector<uint32_t> data(8);
  auto at = reinterpret_cast<uint64_t>(data.data());
  ASSERT_TRUE(memory.add(data.data(), 16, "low", Access::ReadWrite).ok());
  ASSERT_TRUE(memory.add(data.data() + 4, 0, "none", Access::ReadOnly).ok());
  ASSERT_TRUE(memory.add(data.data() + 6, 8, "high", Access::ReadOnly).ok());
  ASSERT_TRUE(memory.add(nullptr, 0, "absent", Access::ReadOnly).ok());
  ASSERT_TRUE(memory.add(nullptr, 0, "missing", Access::ReadOnly).ok());
  EXPECT_EQ(memory.buffers().size(), 2u);
  EXPECT_EQ(memory.find(at + 16, 1), nullptr);
  EXPECT_EQ(memory.describe(at + 16), "0 bytes after the end of 'none' (0 bytes)");
  EXPECT_EQ(memory.describe(at + 21), "3 bytes before 'high' (8 bytes)");
  EXPECT_EQ(memory.describe(at + 12), "byte 12 of 'low' (16 bytes)");
  EXPECT_EQ(memory.describe(4), "4 bytes after the end of 'absent', 'missing' (0 bytes)");
  EXPECT_TRUE(memory.remove(nullptr).ok());
  EXPECT_EQ(memory.describe(4), "4 bytes after the end of 'missing' (0 bytes)");
  EXPECT_TRUE(memory.remove(data.data() + 4).ok());
  EXPECT_EQ(memory.describe(at + 16), "0 bytes after the end of 'low' (16 bytes)");
}

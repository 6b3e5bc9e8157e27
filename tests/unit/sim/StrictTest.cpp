// The checks of a strict run: orders between threads and blocks, copies under
// way, and what was never written. Each fault stands beside the code that is
// right.
#include "tests/unit/sim/Support.h"

#include <numeric>

using namespace llmopt::sim;
using namespace llmopt::sim::test;

namespace {

/// Runs a body behind kWordAddresses.
struct StrictRun {
  std::vector<uint32_t> in = std::vector<uint32_t>(1024), out = std::vector<uint32_t>(1024);
  RunResult result;

  explicit StrictRun(const std::string &body, uint32_t threads = 128, uint32_t blocks = 1,
                     Options options = {1}) {
    std::iota(in.begin(), in.end(), 1000);
    result = runKernel(
        kernelText(kWordAddresses + body, ".shared .align 16 .b8 s[4096];\n.global .u32 counter;"),
        in, out, {threads, 1, 1}, {blocks, 1, 1}, 0, options);
  }
};

void expectFault(FaultKind kind, const std::string &body, uint32_t threads = 128,
                 uint32_t blocks = 1) {
  for (uint64_t seed : {0, 1, 2, 3}) {
    StrictRun run(body, threads, blocks, {1, 1 << 20, seed});
    EXPECT_FALSE(run.result.status.ok()) << "seed " << seed << body;
    EXPECT_EQ(toString(run.result.fault.kind), toString(kind))
        << run.result.status.toString() << body;
  }
  StrictRun relaxed(body, threads, blocks, {1, 1 << 20, 0, 1, false});
  EXPECT_TRUE(relaxed.result.status.ok()) << relaxed.result.status.toString();
}

void expectRight(const std::string &body, uint32_t threads = 128, uint32_t blocks = 1) {
  for (uint64_t seed : {0, 1, 2, 3}) {
    StrictRun run(body, threads, blocks, {1, 1 << 20, seed});
    EXPECT_TRUE(run.result.status.ok()) << run.result.status.toString() << body;
  }
}

std::string with(std::string text, const std::string &what, const std::string &by) {
  return text.replace(text.find(what), what.size(), by);
}

} // namespace

TEST(Uninitialised, SharedMemory) {
  const std::string load = "  ld.shared.u32 %r3, [%r2];\n  st.global.u32 [%d4], %r3;";
  expectFault(FaultKind::UninitialisedShared, load);
  expectRight("  st.shared.u32 [%r2], %r0;\n" + load);
  expectFault(FaultKind::UninitialisedShared, "  st.shared.u16 [%r2], %r0;\n" + load);
  expectRight("  st.shared.u16 [%r2], %r0;\n  st.shared.u16 [%r2+2], %r0;\n" + load);
  expectFault(FaultKind::UninitialisedShared, "  atom.shared.add.u32 %r3, [%r2], 1;");
  // Three of four words of a row, which lane 0 of a matrix load reads whole.
  const std::string row = "  shl.b32 %r4, %r0, 4;\n  st.shared.u32 [%r4], %r0;\n"
                          "  st.shared.v2.u32 [%r4+8], {%r0, %r0};\n  LAST\n  bar.sync 0;\n"
                          "  ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r5}, [%r4];";
  expectFault(FaultKind::UninitialisedShared, with(row, "LAST", ""), 32);
  expectRight(with(row, "LAST", "st.shared.u32 [%r4+4], %r0;"), 32);
}

TEST(Uninitialised, Registers) {
  expectFault(FaultKind::UninitialisedRegister, "  st.global.u32 [%d4], %r5;");
  expectFault(FaultKind::UninitialisedRegister,
              "  add.u32 %r6, %r5, 1;\n  st.global.u32 [%d4], %r6;");
  expectRight("  add.u32 %r6, %r5, 1;"); // nobody sees it
  expectFault(FaultKind::UninitialisedRegister, "  @%p3 st.global.u32 [%d4], %r0;");
  const std::string guarded = "  setp.lt.u32 %p1, %r0, 40;\n  @%p1 ld.global.u32 %r5, [%d3];\n"
                              "  USE st.global.u32 [%d4], %r5;";
  expectRight(with(guarded, "USE", "@%p1"));
  expectFault(FaultKind::UninitialisedRegister, with(guarded, "USE", ""));
  StrictRun run(with(guarded, "USE", ""));
  EXPECT_EQ(run.result.fault.warp, 1u);
  EXPECT_EQ(run.result.fault.lane, 8u);
  EXPECT_EQ(run.result.fault.detail, "register '%r5' has no value in lanes 0xffffff00, or was "
                                     "computed from one that has none");
  expectRight("  setp.lt.u32 %p1, %r0, 40;\n  @%p1 ld.global.u32 %r5, [%d3];\n"
              "  selp.u32 %r6, %r5, 7, %p1;\n  st.global.u32 [%d4], %r6;");
  expectFault(FaultKind::UninitialisedRegister,
              "  setp.lt.u32 %p1, %r0, 40;\n  @%p1 ld.global.u32 %r5, [%d3];\n"
              "  selp.u32 %r6, 7, %r5, %p1;\n  st.global.u32 [%d4], %r6;");
  // A value that decides alone is enough.
  const std::string either = "  setp.lt.u32 %p1, %r0, 40;\n  @%p1 setp.eq.u32 %p2, %r0, 7;\n"
                             "  OR.pred %p3, NOT%p1, %p2;\n  @%p3 st.global.u32 [%d4], 1;";
  expectRight(with(with(either, "OR", "or"), "NOT", "!"));
  expectRight(with(with(either, "OR", "and"), "NOT", ""));
  expectFault(FaultKind::UninitialisedRegister, with(with(either, "OR", "or"), "NOT", ""));
  // Set in the first round of a loop, read in the second.
  expectRight("  mov.u32 %r7, 0;\nL:\n  setp.eq.u32 %p2, %r7, 0;\n  @%p2 mov.u32 %r5, 3;\n"
              "  @!%p2 st.global.u32 [%d4], %r5;\n  add.u32 %r7, %r7, 1;\n"
              "  setp.lt.u32 %p3, %r7, 2;\n  @%p3 bra L;");
}

namespace {

/// A thread reads the word that the thread 37 further on wrote.
const std::string kExchange = R"(
  st.shared.u32 [%r2], %r0;
  bar.sync 0;
  st.shared.u32 [%r2], %r0;
  FIRST
  add.u32 %r3, %r0, 37;
  and.b32 %r3, %r3, 127;
  shl.b32 %r3, %r3, 2;
  ld.shared.u32 %r4, [%r3];
  SECOND
  st.shared.u32 [%r2], %r4;)";

std::string exchange(const std::string &first, const std::string &second) {
  return with(with(kExchange, "FIRST", first), "SECOND", second);
}

} // namespace

TEST(SharedRace, BetweenWarps) {
  expectRight(exchange("bar.sync 0;", "bar.sync 0;"));
  expectRight(exchange("barrier.sync 1;", "bar.sync 2, 128;"));
  expectFault(FaultKind::SharedRace, exchange("bar.sync 0;", "")); // write after read
  expectFault(FaultKind::SharedRace, exchange("bar.warp.sync -1;", "bar.sync 0;"));
  expectFault(FaultKind::SharedRace, "  and.b32 %r3, %r2, 127;\n  st.shared.u32 [%r3], %r0;");
  StrictRun run(exchange("bar.sync 0;", ""));
  EXPECT_NE(run.result.fault.detail.find("store of 4 bytes of shared memory races with the load of "
                                         "warp "),
            std::string::npos)
      << run.result.fault.detail;
}

TEST(SharedRace, BarriersOfSomeWarps) {
  // Warp 0 fills, warps 1 and 2 read, warp 0 fills again.
  const std::string text = R"(
  setp.eq.u32 %p1, %r1, 0;
  setp.eq.u32 %p2, %r1, 3;
  @%p2 bra END;
  and.b32 %r3, %r0, 31;
  shl.b32 %r3, %r3, 2;
  @!%p1 bra CONSUME;
  st.shared.u32 [%r3], %r0;
  bar.arrive 5, 96;
  WAIT
  st.shared.u32 [%r3], %r0;
  bra.uni END;
CONSUME:
  bar.sync 5, 96;
  ld.shared.u32 %r4, [%r3];
  DONE
END:)";
  auto text2 = [&](const std::string &wait, const std::string &done) {
    return with(with(text, "WAIT", wait), "DONE", done);
  };
  expectRight(text2("bar.sync 6, 96;", "bar.arrive 6, 96;"));
  expectFault(FaultKind::SharedRace, text2("", ""));
  expectFault(FaultKind::SharedRace, text2("bar.warp.sync -1;", ""));
}

TEST(SharedRace, WithinAWarp) {
  // Neighbours exchange.
  const std::string text = R"(
  st.shared.u32 [%r2], %r0;
  SYNC
  xor.b32 %r3, %r2, 4;
  ld.shared.u32 %r4, [%r3];)";
  expectFault(FaultKind::SharedRace, with(text, "SYNC", ""), 32);
  expectRight(with(text, "SYNC", "bar.warp.sync -1;"), 32);
  expectRight(with(text, "SYNC", "shfl.sync.bfly.b32 %r5, %r0, 1, 31, -1;"), 32);
  // Only the lower half waits for each other.
  const std::string half = "setp.lt.u32 %p1, %r0, 16;\n  @%p1 bar.warp.sync 65535;";
  expectFault(FaultKind::SharedRace, with(text, "SYNC", half), 32);
  expectRight(with(text, "SYNC", half + "\n  @!%p1 bar.warp.sync 0xffff0000;"), 32);
}

TEST(SharedRace, BytesAndEqualValues) {
  // Halves of a word by neighbouring lanes of different warps.
  expectRight("  shl.b32 %r3, %r0, 1;\n  st.shared.u16 [%r3], %r0;");
  expectRight("  and.b32 %r3, %r0, 63;\n  mul.lo.u32 %r3, %r3, 2;\n  shr.u32 %r4, %r0, 6;\n"
              "  add.u32 %r3, %r3, %r4;\n  st.shared.u8 [%r3], %r0;");
  expectRight("  st.shared.u32 [0], 7;", 32);
  expectFault(FaultKind::SharedRace, "  st.shared.u32 [0], %r0;", 32);
  expectFault(FaultKind::SharedRace, "  st.shared.u32 [0], 7;", 64);
}

TEST(SharedRace, Atomics) {
  const std::string text = "  setp.eq.u32 %p1, %r0, 0;\n  @%p1 st.shared.u32 [0], 0;\n"
                           "  bar.sync 0;\n  atom.shared.add.u32 %r3, [0], 1;\n  SYNC\n"
                           "  ld.shared.u32 %r4, [0];\n  st.global.u32 [%d4], %r4;";
  expectRight(with(text, "SYNC", "bar.sync 0;"));
  StrictRun run(with(text, "SYNC", ""), 128);
  EXPECT_EQ(toString(run.result.fault.kind), "shared-race") << run.result.status.toString();
}

namespace {

const std::string kCopies = R"(
  cp.async.ca.shared.global [%r2], [%d3], 4;
  cp.async.commit_group;
  cp.async.ca.shared.global [%r2+512], [%d3+128], 4;
  cp.async.commit_group;
  WAIT
  ld.shared.u32 %r4, [ADDRESS];
  st.global.u32 [%d4], %r4;)";

std::string copies(const std::string &wait, const std::string &address) {
  return with(with(kCopies, "WAIT", wait), "ADDRESS", address);
}

} // namespace

TEST(UnfinishedCopy, OwnThread) {
  expectRight(copies("cp.async.wait_group 0;", "%r2+512"));
  expectRight(copies("cp.async.wait_all;", "%r2+512"));
  expectRight(copies("cp.async.wait_group 1;", "%r2"));
  expectFault(FaultKind::UnfinishedCopy, copies("cp.async.wait_group 1;", "%r2+512"));
  expectFault(FaultKind::UnfinishedCopy, copies("cp.async.wait_group 2;", "%r2"));
  expectFault(FaultKind::UnfinishedCopy, copies("bar.sync 0;", "%r2"));
  expectFault(FaultKind::UnfinishedCopy,
              "  cp.async.ca.shared.global [%r2], [%d3], 4;\n  st.shared.u32 [%r2], %r0;");
  expectFault(FaultKind::UnfinishedCopy, "  and.b32 %r3, %r2, 63;\n"
                                         "  cp.async.ca.shared.global [%r3], [%d3], 4;");
}

TEST(UnfinishedCopy, OtherThreads) {
  std::string other = "add.u32 %r5, %r0, 37;\n  and.b32 %r5, %r5, 127;\n  shl.b32 %r5, %r5, 2;\n  ";
  expectRight(copies("cp.async.wait_all;\n  bar.sync 0;\n  " + other, "%r5"));
  expectRight(copies("cp.async.wait_group 1;\n  bar.sync 0;\n  " + other, "%r5"));
  expectFault(FaultKind::UnfinishedCopy, copies("bar.sync 0;\n  " + other, "%r5"));
  expectFault(FaultKind::UnfinishedCopy,
              copies("cp.async.wait_group 2;\n  bar.sync 0;\n  " + other, "%r5"));
  // Whether the other has waited yet is luck; that nothing orders the two is not.
  for (uint64_t seed : {0, 1, 2, 3}) {
    for (const std::string &wait :
         {"cp.async.wait_all;\n  " + other, "bar.sync 0;\n  cp.async.wait_all;\n  " + other}) {
      StrictRun run(copies(wait, "%r5"), 128, 1, {1, 1 << 20, seed});
      EXPECT_FALSE(run.result.status.ok());
      EXPECT_TRUE(run.result.fault.kind == FaultKind::UnfinishedCopy ||
                  run.result.fault.kind == FaultKind::SharedRace ||
                  run.result.fault.kind == FaultKind::UninitialisedShared)
          << run.result.status.toString();
    }
  }
  StrictRun late(copies("cp.async.wait_all;\n  xor.b32 %r5, %r2, 4;", "%r5"), 32);
  EXPECT_NE(late.result.fault.detail.find("there is no barrier after that wait"), std::string::npos)
      << late.result.status.toString();
}

TEST(UnfinishedCopy, MayNotOverwriteWhatOthersStillRead) {
  const std::string text = R"(
  st.shared.u32 [%r2], %r0;
  bar.sync 0;
  xor.b32 %r3, %r2, 256;
  ld.shared.u32 %r4, [%r3];
  SYNC
  cp.async.ca.shared.global [%r2], [%d3], 4;
  cp.async.wait_all;)";
  expectRight(with(text, "SYNC", "bar.sync 0;"));
  expectFault(FaultKind::SharedRace, with(text, "SYNC", ""));
}

TEST(GlobalRace, BetweenBlocks) {
  const std::string own = "  mov.u32 %r3, %ctaid.x;\n  mul.lo.u32 %r4, %r3, 512;\n"
                          "  cvt.u64.u32 %d5, %r4;\n  add.u64 %d6, %d4, %d5;\n";
  expectRight(own + "  st.global.u32 [%d6], %r3;\n  ld.global.u32 %r5, [%d6];", 128, 2);
  expectFault(FaultKind::GlobalRace, "  st.global.u32 [%d4], 7;", 128, 2);
  expectFault(FaultKind::GlobalRace,
              own + "  st.global.u32 [%d6], %r3;\n  ld.global.u32 %r5, [%d4];", 128, 2);
  expectFault(FaultKind::GlobalRace,
              own + "  ld.global.u32 %r5, [%d4+512];\n  st.global.u32 [%d6], %r3;", 128, 2);
  // Halves of a word.
  expectRight("  mov.u32 %r3, %ctaid.x;\n  mul.wide.u32 %d5, %r3, 2;\n  add.u64 %d6, %d4, %d5;\n"
              "  st.global.u16 [%d6], %r3;",
              128, 2);
  expectFault(FaultKind::GlobalRace, "  st.global.u32 [%d1], %r0;", 32);
  expectRight("  st.global.u32 [%d1], 7;", 32);
}

TEST(GlobalRace, AtomicsOrderBlocks) {
  // Each block writes its row; the one that counts last reads all.
  const std::string text = R"(
  mov.u32 %r3, %ctaid.x;
  mul.lo.u32 %r4, %r3, 128;
  cvt.u64.u32 %d5, %r4;
  add.u64 %d6, %d4, %d5;
  st.global.u32 [%d6], %r3;
  bar.warp.sync -1;
  setp.eq.u32 %p1, %r0, 0;
  mov.u32 %r6, 0;
  COUNT
  setp.eq.u32 %p2, %r6, 3;
  vote.sync.any.pred %p3, %p2, -1;
  @!%p3 bra END;
  ld.global.u32 %r5, [%d4];
  ld.global.u32 %r5, [%d4+128];
  ld.global.u32 %r5, [%d4+256];
END:)";
  expectRight(with(text, "COUNT", "@%p1 atom.global.add.u32 %r6, [counter], 1;"), 32, 4);
  expectFault(FaultKind::GlobalRace, with(text, "COUNT", "mov.u32 %r6, %r3;"), 32, 4);
  // Adding is no race, adding and reading is.
  expectRight("  red.global.add.u32 [%d1], 1;", 32, 4);
  expectFault(FaultKind::GlobalRace,
              "  mov.u32 %r3, %ctaid.x;\n  setp.eq.u32 %p1, %r3, 0;\n"
              "  @%p1 ld.global.u32 %r4, [%d1];\n  @!%p1 red.global.add.u32 [%d1], 1;",
              32, 4);
}

TEST(Strict, ABarrierThatNeverCompletes) {
  StrictRun run("  bar.arrive 3, 256;");
  EXPECT_EQ(run.result.fault.detail, "the block has ended while barrier 3 has 128 of 256 threads");
}

TEST(Strict, ResultsThatDependOnTheOrder) {
  const std::string last = "  mov.u32 %r3, %ctaid.x;\n  atom.global.exch.b32 %r4, [%d4], %r3;";
  StrictRun lucky(last, 32, 7, {1, 1 << 20, 0, 8});
  EXPECT_EQ(toString(lucky.result.fault.kind), "unordered-result");
  EXPECT_NE(lucky.result.status.message().find("byte "), std::string::npos);
  // Two orders are enough: another block comes first.
  for (uint32_t blocks : {2u, 3u, 8u})
    EXPECT_EQ(toString(StrictRun(last, 32, blocks, {1, 1 << 20, 0, 2}).result.fault.kind),
              "unordered-result");
  StrictRun sure("  red.global.add.u32 [%d4], 1;", 32, 7, {1, 1 << 20, 0, 8});
  EXPECT_TRUE(sure.result.status.ok()) << sure.result.status.toString();
  EXPECT_EQ(sure.out[0], 7u); // each order began from the same data
}

TEST(Strict, FaultsNameTheLineOfTheSpec) {
  std::string text = kernelText("  .loc 1 12 3\n  ld.global.u32 %r1, [%d0+4000000];") +
                     ".file 1 \"k.cu\"\n//llmopt.spec 3 9 spec file.mlir:2\n"
                     "//llmopt.spec 10 20 spec file.mlir:5\n";
  std::vector<uint32_t> in(4), out(4);
  RunResult result = runKernel(text, in, out);
  EXPECT_EQ(result.fault.specFile, "spec file.mlir");
  EXPECT_EQ(result.fault.specLine, 5u);
  EXPECT_NE(result.status.message().find("(k.cu:12) of spec file.mlir:5"), std::string::npos)
      << result.status.message();
}

TEST(Profile, CountsByInstructionAndBuffer) {
  auto module = load(kernelText("  and.b32 %r1, %r0, 7;\n  mul.wide.u32 %d2, %r1, 4;\n"
                                "  add.u64 %d3, %d0, %d2;\n  ld.global.u32 %r2, [%d3];\n"
                                "  mul.wide.u32 %d2, %r0, 4;\n  add.u64 %d4, %d1, %d2;\n"
                                "  setp.lt.u32 %p1, %r0, 8;\n  @%p1 st.global.u32 [%d4], %r2;"));
  alignas(32) uint32_t in[64] = {}, out[64] = {};
  GlobalMemory memory;
  ASSERT_TRUE(memory.add(in, sizeof(in), "in", Access::ReadOnly).ok());
  ASSERT_TRUE(memory.add(out, sizeof(out), "out", Access::ReadWrite).ok());
  Params params;
  params.add(&in[0]).add(&out[0]);
  Profile profile;
  auto counters =
      run(*module, memory, {"k", {1, 1, 1}, {64, 1, 1}, 0, params.span()}, {1}, nullptr, &profile);
  ASSERT_TRUE(counters.ok()) << counters.status().toString();
  uint64_t warps = 0, loads = 0;
  for (const InstProfile &inst : profile.instructions) {
    warps += inst.warps;
    loads += inst.globalLoadBytes;
    if (inst.text.find("st.global") != std::string::npos)
      EXPECT_EQ(inst.lanes, 8u);
  }
  EXPECT_EQ(warps, counters->warpInstructions);
  EXPECT_EQ(loads, 256u);
  ASSERT_EQ(profile.buffers.size(), 2u);
  std::sort(profile.buffers.begin(), profile.buffers.end(),
            [](const BufferProfile &a, const BufferProfile &b) { return a.name < b.name; });
  EXPECT_EQ(profile.buffers[0].loadBytes, 256u);
  EXPECT_EQ(profile.buffers[0].sectors, 2u); // each warp reads one
  EXPECT_EQ(profile.buffers[0].uniqueLoadBytes, 32u);
  EXPECT_EQ(profile.buffers[1].storeBytes, 32u);
  EXPECT_EQ(profile.buffers[1].uniqueStoreBytes, 32u);
}

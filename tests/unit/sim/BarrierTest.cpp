// Barriers of a block, and cp.async with its groups.
#include "tests/unit/sim/Support.h"

#include <cmath>
#include <numeric>

using namespace llmopt::sim;
using namespace llmopt::sim::test;

namespace {

struct BlockRun {
  std::vector<uint32_t> in = std::vector<uint32_t>(256), out = std::vector<uint32_t>(256);
  RunResult result;
  BlockRun(const std::string &body, uint32_t threads = 128, Options options = {1}) {
    std::iota(in.begin(), in.end(), 1000);
    result = runKernel(
        kernelText("  mov.u32 %r63, s;\n  shr.u32 %r1, %r0, 5;\n  mul.wide.u32 %d2, %r0, 4;\n"
                   "  add.u64 %d3, %d0, %d2;\n  add.u64 %d4, %d1, %d2;\n" +
                       body,
                   ".shared .align 16 .b8 s[4096];"),
        in, out, {threads, 1, 1}, {1, 1, 1}, 0, options);
  }
};

/// Each thread writes its number and reads that of the thread 37 further on.
const std::string kExchange = R"(
  shl.b32 %r2, %r0, 2;
  st.shared.u32 [%r2], %r0;
  BARRIER
  add.u32 %r3, %r0, 37;
  and.b32 %r3, %r3, 127;
  shl.b32 %r3, %r3, 2;
  ld.shared.u32 %r4, [%r3];
  st.global.u32 [%d4], %r4;)";

std::string exchangeWith(const std::string &barrier) {
  std::string text = kExchange;
  return text.replace(text.find("BARRIER"), 7, barrier);
}

} // namespace

TEST(Barrier, AllThreadsMeet) {
  for (std::string barrier :
       {"bar.sync 0;", "barrier.sync.aligned 3;", "barrier.cta.sync 1, 128;", "bar.sync 2, 128;"}) {
    for (uint64_t seed : {0, 1, 2, 3}) {
      BlockRun run(exchangeWith(barrier), 128, {1, 1 << 20, seed});
      ASSERT_TRUE(run.result.status.ok()) << run.result.status.toString();
      for (uint32_t t = 0; t < 128; ++t)
        EXPECT_EQ(run.out[t], (t + 37) % 128);
    }
  }
}

TEST(Barrier, Reductions) {
  BlockRun run(R"(
  setp.lt.u32 %p1, %r0, 70;
  bar.red.popc.u32 %r2, 0, %p1;
  bar.red.and.pred %p2, 0, %p1;
  bar.red.or.pred %p3, 0, !%p1;
  selp.u32 %r3, 1000, 0, %p2;
  selp.u32 %r4, 10000, 0, %p3;
  add.u32 %r2, %r2, %r3;
  add.u32 %r2, %r2, %r4;
  st.global.u32 [%d4], %r2;)");
  ASSERT_TRUE(run.result.status.ok()) << run.result.status.toString();
  for (uint32_t t = 0; t < 128; ++t)
    EXPECT_EQ(run.out[t], 10070u);
}

TEST(Barrier, ProducersArriveAndConsumersWait) {
  // Warp 0 fills, warps 1 and 2 read; warp 3 has nothing to do with it.
  BlockRun run(R"(
  setp.eq.u32 %p1, %r1, 0;
  setp.eq.u32 %p2, %r1, 3;
  @%p2 bra END;
  @!%p1 bra CONSUME;
  shl.b32 %r2, %r0, 2;
  st.shared.u32 [%r2], %r0;
  bar.arrive 5, 96;
  bra.uni END;
CONSUME:
  bar.sync 5, 96;
  and.b32 %r3, %r0, 31;
  shl.b32 %r3, %r3, 2;
  ld.shared.u32 %r4, [%r3];
  st.global.u32 [%d4], %r4;
END:)");
  ASSERT_TRUE(run.result.status.ok()) << run.result.status.toString();
  for (uint32_t t = 32; t < 96; ++t)
    EXPECT_EQ(run.out[t], t % 32);
}

TEST(Barrier, AProducerMayArriveAgainAtOnce) {
  // Warp 0 waits at barrier 1 twice; warp 1 arrives at it, waits for the answer
  // at barrier 2 and arrives again.
  BlockRun run(R"(
  setp.eq.u32 %p1, %r1, 0;
  @!%p1 bra PRODUCE;
  bar.sync 1, 64;
  bar.arrive 2, 64;
  bar.sync 1, 64;
  bra.uni END;
PRODUCE:
  bar.arrive 1, 64;
  bar.sync 2, 64;
  bar.arrive 1, 64;
END:
  st.global.u32 [%d4], 1;)",
               64);
  EXPECT_TRUE(run.result.status.ok()) << run.result.status.toString();
  BlockRun twice("  setp.eq.u32 %p1, %r1, 0;\n  @%p1 bra END;\n  bar.arrive 1, 96;\n"
                 "  bar.arrive 1, 96;\nEND:",
                 64);
  EXPECT_EQ(twice.result.fault.kind, FaultKind::InvalidBarrier);
}

TEST(Barrier, ExitedThreadsAreNotWaitedFor) {
  BlockRun run(
      "  setp.ge.u32 %p1, %r0, 64;\n  @%p1 exit;\n  bar.sync 0;\n  st.global.u32 [%d4], 1;");
  EXPECT_TRUE(run.result.status.ok()) << run.result.status.toString();
  BlockRun partial(
      "  setp.ge.u32 %p1, %r0, 70;\n  @%p1 exit;\n  bar.sync 0;\n  st.global.u32 [%d4], 1;");
  EXPECT_TRUE(partial.result.status.ok()) << partial.result.status.toString();
}

TEST(Barrier, ThreadsOfAnUnalignedBarrierMayComeFromDifferentPlaces) {
  std::string text = R"(
  and.b32 %r5, %r0, 1;
  setp.eq.u32 %p1, %r5, 0;
  shl.b32 %r2, %r0, 2;
  st.shared.u32 [%r2], %r0;
  @%p1 bra EVEN;
  barrier.sync 0;
  bra.uni JOIN;
EVEN:
  BARRIER 0;
JOIN:
  st.global.u32 [%d4], %r0;)";
  auto with = [&](const std::string &barrier) {
    std::string copy = text;
    return copy.replace(copy.find("BARRIER"), 7, barrier);
  };
  BlockRun run(with("barrier.sync"));
  EXPECT_TRUE(run.result.status.ok()) << run.result.status.toString();
  BlockRun aligned(with("bar.sync"));
  EXPECT_EQ(aligned.result.fault.kind, FaultKind::Deadlock) << aligned.result.status.toString();
}

TEST(BarrierFault, Kinds) {
  auto kind = [](const std::string &body) {
    BlockRun run(body);
    EXPECT_FALSE(run.result.status.ok()) << body;
    return run.result.fault.kind;
  };
  // Half of each warp never comes.
  EXPECT_EQ(
      kind("  and.b32 %r2, %r0, 1;\n  setp.eq.u32 %p1, %r2, 0;\n  @%p1 bra A;\n  bar.sync 0;\n"
           "  bra.uni B;\nA:\n  bar.sync 1;\nB:"),
      FaultKind::DivergentSync);
  // Warp 0 waits elsewhere.
  EXPECT_EQ(kind("  setp.eq.u32 %p1, %r1, 0;\n  @%p1 bra A;\n  bar.sync 0;\n  bra.uni B;\nA:\n"
                 "  bar.sync 1;\nB:"),
            FaultKind::Deadlock);
  EXPECT_EQ(kind("  bar.sync 16;"), FaultKind::InvalidBarrier);
  EXPECT_EQ(kind("  bar.sync 1, 100;"), FaultKind::InvalidBarrier);
  EXPECT_EQ(kind("  bar.sync 1, 160;"), FaultKind::Deadlock);
}

TEST(BarrierFault, DeadlockNamesWhoWaitsWhere) {
  BlockRun run("  setp.eq.u32 %p1, %r1, 0;\n  @%p1 bra A;\n  bar.sync 0;\n  bra.uni B;\nA:\n  "
               "bar.sync 1;\nB:");
  EXPECT_EQ(
      run.result.fault.detail,
      "no warp of the block can go on; waiting: warp 0 lanes 0xffffffff at line 26 (barrier 1), "
      "warp 1 lanes 0xffffffff at line 23 (barrier 0), warp 2 lanes 0xffffffff at line 23 "
      "(barrier 0), warp 3 lanes 0xffffffff at line 23 (barrier 0)");
}

TEST(WarpSync, LanesFromDifferentPlacesMeet) {
  BlockRun run(R"(
  setp.lt.u32 %p1, %r0, 16;
  shl.b32 %r2, %r0, 2;
  mov.u32 %r4, 0;
  @%p1 bra A;
  st.shared.u32 [%r2], %r0;
  bar.warp.sync -1;
  bra.uni B;
A:
  bar.warp.sync -1;
  ld.shared.u32 %r4, [%r2+64];
B:
  st.global.u32 [%d4], %r4;)",
               32);
  ASSERT_TRUE(run.result.status.ok()) << run.result.status.toString();
  for (uint32_t t = 0; t < 16; ++t)
    EXPECT_EQ(run.out[t], t + 16);
}

namespace {

// Two copies in two groups; WAIT; both words are stored.
const std::string kCopies = R"(
  shl.b32 %r2, %r0, 2;
  cp.async.ca.shared.global [%r2], [%d3], 4;
  cp.async.commit_group;
  cp.async.ca.shared.global [%r2+512], [%d3+128], 4;
  cp.async.commit_group;
  WAIT
  ld.shared.u32 %r3, [%r2];
  ld.shared.u32 %r4, [%r2+512];
  shl.b32 %r5, %r4, 16;
  add.u32 %r5, %r5, %r3;
  st.global.u32 [%d4], %r5;)";

// The numbers must tell without the checks, too.
uint32_t firstOf(const std::string &wait) {
  std::string text = kCopies;
  BlockRun run(text.replace(text.find("WAIT"), 4, wait), 32, kRelaxed);
  EXPECT_TRUE(run.result.status.ok()) << run.result.status.toString();
  return run.out[3];
}

} // namespace

TEST(AsyncCopy, ArrivesAtTheWaitAndNotBefore) {
  constexpr uint32_t kGarbage = 0xffffffff;
  uint32_t first = 1003, second = 1035;
  EXPECT_EQ(firstOf("cp.async.wait_group 0;"), (second << 16) + first);
  EXPECT_EQ(firstOf("cp.async.wait_all;"), (second << 16) + first);
  EXPECT_EQ(firstOf("cp.async.wait_group 1;"), (kGarbage << 16) + first);
  EXPECT_EQ(firstOf("cp.async.wait_group 2;"), (kGarbage << 16) + kGarbage);
  EXPECT_EQ(firstOf(""), (kGarbage << 16) + kGarbage);
}

TEST(AsyncCopy, UncommittedCopiesWaitForAll) {
  BlockRun group(
      "  shl.b32 %r2, %r0, 2;\n  cp.async.ca.shared.global [%r2], [%d3], 4;\n"
      "  cp.async.wait_group 0;\n  ld.shared.u32 %r3, [%r2];\n  st.global.u32 [%d4], %r3;",
      32, kRelaxed);
  EXPECT_EQ(group.out[1], 0xffffffffu);
}

TEST(AsyncCopy, SourceSizeFillsWithZeros) {
  BlockRun run(R"(
  shl.b32 %r2, %r0, 4;
  mul.wide.u32 %d5, %r0, 16;
  add.u64 %d6, %d0, %d5;
  and.b32 %r3, %r0, 3;
  shl.b32 %r3, %r3, 2;
  cp.async.cg.shared.global.L2::128B [%r2], [%d6], 16, %r3;
  cp.async.wait_all;
  ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r2];
  add.u64 %d7, %d1, %d5;
  st.global.v4.u32 [%d7], {%r4, %r5, %r6, %r7};)",
               32);
  ASSERT_TRUE(run.result.status.ok()) << run.result.status.toString();
  for (uint32_t t = 0; t < 32; ++t)
    for (uint32_t i = 0; i < 4; ++i)
      EXPECT_EQ(run.out[4 * t + i], i < t % 4 ? 1000 + 4 * t + i : 0u);
}

TEST(AsyncCopy, GroupsBelongToLanes) {
  // Odd lanes commit an empty group more, so that waiting for all but one
  // completes their copy and not that of the even lanes.
  BlockRun run(R"(
  shl.b32 %r2, %r0, 2;
  cp.async.ca.shared.global [%r2], [%d3], 4;
  cp.async.commit_group;
  and.b32 %r4, %r0, 1;
  setp.eq.u32 %p1, %r4, 1;
  @%p1 cp.async.commit_group;
  cp.async.wait_group 1;
  ld.shared.u32 %r3, [%r2];
  st.global.u32 [%d4], %r3;)",
               32, kRelaxed);
  EXPECT_EQ(run.out[1], 1001u);
  EXPECT_EQ(run.out[2], 0xffffffffu);
}

TEST(AsyncCopy, ChecksBothSides) {
  auto kind = [](const std::string &copy) {
    BlockRun run("  shl.b32 %r2, %r0, 4;\n" + copy, 32);
    EXPECT_FALSE(run.result.status.ok()) << copy;
    return run.result.fault.kind;
  };
  EXPECT_EQ(kind("  cp.async.cg.shared.global [%r2+4000], [%d0], 16;"),
            FaultKind::SharedOutOfBounds);
  EXPECT_EQ(kind("  cp.async.cg.shared.global [%r2], [%d0+1024], 16;"),
            FaultKind::GlobalOutOfBounds);
  EXPECT_EQ(kind("  cp.async.cg.shared.global [%r2], [%d0+8], 16;"), FaultKind::Misaligned);
  EXPECT_EQ(kind("  cp.async.cg.shared.global [%r2+8], [%d0], 16;"), FaultKind::Misaligned);
  // Nothing is read, so the source may be anywhere.
  BlockRun run("  shl.b32 %r2, %r0, 4;\n  mov.u32 %r3, 0;\n  cp.async.cg.shared.global [%r2], "
               "[%d0+4096], 16, %r3;",
               32);
  EXPECT_TRUE(run.result.status.ok()) << run.result.status.toString();
}

// mbarrier (PTX ISA 9.7.13.15), cp.async.mbarrier.arrive, elect, setmaxnreg.
#include "tests/unit/sim/AsyncSupport.h"

using namespace llmopt::sim;
using namespace llmopt::sim::test;

namespace {

struct Outcome {
  RunResult result;
  std::vector<uint32_t> out = std::vector<uint32_t>(512);
  std::string kind() const {
    return result.status.ok() ? "" : std::string(toString(result.fault.kind));
  }
};

/// Runs a body with %r1 = bar, %r2 = s, %p1 = thread 0, %d4 = out + 4 * thread.
Outcome execute(const std::string &body, uint32_t threads = 128, uint64_t seed = 0) {
  Outcome outcome;
  std::vector<uint32_t> in(512);
  std::iota(in.begin(), in.end(), 100);
  outcome.result = runKernel(kernelText("  mul.wide.u32 %d2, %r0, 4;\n  add.u64 %d3, %d0, %d2;\n"
                                        "  add.u64 %d4, %d1, %d2;\n" +
                                            body,
                                        kTensorShared),
                             in, outcome.out, {threads, 1, 1}, {1, 1, 1}, 0, {1, 1 << 20, seed});
  return outcome;
}

std::string kindOf(const std::string &body, uint32_t threads = 128) {
  return execute(body, threads).kind();
}

} // namespace

TEST(MBarrier, HandsOverWhatWasStored) {
  // Every thread arrives, waits, and reads its neighbour's word.
  const std::string exchange = initBarrier(128) + R"(
  shl.b32 %r3, %r0, 2;
  add.u32 %r3, %r3, %r2;
  st.shared.u32 [%r3], %r0;
  mbarrier.arrive.shared::cta.b64 %d5, [%r1];
W:
  mbarrier.try_wait.shared::cta.b64 %p2, [%r1], %d5;
  @!%p2 bra W;
  add.u32 %r4, %r0, 37;
  and.b32 %r4, %r4, 127;
  shl.b32 %r4, %r4, 2;
  add.u32 %r4, %r4, %r2;
  ld.shared.u32 %r5, [%r4];
  st.global.u32 [%d4], %r5;
)";
  for (uint64_t seed : {0, 1, 2}) {
    Outcome outcome = execute(exchange, 128, seed);
    ASSERT_EQ(outcome.kind(), "") << outcome.result.status.toString();
    for (uint32_t i = 0; i < 128; ++i)
      EXPECT_EQ(outcome.out[i], (i + 37) % 128);
  }
  EXPECT_EQ(kindOf(with(exchange, "try_wait.shared", "test_wait.shared")), "");
  EXPECT_EQ(kindOf(with(exchange, "try_wait.shared", "try_wait.acquire.cta.shared")), "");
  EXPECT_EQ(kindOf(with(exchange, "try_wait.shared", "try_wait.relaxed.cta.shared")),
            "shared-race");
  EXPECT_EQ(kindOf(with(exchange, "  @!%p2 bra W;\n", "")), ""); // it waits all the same here
  EXPECT_EQ(kindOf(with(exchange,
                        "W:\n  mbarrier.try_wait.shared::cta.b64 %p2, [%r1], %d5;\n"
                        "  @!%p2 bra W;\n",
                        "")),
            "uninitialised-shared");
  EXPECT_EQ(kindOf(with(exchange, "b64 [%r1], 128;", "b64 [%r1], 129;")), "deadlock");
  EXPECT_EQ(kindOf(with(exchange, "b64 [%r1], 128;", "b64 [%r1], 64;")), "uninitialised-shared");
  EXPECT_EQ(kindOf(with(with(exchange, "b64 [%r1], 128;", "b64 [%r1], 129;"), "try_wait.shared",
                        "test_wait.shared")),
            "deadlock");
  Outcome dead = execute(with(exchange, "b64 [%r1], 128;", "b64 [%r1], 129;"));
  EXPECT_NE(dead.result.fault.detail.find("warp 3 lanes 0xffffffff at line"), std::string::npos)
      << dead.result.fault.detail;
  EXPECT_NE(dead.result.fault.detail.find("1 of 129 arrivals are missing"), std::string::npos);
}

TEST(MBarrier, Phases) {
  // Thread 0 writes what the parity test says before, between and after two phases.
  const std::string test = "  mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r1], PARITY;\n"
                           "  selp.u32 %r5, 1, 0, %p2;\n  st.global.u32 [%d1+AT], %r5;\n";
  std::string body = initBarrier(2) + "  @!%p1 exit;\n";
  int at = 0;
  auto ask = [&] {
    for (const char *parity : {"0", "1"}) {
      body += with(with(test, "PARITY", parity), "AT", std::to_string(at));
      at += 4;
    }
  };
  ask();
  body += "  mbarrier.arrive.shared::cta.b64 _, [%r1], 2;\n";
  ask();
  body += "  mbarrier.arrive.shared.b64 %d5, [%r1];\n";
  ask();
  body += "  mbarrier.arrive.release.cta.shared::cta.b64 %d6, [%r1];\n"
          "  mbarrier.pending_count.b64 %r6, %d5;\n  st.global.u32 [%d1+40], %r6;\n"
          "  mbarrier.pending_count.b64 %r6, %d6;\n  st.global.u32 [%d1+44], %r6;\n";
  ask();
  Outcome outcome = execute(body);
  ASSERT_EQ(outcome.kind(), "") << outcome.result.status.toString();
  // The phase before the first has parity 1 and counts as complete.
  EXPECT_EQ(std::vector<uint32_t>(outcome.out.begin(), outcome.out.begin() + 12),
            (std::vector<uint32_t>{0, 1, 1, 0, 1, 0, 0, 1, 0, 0, 2, 1}));
}

TEST(MBarrier, DropsAndCounts) {
  const std::string drop = initBarrier(2) + R"(
  @!%p1 exit;
  mbarrier.arrive_drop.shared::cta.b64 _, [%r1];
  mbarrier.arrive.shared::cta.b64 _, [%r1];
  mbarrier.arrive.shared::cta.b64 _, [%r1];
  mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r1], 1;
  selp.u32 %r5, 1, 0, %p2;
  st.global.u32 [%d1], %r5;
)";
  Outcome outcome = execute(drop);
  ASSERT_EQ(outcome.kind(), "") << outcome.result.status.toString();
  EXPECT_EQ(outcome.out[0], 1u); // the second phase needs one arrival
  const std::string bytes = initBarrier(1) + R"(
  @!%p1 exit;
  mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 48;
  mbarrier.arrive.shared::cta.b64 _, [%r1];
  mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 16;
  mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], REST;
  mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r1], 0;
  selp.u32 %r5, 1, 0, %p2;
  st.global.u32 [%d1], %r5;
)";
  outcome = execute(with(bytes, "REST", "32"));
  EXPECT_EQ(outcome.kind(), "");
  EXPECT_EQ(outcome.out[0], 1u);
  EXPECT_EQ(execute(with(bytes, "REST", "16")).out[0], 0u);
}

TEST(MBarrier, MistakesInItsUse) {
  const std::string arrive = "  mbarrier.arrive.shared::cta.b64 _, [%r1];\n";
  EXPECT_EQ(kindOf("  mov.u32 %r1, bar;\n" + arrive), "invalid-barrier");
  EXPECT_EQ(kindOf(initBarrier(64) + arrive), "");
  EXPECT_EQ(kindOf(initBarrier(1) + "  mbarrier.arrive.shared::cta.b64 _, [%r1], 2;"),
            "invalid-barrier");
  EXPECT_EQ(
      kindOf(with(initBarrier(128), "  bar.sync 0;\n", "") + "  bar.warp.sync -1;\n" + arrive),
      "shared-race"); // the other warps do not know that it is there
  EXPECT_EQ(kindOf(initBarrier(1) + "  @%p1 mbarrier.init.shared.b64 [%r1], 1;"),
            "invalid-barrier");
  EXPECT_EQ(kindOf(initBarrier(1) + "  @%p1 mbarrier.inval.shared.b64 [%r1];\n"
                                    "  @%p1 mbarrier.init.shared.b64 [%r1], 1;"),
            "");
  EXPECT_EQ(kindOf(with(initBarrier(1), "cta.b64 [%r1], 1;", "cta.b64 [%r1], 0;")),
            "invalid-barrier");
  EXPECT_EQ(kindOf(initBarrier(1) + "  @%p1 mbarrier.arrive.shared::cta.b64 _, [%r1+4];"),
            "misaligned");
  EXPECT_EQ(
      kindOf(initBarrier(1) + "  @%p1 mbarrier.arrive.noComplete.shared::cta.b64 %d5, [%r1], 1;"),
      "invalid-barrier");
}

TEST(MBarrier, ArrivesWhenCopiesAreThere) {
  const std::string copy = initBarrier(128) + R"(
  shl.b32 %r3, %r0, 2;
  add.u32 %r3, %r3, %r2;
  cp.async.ca.shared.global [%r3], [%d3], 4;
  cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r1];
)" + waitFor(0) + R"(
  xor.b32 %r4, %r3, 64;
  ld.shared.u32 %r5, [%r4];
  st.global.u32 [%d4], %r5;
)";
  Outcome outcome = execute(copy);
  ASSERT_EQ(outcome.kind(), "") << outcome.result.status.toString();
  for (uint32_t i = 0; i < 128; ++i)
    EXPECT_EQ(outcome.out[i], 100 + (i ^ 16));
  // Without .noinc it makes its own arrival, and the phase waits for others.
  std::string both = with(copy, ".noinc", "");
  EXPECT_EQ(kindOf(both), "deadlock");
  EXPECT_EQ(
      kindOf(with(both, waitFor(0), "  mbarrier.arrive.shared::cta.b64 _, [%r1];\n" + waitFor(0))),
      "");
  // A copy after the arrival is not part of it.
  EXPECT_EQ(kindOf(with(copy, "W:\n", "  cp.async.ca.shared.global [%r3+2048], [%d3], 4;\nW:\n")),
            "");
  EXPECT_EQ(
      kindOf(with(with(copy, "W:\n", "  cp.async.ca.shared.global [%r3+2048], [%d3], 4;\nW:\n"),
                  "[%r4];", "[%r4+2048];")),
      "unfinished-copy");
}

TEST(Elect, TheLowestLane) {
  const std::string body = R"(
  setp.gt.u32 %p4, %r0, 4;
  mov.u32 %r3, 0xffffffe0;
  @!%p4 bra DONE;
  elect.sync %r5|%p2, %r3;
  selp.u32 %r6, 100, 0, %p2;
  add.u32 %r5, %r5, %r6;
  st.global.u32 [%d4], %r5;
  elect.sync _|%p2, %r3;
  setmaxnreg.inc.sync.aligned.u32 64;
DONE:
)";
  Outcome outcome = execute(with(body, "  setmaxnreg.inc.sync.aligned.u32 64;\n", ""), 32);
  ASSERT_EQ(outcome.kind(), "") << outcome.result.status.toString();
  for (uint32_t i = 5; i < 32; ++i)
    EXPECT_EQ(outcome.out[i], i == 5 ? 105u : 5u);
  EXPECT_EQ(kindOf(body, 32), "divergent-sync");
}

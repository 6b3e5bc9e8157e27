// shfl, vote, match, redux, activemask, elect.
#include "tests/unit/sim/Support.h"

#include <numeric>

using namespace llmopt::sim;
using namespace llmopt::sim::test;

namespace {

/// Runs `body` with %r1 = in[lane] and stores %r2 to out[lane].
std::vector<uint32_t> perLane(const std::string &body, const std::vector<uint32_t> &in) {
  std::vector<uint32_t> out(32, 0xdeadbeef);
  RunResult result = runKernel(kernelText("  mul.wide.u32 %d2, %r0, 4;\n"
                                          "  add.u64 %d3, %d0, %d2;\n  add.u64 %d4, %d1, %d2;\n"
                                          "  ld.global.u32 %r1, [%d3];\n  mov.u32 %r2, 0;\n" +
                                          body + "\n  st.global.u32 [%d4], %r2;"),
                               in, out);
  EXPECT_TRUE(result.status.ok()) << result.status.toString();
  return out;
}

std::vector<uint32_t> iota() {
  std::vector<uint32_t> values(32);
  std::iota(values.begin(), values.end(), 100);
  return values;
}

} // namespace

TEST(Collective, ShuffleModes) {
  auto check = [&](const std::string &text, auto expected) {
    auto out = perLane(text, iota());
    for (uint32_t lane = 0; lane < 32; ++lane)
      EXPECT_EQ(out[lane], expected(lane)) << text << " lane " << lane;
  };
  check("shfl.sync.bfly.b32 %r2, %r1, 5, 31, -1;", [](uint32_t l) { return 100 + (l ^ 5); });
  check("shfl.sync.up.b32 %r2, %r1, 3, 0, -1;",
        [](uint32_t l) { return 100 + (l < 3 ? l : l - 3); });
  check("shfl.sync.down.b32 %r2, %r1, 3, 31, -1;",
        [](uint32_t l) { return 100 + (l > 28 ? l : l + 3); });
  check("shfl.sync.idx.b32 %r2, %r1, 7, 31, -1;", [](uint32_t) { return 107u; });
  // Segments of 8 lanes: c = (32 - 8) << 8 | 7.
  check("shfl.sync.idx.b32 %r2, %r1, 2, 6151, -1;", [](uint32_t l) { return 100 + (l & 24) + 2; });
  check("shfl.sync.down.b32 %r2, %r1, 1, 6151, -1;",
        [](uint32_t l) { return 100 + (l % 8 == 7 ? l : l + 1); });
  check("shfl.sync.up.b32 %r2, %r1, 1, 6144, -1;",
        [](uint32_t l) { return 100 + (l % 8 == 0 ? l : l - 1); });
  check("shfl.sync.down.b32 %r3|%p1, %r1, 3, 31, -1;\n selp.u32 %r2, 1, 0, %p1;",
        [](uint32_t l) { return l > 28 ? 0u : 1u; });
}

TEST(Collective, VoteMatchReduce) {
  std::vector<uint32_t> in(32);
  for (uint32_t l = 0; l < 32; ++l)
    in[l] = l % 4;
  auto all = [](const std::vector<uint32_t> &v) {
    return std::vector<uint32_t>(32, v[0]) == v ? v[0] : 0xbad;
  };
  EXPECT_EQ(all(perLane("setp.eq.u32 %p1, %r1, 1;\n vote.sync.ballot.b32 %r2, %p1, -1;", in)),
            0x22222222u);
  EXPECT_EQ(
      all(perLane(
          "setp.lt.u32 %p1, %r1, 4;\n vote.sync.all.pred %p2, %p1, -1;\n selp.u32 %r2, 1, 0, %p2;",
          in)),
      1u);
  EXPECT_EQ(
      all(perLane(
          "setp.eq.u32 %p1, %r1, 9;\n vote.sync.any.pred %p2, %p1, -1;\n selp.u32 %r2, 1, 0, %p2;",
          in)),
      0u);
  EXPECT_EQ(
      all(perLane(
          "setp.eq.u32 %p1, %r1, 9;\n vote.sync.uni.pred %p2, !%p1, -1;\n selp.u32 %r2, 1, 0, %p2;",
          in)),
      1u);
  auto match = perLane("match.any.sync.b32 %r2, %r1, -1;", in);
  for (uint32_t l = 0; l < 32; ++l)
    EXPECT_EQ(match[l], 0x11111111u << l % 4);
  EXPECT_EQ(all(perLane("match.all.sync.b32 %r2|%p1, %r1, -1;", in)), 0u);
  EXPECT_EQ(
      all(perLane(
          "mov.u32 %r1, 5;\n match.all.sync.b32 %r3|%p1, %r1, -1;\n selp.u32 %r2, 7, 0, %p1;", in)),
      7u);
  EXPECT_EQ(all(perLane("redux.sync.add.u32 %r2, %r1, -1;", in)), 48u);
  EXPECT_EQ(all(perLane("sub.s32 %r1, %r1, 2;\n redux.sync.min.s32 %r2, %r1, -1;", in)),
            0xfffffffeu);
  EXPECT_EQ(all(perLane("redux.sync.or.b32 %r2, %r1, -1;", in)), 3u);
  EXPECT_EQ(all(perLane("activemask.b32 %r2;", in)), 0xffffffffu);
  auto elected = perLane("elect.sync %r3|%p1, -1;\n selp.u32 %r2, 1, 0, %p1;", in);
  EXPECT_EQ(std::accumulate(elected.begin(), elected.end(), 0u), 1u);
}

TEST(Collective, GroupsWithTheirOwnMembers) {
  // Two halves shuffle at the same instruction with masks of their own.
  auto out = perLane("setp.lt.u32 %p1, %r0, 16;\n selp.b32 %r3, 0x0000ffff, 0xffff0000, %p1;\n"
                     "  redux.sync.max.u32 %r2, %r1, %r3;",
                     iota());
  for (uint32_t l = 0; l < 32; ++l)
    EXPECT_EQ(out[l], l < 16 ? 115u : 131u);
}

TEST(Collective, ReadingALaneThatIsNotThereIsAFault) {
  std::vector<uint32_t> in(32), out(32);
  RunResult result = runKernel(kernelText("  setp.lt.u32 %p1, %r0, 8;\n  @!%p1 bra DONE;\n"
                                          "  shfl.sync.bfly.b32 %r2, %r0, 16, 31, 0xff;\nDONE:"),
                               in, out);
  EXPECT_EQ(result.fault.kind, FaultKind::InvalidLane) << result.status.toString();
  result = runKernel(kernelText("  shfl.sync.bfly.b32 %r2, %r0, 1, 31, 0xff;"), in, out);
  EXPECT_EQ(result.fault.kind, FaultKind::InvalidLane) << result.status.toString();
}

TEST(Collective, LanesThatNeverComeAreAFault) {
  std::vector<uint32_t> in(32), out(32);
  RunResult result =
      runKernel(kernelText("  setp.lt.u32 %p1, %r0, 8;\n  @%p1 bra LOW;\n"
                           "  shfl.sync.bfly.b32 %r2, %r0, 1, 31, -1;\n  bra.uni DONE;\n"
                           "LOW:\n  shfl.sync.bfly.b32 %r2, %r0, 1, 31, -1;\nDONE:"),
                in, out);
  EXPECT_EQ(result.fault.kind, FaultKind::DivergentSync) << result.status.toString();
}

// Branches, divergence and reconvergence, loops, tables, calls, traps.
#include "tests/unit/sim/Support.h"

#include <algorithm>

using namespace llmopt::sim;
using namespace llmopt::sim::test;

namespace {

const char *kStore = R"(
  mul.wide.u32 %d2, %r0, 4;
  add.u64 %d3, %d1, %d2;
  st.global.u32 [%d3], %r2;)";

std::vector<uint32_t> runLanes(const std::string &body, const std::string &declarations = "",
                               RunResult *result = nullptr) {
  std::vector<uint32_t> in(64, 3), out(32);
  RunResult run = runKernel(kernelText(body + kStore, declarations), in, out);
  EXPECT_TRUE(result || run.status.ok()) << run.status.toString();
  if (result)
    *result = run;
  return out;
}

} // namespace

TEST(Control, BothSidesOfABranchMeetAgain) {
  // activemask behind the join sees all lanes: they went on together.
  auto out = runLanes(R"(
  and.b32 %r3, %r0, 1;
  setp.eq.u32 %p1, %r3, 0;
  @%p1 bra EVEN;
  mov.u32 %r2, 1;
  bra.uni JOIN;
EVEN:
  mov.u32 %r2, 2;
JOIN:
  activemask.b32 %r4;
  setp.ne.u32 %p2, %r4, 0xffffffff;
  @%p2 mov.u32 %r2, 99;)");
  for (uint32_t l = 0; l < 32; ++l)
    EXPECT_EQ(out[l], l % 2 ? 1u : 2u);
}

TEST(Control, LoopsWithDifferentTripCounts) {
  // Sum of 0 ... lane; a shuffle inside each iteration of the common part.
  RunResult result;
  auto out = runLanes(R"(
  mov.u32 %r2, 0;
  mov.u32 %r3, 0;
LOOP:
  add.u32 %r2, %r2, %r3;
  add.u32 %r3, %r3, 1;
  setp.le.u32 %p1, %r3, %r0;
  @%p1 bra LOOP;
  shfl.sync.idx.b32 %r4, %r2, 0, 31, -1;
  add.u32 %r2, %r2, %r4;)",
                      "", &result);
  EXPECT_TRUE(result.status.ok()) << result.status.toString();
  for (uint32_t l = 0; l < 32; ++l)
    EXPECT_EQ(out[l], l * (l + 1) / 2);
  EXPECT_EQ(result.counters.divergentBranches, 31u);
}

TEST(Control, NestedDivergenceAndEarlyExit) {
  auto out = runLanes(R"(
  mov.u32 %r2, 7;
  setp.lt.u32 %p1, %r0, 4;
  @%p1 bra SMALL;
  setp.lt.u32 %p2, %r0, 16;
  @%p2 exit;
  mov.u32 %r2, 20;
  bra.uni JOIN;
SMALL:
  setp.eq.u32 %p3, %r0, 2;
  @!%p3 bra JOIN;
  mov.u32 %r2, 2;
JOIN:)");
  for (uint32_t l = 0; l < 32; ++l)
    EXPECT_EQ(out[l], l == 2 ? 2u : l < 4 ? 7u : l < 16 ? 0u : 20u);
}

TEST(Control, BranchTable) {
  std::string body = R"(
  and.b32 %r3, %r0, 3;
  T: .branchtargets A, B, A, C;
  brx.idx %r3, T;
A:
  mov.u32 %r2, 10;
  bra.uni END;
B:
  mov.u32 %r2, 20;
  bra.uni END;
C:
  mov.u32 %r2, 30;
END:)";
  auto out = runLanes(body);
  for (uint32_t l = 0; l < 32; ++l)
    EXPECT_EQ(out[l], l % 4 == 1 ? 20u : l % 4 == 3 ? 30u : 10u);
  RunResult result;
  size_t at = body.find("and.b32 %r3, %r0, 3");
  body.replace(at, 19, "and.b32 %r3, %r0, 7");
  runLanes(body, "", &result);
  EXPECT_EQ(result.fault.kind, FaultKind::CallFailure);
  EXPECT_EQ(result.fault.lane, 4u);
}

TEST(Control, ScopesHideNamesAndLabels) {
  auto out = runLanes(R"(
  mov.u32 %r2, 5;
  { .reg .b32 %r2; mov.u32 %r2, 9;
    setp.eq.u32 %p1, %r2, 9;
    @%p1 bra L; mov.u32 %r2, 1; L: }
  { .reg .pred q; setp.eq.u32 q, %r2, 5; @q bra L; mov.u32 %r2, 77; L: })");
  EXPECT_EQ(out[0], 5u);
}

TEST(Control, CallsAreInlined) {
  const char *function = R"(
.func (.param .b32 result) triangle(.param .b32 n, .param .align 4 .b8 pair[8])
{
  .reg .pred p;
  .reg .b32 %r<9>;
  ld.param.u32 %r1, [n];
  ld.param.u32 %r4, [pair+4];
  mov.u32 %r2, 0;
  setp.eq.u32 p, %r1, 3;
  @p bra EARLY;
L:
  add.u32 %r2, %r2, %r1;
  sub.u32 %r1, %r1, 1;
  setp.gt.s32 p, %r1, 0;
  @p bra L;
  add.u32 %r2, %r2, %r4;
  st.param.b32 [result], %r2;
  ret;
EARLY:
  st.param.b32 [result], 1000;
  ret;
})";
  auto out = runLanes(R"(
  { .param .b32 a; .param .align 4 .b8 b[8]; .param .b32 c;
    st.param.b32 [a], %r0;
    st.param.b32 [b], 1;
    st.param.b32 [b+4], 100;
    call.uni (c), triangle, (a, b);
    ld.param.b32 %r2, [c]; }
  { .param .b32 a; .param .align 4 .b8 b[8]; .param .b32 c;
    st.param.b32 [a], 2;
    st.param.b32 [b+4], 0;
    call (c), triangle, (a, b);
    ld.param.b32 %r3, [c]; }
  add.u32 %r2, %r2, %r3;)",
                      function);
  for (uint32_t l = 1; l < 32; ++l)
    EXPECT_EQ(out[l], (l == 3 ? 1000 : l * (l + 1) / 2 + 100) + 3);
}

TEST(Control, ALaneThatHoldsALockGoesOn) {
  // Each lane in turn takes a spin lock whose release stands behind the spin.
  auto out = runLanes(R"(
  setp.eq.u32 %p1, %r0, 0;
  @%p1 st.shared.v2.u32 [lock], {%r0, %r0};
  bar.warp.sync -1;
SPIN:
  atom.shared.cas.b32 %r3, [lock], 0, 1;
  setp.ne.u32 %p2, %r3, 0;
  @%p2 bra SPIN;
  ld.shared.u32 %r2, [lock+4];
  add.u32 %r2, %r2, 1;
  st.shared.u32 [lock+4], %r2;
  atom.shared.exch.b32 %r3, [lock], 0;)",
                      ".shared .align 8 .b32 lock[2];");
  std::sort(out.begin(), out.end());
  for (uint32_t l = 0; l < 32; ++l)
    EXPECT_EQ(out[l], l + 1);
}

TEST(Control, FaultsOfControl) {
  RunResult result;
  runLanes("  setp.eq.u32 %p1, %r0, 5;\n  @%p1 trap;", "", &result);
  EXPECT_EQ(result.fault.kind, FaultKind::Trap);
  EXPECT_EQ(result.fault.lane, 5u);
  std::vector<uint32_t> in(1), out(1);
  Options options{1};
  options.stepBudget = 100000;
  result = runKernel(kernelText("L: bra.uni L;"), in, out, {32, 1, 1}, {1, 1, 1}, 0, options);
  EXPECT_EQ(result.fault.kind, FaultKind::StepBudget);
}

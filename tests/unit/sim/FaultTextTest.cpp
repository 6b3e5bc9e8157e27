// What a fault says, whole, for each kind: kernel, block, warp, lane, what was found, address,
// array, the instruction and its line in the PTX, the line of the CUDA text and that of the spec.
#include "tests/unit/sim/Support.h"

#include <algorithm>
#include <numeric>
#include <set>

using namespace llmopt::sim;
using namespace llmopt::sim::test;

namespace {

constexpr uint32_t kWords = 1024;

/// A mistake. HERE stands before the instruction that must be named, which comes from line 7 of the
/// CUDA text; the others come from line 5. In `message`, IN+N and OUT+N are addresses in the
/// arrays.
struct Mistake {
  FaultKind kind;
  const char *body, *message;
  uint32_t threads = 32, blocks = 1;
  uint32_t orders = 1;
};

/// For tests of wgmma: 512 bytes of shared memory that the async proxy may read, a descriptor
/// of the first 128, sums.
#define PRODUCT                                                                                    \
  "  st.shared.u32 [%r2], %r0;\n  fence.proxy.async.shared::cta;\n  bar.sync 0;\n"                 \
  "  mov.f32 %f0, 0f00000000;\n  mov.f32 %f1, 0f00000000;\n  mov.f32 %f2, 0f00000000;\n"           \
  "  mov.f32 %f3, 0f00000000;\n  mov.u64 %d5, 0;\n  setp.eq.u32 %p2, %r0, %r0;\n"
#define MULTIPLY                                                                                   \
  "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0,%f1,%f2,%f3}, %d5, %d5, %p2, "         \
  "1, 1, 0, 0;\n  wgmma.commit_group.sync.aligned;\n"

const Mistake kMistakes[] = {
    {FaultKind::GlobalOutOfBounds, "  HERE ld.global.u32 %r3, [%d3+4000];",
     "global-out-of-bounds in kernel 'k', block (0, 0, 0), warp 0, lane 24: load "
     "of 4 bytes of global memory outside every buffer; address IN+4096, 0 bytes "
     "after the end of 'in' (4096 bytes)"},
    {FaultKind::WriteToReadOnly, "  HERE st.global.u32 [%d3], %r0;",
     "write-to-read-only in kernel 'k', block (0, 0, 0), warp 0, lane 0: store of "
     "4 bytes to the read-only buffer 'in'; address IN+0, byte 0 of 'in' (4096 "
     "bytes)"},
    {FaultKind::UnorderedResult,
     "  mov.u32 %r3, %ctaid.x;\n  atom.global.exch.b32 %r4, [%d1], %r3;",
     "unordered-result in kernel 'k': seeds 0 and 1 leave different bits: the "
     "result depends on the order of blocks and warps; address OUT+0, byte 0 of "
     "'out' (4096 bytes)",
     32, 7, 8},
    {FaultKind::SharedOutOfBounds, "  HERE st.shared.u32 [%r2+4000], %r0;",
     "shared-out-of-bounds in kernel 'k', block (0, 0, 0), warp 0, lane 24: store "
     "of 4 bytes at offset 4096 of shared memory; it has 4096 bytes; address "
     "0x1000, 0 bytes after the end of 's' (4096 bytes)"},
    {FaultKind::LocalOutOfBounds,
     "  .local .b32 x[2];\n  mov.u64 %d5, x;\n  HERE ld.local.u32 %r3, [%d5+16];",
     "local-out-of-bounds in kernel 'k', block (0, 0, 0), warp 0, lane 0: load of "
     "4 bytes at offset 16 of local memory; it has 16 bytes; address 0x10"},
    {FaultKind::ParamOutOfBounds, "  mov.u64 %d5, 16;\n  HERE ld.param.u32 %r3, [%d5];",
     "param-out-of-bounds in kernel 'k', block (0, 0, 0), warp 0, lane 0: load of "
     "4 bytes at offset 16 of parameter memory; it has 16 bytes; address 0x10"},
    {FaultKind::Misaligned, "  HERE ld.global.v2.u32 {%r3, %r4}, [%d3+4];",
     "misaligned in kernel 'k', block (0, 0, 0), warp 0, lane 0: load of 8 bytes "
     "in global memory at an address that is no multiple of 8; address IN+4, byte "
     "4 of 'in' (4096 bytes)"},
    {FaultKind::InvalidAddress,
     "  mov.u64 %d5, 0;\n  cvta.shared.u64 %d6, %d5;\n  HERE ld.global.u32 %r3, [%d6];",
     "invalid-address in kernel 'k', block (0, 0, 0), warp 0, lane 0: a generic "
     "address of shared, local or parameter memory in an instruction for global "
     "memory; address 0x0"},
    {FaultKind::DivergentSync,
     "  setp.lt.u32 %p1, %r0, 8;\n  @%p1 bra A;\n  shfl.sync.bfly.b32 %r3, %r0, 1, 31, -1;\n"
     "  bra.uni B;\nA:\n  HERE vote.sync.any.pred %p2, %p1, -1;\nB:",
     "divergent-sync in kernel 'k', block (0, 0, 0), warp 0, lane 0: lanes "
     "0x000000ff wait for lanes 0xffffff00, which never come (lanes 0xffffff00 at "
     "line 27 (k.cu:5 of spec.mlir:2))"},
    {FaultKind::DivergentSync,
     "  setp.lt.u32 %p1, %r0, 8;\n  @%p1 bra A;\n  bar.sync 0;\n  bra.uni B;\nA:\n"
     "  HERE bar.sync 1;\nB:",
     "divergent-sync in kernel 'k', block (0, 0, 0), warp 0, lane 0: lanes "
     "0x000000ff wait for lanes 0xffffff00, which never come (lanes 0xffffff00 at "
     "line 27 (k.cu:5 of spec.mlir:2))"},
    {FaultKind::InvalidLane, "  HERE shfl.sync.bfly.b32 %r3, %r0, 1, 31, 0xff;",
     "invalid-lane in kernel 'k', block (0, 0, 0), warp 0, lane 8: the lane is not"
     " in its own member mask 0x000000ff"},
    {FaultKind::InvalidBarrier, "  HERE bar.sync 1, 100;",
     "invalid-barrier in kernel 'k', block (0, 0, 0), warp 0: barrier 1 for 100 "
     "threads; barriers 0 to 15 and multiples of 32 threads are allowed",
     128},
    {FaultKind::Deadlock,
     "  setp.eq.u32 %p1, %r1, 0;\n  @%p1 bra A;\n  bar.sync 0;\n  bra.uni B;\nA:\n"
     "  HERE bar.sync 1;\nB:",
     "deadlock in kernel 'k', block (0, 0, 0), warp 0: no warp of the block can go"
     " on; waiting: warp 0 lanes 0xffffffff at line 32 (k.cu:7 of spec.mlir:3) (barrier 1), warp 1 "
     "lanes "
     "0xffffffff at line 27 (k.cu:5 of spec.mlir:2) (barrier 0)",
     64},
    {FaultKind::TransactionCount,
     "  setp.eq.u32 %p1, %r0, 0;\n  @%p1 mbarrier.init.shared::cta.b64 [bar], 1;\n"
     "  @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 272;\n  bar.sync 0;\nW:\n"
     "  HERE mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], 0;\n  @!%p2 bra W;",
     "transaction-count in kernel 'k', block (0, 0, 0), warp 0: no warp of the "
     "block can go on; waiting: warp 0 lanes 0xffffffff at line 32 (k.cu:7 of spec.mlir:3) "
     "(mbarrier at "
     "0x1000, phase 0: 0 of 1 arrivals and 272 bytes are missing)"},
    {FaultKind::IncompleteBarrier, "  HERE bar.arrive 3, 256;",
     "incomplete-barrier in kernel 'k', block (0, 0, 0), warp 0: the block has "
     "ended while barrier 3 has 128 of 256 threads",
     128},
    {FaultKind::UninitialisedShared, "  HERE ld.shared.u32 %r3, [%r2];",
     "uninitialised-shared in kernel 'k', block (0, 0, 0), warp 0, lane 0: load of"
     " 4 bytes of shared memory that nothing has written yet; address 0x0, "
     "byte 0 of 's' (4096 bytes)"},
    {FaultKind::UninitialisedRegister, "  HERE st.global.u32 [%d4], %r5;",
     "uninitialised-register in kernel 'k', block (0, 0, 0), warp 0, lane 0: "
     "register '%r5' has no value in lanes 0xffffffff, or was computed from one "
     "that has none"},
    {FaultKind::SharedRace, "  and.b32 %r3, %r2, 127;\n  HERE st.shared.u32 [%r3], %r0;",
     "shared-race in kernel 'k', block (0, 0, 0), warp 1, lane 0: store of 4 bytes"
     " of shared memory races with the store of warp 0 lane 0 at line 28 (k.cu:7 of spec.mlir:3): "
     "nothing "
     "orders the two; address 0x0, byte 0 of 's' (4096 bytes)",
     64},
    {FaultKind::GlobalRace, "  HERE st.global.u32 [%d4], %r0;",
     "global-race in kernel 'k', block (1, 0, 0), warp 0, lane 0: store of 4 bytes"
     " of global memory races with a store of block (0, 0, 0) at line 27 "
     "(k.cu:7 of spec.mlir:3): nothing orders the two; address OUT+0, byte 0 of 'out' (4096 bytes)",
     32, 2},
    {FaultKind::SharedRace,
     "  setp.eq.u32 %p1, %r1, 1;\n  xor.b32 %r4, %r2, 128;\n  st.shared.u32 [%r2], %r0;\n"
     "  HERE @%p1 ld.shared.u32 %r3, [%r4];",
     "shared-race in kernel 'k', block (0, 0, 0), warp 1, lane 0: load of 4 bytes of shared memory "
     "races with the store of warp 0 lane 0 at line 27 (k.cu:5 of spec.mlir:2): nothing orders the "
     "two; address 0x0, byte 0 of 's' (4096 bytes)",
     64},
    {FaultKind::GlobalRace,
     "  mov.u32 %r6, %ctaid.x;\n  setp.eq.u32 %p1, %r6, 1;\n  @!%p1 ld.global.u32 %r3, [%d4];\n"
     "  HERE @%p1 st.global.u32 [%d4], %r0;",
     "global-race in kernel 'k', block (1, 0, 0), warp 0, lane 0: store of 4 bytes of global "
     "memory races with a load of block (0, 0, 0) at line 27 (k.cu:5 of spec.mlir:2): nothing "
     "orders the two; "
     "address OUT+0, byte 0 of 'out' (4096 bytes)",
     32, 2},
    {FaultKind::GlobalRace,
     "  mov.u32 %r6, %ctaid.x;\n  setp.eq.u32 %p1, %r6, 2;\n  @!%p1 ld.global.u32 %r3, [%d4];\n"
     "  HERE @%p1 st.global.u32 [%d4], %r0;",
     "global-race in kernel 'k', block (2, 0, 0), warp 0, lane 0: store of 4 bytes of global "
     "memory races with a load of several blocks, one of them at line 27 (k.cu:5 of spec.mlir:2): "
     "nothing orders the two; "
     "address OUT+0, byte 0 of 'out' (4096 bytes)",
     32, 3},
    {FaultKind::UnfinishedCopy,
     "  cp.async.ca.shared.global [%r2], [%d3], 4;\n  cp.async.commit_group;\n"
     "  cp.async.wait_group 1;\n  HERE ld.shared.u32 %r3, [%r2];",
     "unfinished-copy in kernel 'k', block (0, 0, 0), warp 0, lane 0: load of 4 "
     "bytes of shared memory to which the copy that warp 0 lane 0 began at line 25 (k.cu:5 of "
     "spec.mlir:2)"
     " is still under way: the same thread has not waited for it; address 0x0, "
     "byte 0 of 's' (4096 bytes)"},
    {FaultKind::UnfinishedProduct,
     PRODUCT "  wgmma.fence.sync.aligned;\n  " MULTIPLY
             "  wgmma.wait_group.sync.aligned 1;\n  HERE add.f32 %f5, %f0, %f1;",
     "unfinished-wgmma in kernel 'k', block (0, 0, 0), warp 3: register '%f0' is "
     "the sum of a wgmma that this warp has not waited for",
     128},
    {FaultKind::MissingWgmmaFence, PRODUCT "  HERE " MULTIPLY "  wgmma.wait_group.sync.aligned 0;",
     "missing-wgmma-fence in kernel 'k', block (0, 0, 0), warp 0: register '%f0' "
     "was accessed after the last wgmma.fence (or there was none yet), and a wgmma"
     " uses it",
     128},
    {FaultKind::MissingProxyFence,
     PRODUCT "  st.shared.u32 [%r2], %r0;\n  bar.sync 0;\n  wgmma.fence.sync.aligned;\n"
             "  HERE " MULTIPLY "  wgmma.wait_group.sync.aligned 0;",
     "missing-proxy-fence in kernel 'k', block (0, 0, 0), warp 0: wgmma reads what"
     " warp 0 stored at line 34 (k.cu:5 of spec.mlir:2), without a fence.proxy.async in between; "
     "address "
     "0x0, byte 0 of 's' (4096 bytes)",
     128},
    {FaultKind::UnprovenRelease,
     PRODUCT "  wgmma.fence.sync.aligned;\n  " MULTIPLY
             "  wgmma.wait_group.sync.aligned 0;\n  setp.eq.u32 %p3, %r1, 0;\n"
             "  HERE @%p3 st.shared.u32 [%r2], %r0;",
     "unproven-release in kernel 'k', block (0, 0, 0), warp 0, lane 0: store of 4 "
     "bytes of shared memory that the wgmma of warp 1 at line 35 (k.cu:5 of spec.mlir:2) reads: "
     "what frees"
     " them follows the wait of warp 0 only, and the warpgroup was not "
     "synchronised before; the ISA does not say that one warp's wait is enough; "
     "address 0x0, byte 0 of 's' (4096 bytes)",
     128},
    {FaultKind::UnprovenInit,
     "  setp.eq.u32 %p1, %r0, 0;\n  @!%p1 bra END;\n  mbarrier.init.shared::cta.b64 [bar], 1;\n"
     "  mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;\n"
     "  HERE cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%d0], 16, "
     "[bar];\nW:\n"
     "  mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], 0;\n  @!%p2 bra W;\nEND:",
     "unproven-init in kernel 'k', block (0, 0, 0), warp 0, lane 0: the copy "
     "arrives at an mbarrier that was initialised at line 27 (k.cu:5 of spec.mlir:2), without a "
     "fence.mbarrier_init or fence.proxy.async in between; address 0x1000, byte 0 of 'bar' "
     "(8 bytes)"},
    {FaultKind::StepBudget, "L:\n  HERE bra.uni L;",
     "step-budget in kernel 'k', block (0, 0, 0), warp 0: the block has issued "
     "69632 warp instructions; the budget is 65536"},
    {FaultKind::Trap, "  setp.eq.u32 %p1, %r0, 5;\n  HERE @%p1 trap;",
     "trap in kernel 'k', block (0, 0, 0), warp 0, lane 5: the kernel gave up"},
    {FaultKind::CallFailure,
     "  { TARGETS: .branchtargets A, B;\n  HERE brx.idx %r0, TARGETS; }\nA:\nB:",
     "call-failure in kernel 'k', block (0, 0, 0), warp 0, lane 2: index 2 into a "
     "table of 2 branch targets"},
};

/// The address that stands in a message as NAME+N.
std::string withAddress(std::string text, const std::string &name, const void *base) {
  size_t at = text.find(name + "+");
  if (at == std::string::npos)
    return text;
  size_t end = text.find_first_not_of("0123456789", at + name.size() + 1);
  uint64_t offset = std::stoull(text.substr(at + name.size() + 1));
  return text.replace(at, end - at,
                      fmt::format("{:#x}", reinterpret_cast<uint64_t>(base) + offset));
}

void expectMessage(const Mistake &mistake) {
  SCOPED_TRACE(toString(mistake.kind));
  std::string body = mistake.body, where;
  size_t here = body.find("HERE ");
  if (here != std::string::npos)
    body.replace(here, 5, "\n  .loc 1 7 3\n  ");
  std::string text =
      kernelText(std::string("\n  .loc 1 5 3") + kWordAddresses + body,
                 ".shared .align 1024 .b8 s[4096];\n.shared .align 8 .b64 bar;", "sm_90a") +
      ".file 1 \"k.cu\"\n//llmopt.spec 1 6 spec.mlir:2\n"
      "//llmopt.spec 7 9 spec.mlir:3\n";
  if (size_t at = text.find(".loc 1 7 3\n"); at != std::string::npos) {
    size_t begin = text.find_first_not_of(' ', text.find('\n', at) + 1);
    std::string instruction = text.substr(begin, text.find(';', begin) - begin);
    where = fmt::format("; at test.ptx:{}: '{}' (k.cu:7) of spec.mlir:3",
                        1 + std::count(text.begin(), text.begin() + ptrdiff_t(begin), '\n'),
                        instruction);
  }
  std::vector<uint32_t> in(kWords), out(kWords);
  std::iota(in.begin(), in.end(), 0);
  Options options{1, 1 << 16, 0, mistake.orders};
  options.unprovenFaults = true;
  RunResult result =
      runKernel(text, in, out, {mistake.threads, 1, 1}, {mistake.blocks, 1, 1}, 0, options);
  EXPECT_EQ(toString(result.fault.kind), toString(mistake.kind));
  std::string message =
      withAddress(withAddress(mistake.message, "IN", in.data()), "OUT", out.data());
  EXPECT_EQ(result.status.message(), message + where);
  EXPECT_EQ(result.fault.message(), result.status.message());
}

} // namespace

TEST(FaultText, SaysWhatAndWhere) {
  for (const Mistake &mistake : kMistakes)
    expectMessage(mistake);
}

TEST(FaultText, IsTestedForEachKind) {
  std::set<FaultKind> kinds;
  for (const Mistake &mistake : kMistakes)
    kinds.insert(mistake.kind);
  for (int kind = 0; kind <= int(FaultKind::CallFailure); ++kind)
    EXPECT_TRUE(kinds.contains(FaultKind(kind))) << toString(FaultKind(kind));
}

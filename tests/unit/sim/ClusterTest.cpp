// Clusters of two blocks: their special registers, barrier, distributed shared memory,
// multicast; and what happens without the barrier.
#include "tests/unit/sim/ClusterSupport.h"

using namespace llmopt::sim;
using namespace llmopt::sim::test;
using namespace llmopt;

namespace {

/// A word of the other block, after both have written theirs.
const std::string kExchange = R"(
  shl.b32 %r6, %r0, 2;
  mov.u32 %r7, s;
  add.u32 %r6, %r6, %r7;
  st.shared.u32 [%r6], %r3;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  mapa.shared::cluster.u32 %r8, %r6, %r5;
  ld.shared::cluster.u32 %r9, [%r8];
  st.global.u32 [%d4], %r9;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
)";

} // namespace

TEST(Cluster, SpecialRegisters) {
  std::string body;
  for (const char *name : {"%cluster_ctarank", "%cluster_ctaid.x", "%cluster_nctaid.x",
                           "%cluster_nctarank", "%clusterid.x", "%nclusterid.x", "%ctaid.x"})
    body += fmt::format("  mov.u32 %r6, {};\n  st.global.u32 [%d4], %r6;\n"
                        "  add.u64 %d4, %d4, 16;\n",
                        name);
  Outcome outcome = execute(body, 4, 1);
  ASSERT_EQ(outcome.kind(), "") << outcome.status.toString();
  const std::vector<std::vector<uint32_t>> want = {{0, 1, 0, 1}, {0, 1, 0, 1}, {2, 2, 2, 2},
                                                   {2, 2, 2, 2}, {0, 0, 1, 1}, {2, 2, 2, 2},
                                                   {0, 1, 2, 3}};
  for (size_t row = 0; row < want.size(); ++row)
    for (size_t block = 0; block < 4; ++block)
      EXPECT_EQ(outcome.out[row * 4 + block], want[row][block]) << row << " block " << block;
}

TEST(Cluster, DistributedSharedMemory) {
  for (uint64_t seed : {0, 1, 2, 3}) {
    Outcome outcome = execute(kExchange, 4, 64, seed);
    ASSERT_EQ(outcome.kind(), "") << outcome.status.toString();
    for (uint32_t i = 0; i < 256; ++i)
      EXPECT_EQ(outcome.out[i], i / 64 % 2 ? i - 64 : i + 64);
  }
  const std::string both = "  barrier.cluster.arrive.aligned;\n  barrier.cluster.wait.aligned;\n";
  EXPECT_EQ(execute(with(kExchange, both, "  bar.sync 0;\n")).kind().substr(0, 7) == "shared-" ||
                execute(with(kExchange, both, "  bar.sync 0;\n")).kind() == "uninitialised-shared",
            true);
  EXPECT_EQ(execute(with(kExchange, "  barrier.cluster.wait.aligned;\n", "")).kind() != "", true);
  // Generic addresses, and the rank in them.
  const std::string generic = with(with(kExchange, "mapa.shared::cluster.u32 %r8, %r6, %r5;",
                                        "cvt.u64.u32 %d5, %r6;\n  cvta.shared.u64 %d5, %d5;\n"
                                        "  mapa.u64 %d6, %d5, %r5;\n  getctarank.u64 %r10, %d6;"),
                                   "ld.shared::cluster.u32 %r9, [%r8];",
                                   "ld.u32 %r9, [%d6];\n"
                                   "  sub.u32 %r9, %r9, %r10;");
  Outcome outcome = execute(generic);
  ASSERT_EQ(outcome.kind(), "") << outcome.status.toString();
  for (uint32_t i = 0; i < 256; ++i)
    EXPECT_EQ(outcome.out[i], (i / 64 % 2 ? i - 64 : i + 64) - (1 - i / 64 % 2));
  EXPECT_EQ(execute(with(kExchange, "%r6, %r5;", "%r6, 2;")).kind(), "invalid-address");
}

TEST(Cluster, InstructionsThatStayInTheBlock) {
  const std::string remote = "  mov.u32 %r7, s;\n  mapa.shared::cluster.u32 %r8, %r7, %r5;\n";
  EXPECT_EQ(execute(remote + "  ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r9}, [%r8];").kind(),
            "invalid-address");
  EXPECT_EQ(execute(remote + "  cp.async.ca.shared.global [%r8], [%d8], 4;").kind(),
            "invalid-address");
  // A block by itself has only its own.
  const std::string store = "  mov.u32 %r7, s;\n  mapa.shared::cluster.u32 %r8, %r7, 0;\n"
                            "  st.shared::cluster.u32 [%r8], 1;";
  EXPECT_EQ(execute(store, 2, 32, 0, {1, 1, 1}).kind(), "");
  EXPECT_EQ(execute(store + "\n  add.u32 %r8, %r8, 0x1000000;\n  ld.shared.u32 %r9, [%r8];", 2, 32,
                    0, {1, 1, 1})
                .kind(),
            "shared-out-of-bounds");
  // From one block's shared memory to the other's, in bulk.
  const std::string copy = R"(
  mov.u32 %r6, s;
  mov.u32 %r7, bar;
  setp.eq.u32 %p1, %r0, 0;
  @%p1 mbarrier.init.shared::cta.b64 [%r7], 1;
  @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r7], 256;
  shl.b32 %r10, %r0, 2;
  add.u32 %r10, %r10, %r6;
  st.shared.u32 [%r10], %r3;
  fence.proxy.async;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  mapa.shared::cluster.u32 %r8, %r6, %r5;
  mapa.shared::cluster.u32 %r9, %r7, %r5;
  @%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r8+1024], [%r6], 256, [%r9];
W:
  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r7], 0;
  @!%p2 bra W;
  ld.shared.u32 %r11, [%r10+1024];
  st.global.u32 [%d4], %r11;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
)";
  Outcome outcome = execute(copy, 2);
  ASSERT_EQ(outcome.kind(), "") << outcome.status.toString();
  for (uint32_t i = 0; i < 128; ++i)
    EXPECT_EQ(outcome.out[i], i ^ 64);
  EXPECT_EQ(execute(with(copy, "  fence.proxy.async;\n", ""), 2).kind(), "missing-proxy-fence");
}

TEST(Cluster, BarriersThatNeverComplete) {
  Outcome outcome =
      execute("  setp.eq.u32 %p1, %r4, 0;\n  @%p1 bra DONE;\nL:\n  barrier.cluster.arrive;\n"
              "  barrier.cluster.wait;\n  bra L2;\nDONE:\n  mov.u32 %r7, bar;\n"
              "  mbarrier.init.shared.b64 [%r7], 1;\nW:\n"
              "  mbarrier.try_wait.parity.shared.b64 %p2, [%r7], 0;\n  @!%p2 bra W;\nL2:",
              2, 1);
  EXPECT_EQ(outcome.kind(), "deadlock");
  EXPECT_NE(outcome.fault.detail.find("barrier of the cluster, 1 threads are missing"),
            std::string::npos)
      << outcome.fault.detail;
  // Who has ended counts as arrived.
  EXPECT_EQ(execute("  setp.eq.u32 %p1, %r4, 0;\n  @%p1 exit;\n  barrier.cluster.arrive;\n"
                    "  barrier.cluster.wait;")
                .kind(),
            "");
  EXPECT_EQ(execute("  barrier.cluster.arrive;\n  barrier.cluster.arrive;").kind(),
            "invalid-barrier");
  EXPECT_EQ(execute("  barrier.cluster.wait;").kind(), "invalid-barrier");
}

TEST(Cluster, RemoteArrivals) {
  // Block 1 stores to block 0 and arrives at its mbarrier; block 0 waits there.
  const std::string body = R"(
  mov.u32 %r6, s;
  mov.u32 %r7, bar;
  setp.eq.u32 %p1, %r0, 0;
  @%p1 mbarrier.init.shared::cta.b64 [%r7], 64;
  @%p1 fence.mbarrier_init.release.cluster;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  setp.eq.u32 %p3, %r4, 0;
  mapa.shared::cluster.u32 %r8, %r6, 0;
  mapa.shared::cluster.u32 %r9, %r7, 0;
  shl.b32 %r10, %r0, 2;
  add.u32 %r8, %r8, %r10;
  @%p3 bra WAIT;
  st.shared::cluster.u32 [%r8], %r3;
  mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r9];
  bra DONE;
WAIT:
  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r7], 0;
  @!%p2 bra WAIT;
  xor.b32 %r10, %r10, 128;
  add.u32 %r10, %r10, %r6;
  ld.shared.u32 %r11, [%r10];
  st.global.u32 [%d4], %r11;
DONE:
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
)";
  for (uint64_t seed : {0, 1, 2}) {
    Outcome outcome = execute(body, 2, 64, seed);
    ASSERT_EQ(outcome.kind(), "") << outcome.status.toString();
    for (uint32_t i = 0; i < 64; ++i)
      EXPECT_EQ(outcome.out[i], 64 + (i ^ 32));
  }
  EXPECT_EQ(execute(with(body, "[%r7], 64;", "[%r7], 65;"), 2).kind(), "deadlock");
  EXPECT_EQ(execute(with(body, "[%r7], 64;", "[%r7], 32;"), 2).kind(),
            "uninitialised-shared"); // half of the words are not there
}

TEST(Cluster, Multicast) {
  // Block 0 loads a box into both blocks; each waits at its own mbarrier.
  TensorInput in(4096);
  TensorMap map;
  map.type = TensorType::U8;
  map.rank = 2;
  map.dims = {64, 64};
  map.strides = {64};
  map.box = {64, 4};
  in.setMap(map);
  const std::string body = R"(
  mov.u32 %r6, s;
  mov.u32 %r7, bar;
  setp.eq.u32 %p1, %r0, 0;
  @%p1 mbarrier.init.shared::cta.b64 [%r7], 1;
  @%p1 fence.mbarrier_init.release.cluster;
  @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r7], 256;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  setp.eq.u32 %p3, %r4, 0;
  and.pred %p3, %p3, %p1;
  mov.u16 %h1, 3;
  @%p3 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%r6], [%d8, {0, 2}], [%r7], %h1;
WAIT:
  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r7], 0;
  @!%p2 bra WAIT;
  shl.b32 %r10, %r0, 2;
  add.u32 %r10, %r10, %r6;
  ld.shared.u32 %r11, [%r10];
  st.global.u32 [%d4], %r11;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
)";
  Outcome outcome = execute(body, 2, 64, 0, {2, 1, 1}, &in);
  ASSERT_EQ(outcome.kind(), "") << outcome.status.toString();
  for (uint32_t block = 0; block < 2; ++block)
    EXPECT_EQ(std::memcmp(&outcome.out[64 * block], in.data() + 128, 256), 0);
  EXPECT_EQ(execute(with(body, "%h1, 3", "%h1, 1"), 2, 64, 0, {2, 1, 1}, &in).kind(),
            "transaction-count");
  EXPECT_EQ(execute(with(body, "%h1, 3", "%h1, 7"), 2, 64, 0, {2, 1, 1}, &in).kind(),
            "invalid-lane");
}

TEST(Cluster, LaunchesThatDoNotFit) {
  auto refused = [](uint32_t blocks, std::array<uint32_t, 3> cluster, std::string_view what) {
    Outcome outcome = execute("", blocks, 32, 0, cluster);
    ASSERT_FALSE(outcome.status.ok());
    EXPECT_NE(outcome.status.message().find(what), std::string::npos) << outcome.status.message();
  };
  refused(3, {2, 1, 1}, "a multiple of the cluster's 2 blocks");
  refused(64, {32, 1, 1}, "1 to 16 are allowed");
  // .reqnctapercluster decides, and a launch may not say otherwise.
  std::string text = kernelText("  mov.u32 %r1, %cluster_nctarank;\n  mov.u32 %r2, %ctaid.x;\n"
                                "  mad.wide.u32 %d2, %r2, 4, %d1;\n  st.global.u32 [%d2], %r1;");
  text = with(text, "k_param_1)\n", "k_param_1)\n.reqnctapercluster 2, 1, 1\n.explicitcluster\n");
  std::vector<uint32_t> in(4), out(4);
  EXPECT_TRUE(runKernel(text, in, out, {1, 1, 1}, {2, 1, 1}).status.ok());
  EXPECT_EQ(out[0], 2u);
  EXPECT_FALSE(runKernel(text, in, out, {1, 1, 1}, {3, 1, 1}).status.ok());
}

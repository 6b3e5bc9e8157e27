// What reduces in bulk (cp.reduce.async.bulk), and what stores and reduces registers in shared
// memory of the cluster (st.async, red.async).
#include "runtime/base/Half.h"

#include "tests/unit/sim/ClusterSupport.h"

using namespace llmopt::sim;
using namespace llmopt::sim::test;
using namespace llmopt;

namespace {

/// Each block has an mbarrier (%r7) that expects 256 bytes, and zeros in the first 256 bytes of
/// `s` (%r6); STORE sends something to those of the other block (%r8, %r9) for each of 64 threads,
/// who then wait. %r10 is 4 * thread. The word of each thread is stored.
const std::string kSend = R"(
  mov.u32 %r6, s;
  mov.u32 %r7, bar;
  shl.b32 %r10, %r0, 2;
  add.u32 %r12, %r6, %r10;
  st.shared.u32 [%r12], 0;
  setp.eq.u32 %p1, %r0, 0;
  @%p1 mbarrier.init.shared::cta.b64 [%r7], 1;
  @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r7], 256;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  mapa.shared::cluster.u32 %r8, %r6, %r5;
  mapa.shared::cluster.u32 %r9, %r7, %r5;
  add.u32 %r11, %r8, %r10;
STORE
W:
  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r7], 0;
  @!%p2 bra W;
  ld.shared.u32 %r13, [%r12];
  st.global.u32 [%d4], %r13;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
)";

std::string sending(const std::string &store) { return with(kSend, "STORE", store); }

const std::string kStore = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes";
const std::string kReduce =
    "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes";

} // namespace

TEST(AsyncStore, ToTheOtherBlock) {
  for (uint64_t seed : {0, 1, 2}) {
    Outcome outcome = execute(sending(kStore + ".u32 [%r11], %r3, [%r9];"), 2, 64, seed);
    ASSERT_EQ(outcome.kind(), "") << outcome.status.toString();
    for (uint32_t i = 0; i < 128; ++i)
      EXPECT_EQ(outcome.out[i], i ^ 64);
  }
  // Vectors: one thread in four stores four words; one in two a word of 64 bits; generic addresses.
  const std::string quarter = "  and.b32 %r14, %r0, 3;\n  setp.eq.u32 %p3, %r14, 0;\n"
                              "  add.u32 %r15, %r3, 1;\n  add.u32 %r16, %r3, 2;\n"
                              "  add.u32 %r17, %r3, 3;\n  @%p3 " +
                              kStore + ".v4.b32 [%r11], {%r3, %r15, %r16, %r17}, [%r9];";
  const std::string half = "  and.b32 %r14, %r0, 1;\n  setp.eq.u32 %p3, %r14, 0;\n"
                           "  add.u32 %r15, %r3, 1;\n  mov.b64 %d5, {%r3, %r15};\n  @%p3 " +
                           kStore + ".b64 [%r11], %d5, [%r9];";
  const std::string generic = "  cvt.u64.u32 %d5, %r12;\n  cvta.shared.u64 %d5, %d5;\n"
                              "  mapa.u64 %d5, %d5, %r5;\n  cvt.u64.u32 %d6, %r7;\n"
                              "  cvta.shared.u64 %d6, %d6;\n  mapa.u64 %d6, %d6, %r5;\n"
                              "  st.async.mbarrier::complete_tx::bytes.b32 [%d5], %r3, [%d6];";
  for (const std::string &store : {quarter, half, generic}) {
    Outcome outcome = execute(sending(store), 2);
    ASSERT_EQ(outcome.kind(), "") << store << outcome.status.toString();
    for (uint32_t i = 0; i < 128; ++i)
      EXPECT_EQ(outcome.out[i], i ^ 64);
  }
}

TEST(AsyncStore, Mistakes) {
  auto kind = [](const std::string &body, std::array<uint32_t, 3> cluster = {2, 1, 1}) {
    return execute(body, 2, 64, 0, cluster).kind();
  };
  const std::string good = sending(kStore + ".u32 [%r11], %r3, [%r9];");
  const std::string wait = "W:\n  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r7], 0;\n"
                           "  @!%p2 bra W;\n";
  // Without the wait either the load meets the store, or the store what was loaded.
  for (uint64_t seed = 0; seed < 4; ++seed) {
    std::string found = execute(with(good, wait, ""), 2, 64, seed).kind();
    EXPECT_TRUE(found == "unfinished-copy" || found == "shared-race") << found;
  }
  // The cluster's barrier does not wait for it.
  Outcome hasty = execute(with(good, wait,
                               "  barrier.cluster.arrive.aligned;\n"
                               "  barrier.cluster.wait.aligned;\n"),
                          2);
  EXPECT_EQ(hasty.kind(), "unfinished-copy");
  EXPECT_NE(hasty.fault.detail.find("the st.async begun at line"), std::string::npos)
      << hasty.fault.detail;
  EXPECT_EQ(kind(with(good, "256;", "260;")), "transaction-count");
  EXPECT_EQ(kind(with(good, "%r3, [%r9];", "%r3, [%r7];")), "invalid-address");
  EXPECT_EQ(kind(with(good, "[%r11], %r3", "[%r11+2], %r3")), "misaligned");
  EXPECT_EQ(kind(with(good, "[%r11], %r3", "[%r11+4096], %r3")), "shared-out-of-bounds");
  // The cluster's barrier is what orders the target's first store before it.
  EXPECT_EQ(kind(with(good,
                      "  barrier.cluster.arrive.aligned;\n  barrier.cluster.wait.aligned;\n"
                      "  mapa",
                      "  bar.sync 0;\n  mapa")) != "",
            true);
  // A block by itself.
  EXPECT_EQ(kind(with(with(good, "%r8, %r6, %r5", "%r8, %r6, 0"), "%r9, %r7, %r5", "%r9, %r7, 0"),
                 {1, 1, 1}),
            "invalid-address");
}

TEST(AsyncReduction, ToTheOtherBlock) {
  struct Row {
    std::string op, operand;
    uint32_t want; ///< in the first word, of 64 threads' operands 64 b + t
  };
  // Of block 1's operands, 64 to 127, as block 0 sees them.
  for (const Row &row : {Row{".add.u32", "%r3", 64 * 64 + 2016},
                         {".add.s32", "%r3", 64 * 64 + 2016},
                         {".max.u32", "%r3", 127},
                         {".max.s32", "%r3", 127},
                         {".min.u32", "%r3", 0},
                         {".or.b32", "%r3", 127},
                         {".and.b32", "%r3", 0},
                         {".xor.b32", "%r3", 0},    // of all numbers from 64 to 127
                         {".inc.u32", "50", 13},    // 0 to 50 and again from 0: 64 - 51
                         {".dec.u32", "50", 38}}) { // 50 down to 0, 50 again: 63 = 51 + 12
    Outcome outcome = execute(sending(kReduce + row.op + " [%r8], " + row.operand + ", [%r9];"), 2);
    ASSERT_EQ(outcome.kind(), "") << row.op << outcome.status.toString();
    EXPECT_EQ(outcome.out[0], row.want) << row.op;
    EXPECT_EQ(outcome.out[1], 0u) << row.op;
  }
  // 64 bits, from half of the threads.
  const std::string wide = "  setp.lt.u32 %p3, %r0, 32;\n  mov.b64 %d5, {%r3, %r4};\n  @%p3 " +
                           kReduce + ".add.u64 [%r8], %d5, [%r9];";
  Outcome outcome = execute(sending(wide), 2);
  ASSERT_EQ(outcome.kind(), "") << outcome.status.toString();
  EXPECT_EQ(outcome.out[0], 32u * 64 + 496); // of block 1, whose rank is in the upper half
  EXPECT_EQ(outcome.out[1], 32u);
}

TEST(AsyncReduction, Mistakes) {
  const std::string good = sending(kReduce + ".add.u32 [%r8], %r3, [%r9];");
  EXPECT_EQ(execute(with(good, "  st.shared.u32 [%r12], 0;\n", ""), 2).kind(),
            "uninitialised-shared");
  EXPECT_EQ(execute(with(good, "  @!%p2 bra W;\n", ""), 2).kind(), "");
  EXPECT_EQ(execute(with(good,
                         "W:\n  mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r7], 0;\n"
                         "  @!%p2 bra W;\n",
                         ""),
                    2)
                .kind(),
            "unfinished-copy");
  for (std::string_view text :
       {"red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.f32 [%r8], "
        "%f1, [%r9];",
        "red.async.release.gpu.global.add.u32 [%d1], %r3;",
        "st.async.release.gpu.global.u32 [%d1], %r3;",
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b64 [%r8], "
        "{%d1,%d2,%d3,%d4}, [%r9];"}) {
    auto module = loadPtx(kernelText(std::string(text)), "test.ptx");
    ASSERT_FALSE(module.ok()) << text;
    EXPECT_NE(module.status().message().find("unsupported instruction"), std::string::npos);
  }
}

namespace {

/// Two blocks of 64 threads put their %r20 (and for types of 64 bits zeros beside) into `s`; thread
/// 0 of each reduces 256 bytes into out, which begins as `initial`.
struct Bulk {
  runtime::Status status;
  Fault fault;
  std::vector<uint32_t> out;
  std::string kind() const { return status.ok() ? "" : std::string(toString(fault.kind)); }
};

const std::string kBulk = R"(
  mov.u32 %r1, %ctaid.x;
  mad.lo.u32 %r3, %r1, 64, %r0;
  mov.u32 %r6, s;
  shl.b32 %r10, %r0, 2;
  add.u32 %r12, %r6, %r10;
  VALUE
  st.shared.u32 [%r12], %r20;
  fence.proxy.async;
  bar.sync 0;
  setp.ne.u32 %p1, %r0, 0;
  @%p1 exit;
  cp.reduce.async.bulk.global.shared::cta.bulk_group.OP [%d1], [%r6], 256;
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
)";

Bulk reduceInBulk(const std::string &body, uint32_t initial, Options options = {1}) {
  Bulk bulk;
  bulk.out.assign(64, initial);
  std::vector<uint32_t> in(64);
  RunResult result =
      runKernel(kernelText(body, kTensorShared), in, bulk.out, {64, 1, 1}, {2, 1, 1}, 0, options);
  bulk.status = result.status;
  bulk.fault = result.fault;
  return bulk;
}

std::string bulkText(const std::string &op, const std::string &value) {
  return with(with(kBulk, "OP", op), "VALUE", value);
}

uint32_t bits(float x) { return std::bit_cast<uint32_t>(x); }
uint32_t pairOf(uint16_t low, uint16_t high) { return low | uint32_t{high} << 16; }

} // namespace

TEST(BulkReduction, ToGlobalMemory) {
  const std::string number = "mov.u32 %r20, %r3;";
  const std::string real = "cvt.rn.f32.u32 %f1, %r3;\n  mov.b32 %r20, %f1;";
  struct Row {
    std::string op, value;
    uint32_t initial;
    uint32_t (*want)(uint32_t t); ///< operands are t and 64 + t
  };
  for (const Row &row : {
           Row{"add.u32", number, 5, [](uint32_t t) { return 5 + t + 64 + t; }},
           {"add.s32", number, ~0u, [](uint32_t t) { return t + 64 + t - 1; }},
           {"min.s32", number, ~0u, [](uint32_t) { return ~0u; }},
           {"min.u32", number, 20, [](uint32_t t) { return std::min(t, 20u); }},
           {"max.u32", number, 70, [](uint32_t t) { return std::max(64 + t, 70u); }},
           {"and.b32", number, 0x55, [](uint32_t t) { return 0x55 & t & (64 + t); }},
           {"or.b32", number, 0x100, [](uint32_t t) { return 0x100 | t | (64 + t); }},
           {"xor.b32", number, 0, [](uint32_t t) { return t ^ (64 + t); }},
           {"inc.u32", number, 1000, [](uint32_t) { return 1u; }}, // 1000 >= t: 0, then 1
           {"add.f32", real, bits(0.5f),
            [](uint32_t t) { return bits(0.5f + float(t) + float(64 + t)); }},
       }) {
    Bulk bulk = reduceInBulk(bulkText(row.op, row.value), row.initial);
    ASSERT_EQ(bulk.kind(), "") << row.op << bulk.status.toString();
    for (uint32_t t = 0; t < 64; ++t)
      EXPECT_EQ(bulk.out[t], row.want(t)) << row.op << " thread " << t;
  }
  // dec(r, s) = r == 0 or r > s ? s : r - 1, with s = 3 twice: 2 -> 1 -> 0.
  EXPECT_EQ(reduceInBulk(bulkText("dec.u32", "mov.u32 %r20, 3;"), 2).out[9], 0u);
  EXPECT_EQ(reduceInBulk(bulkText("dec.u32", "mov.u32 %r20, 3;"), 9).out[9], 2u);
}

TEST(BulkReduction, SmallFloats) {
  auto f16 = [](float x) { return runtime::f32ToF16(x); };
  auto bf16 = [](float x) { return runtime::f32ToBf16(x); };
  auto value = [](uint32_t x) { return fmt::format("mov.u32 %r20, {};", x); };
  // Subnormals stay what they are with .noftz.
  EXPECT_EQ(
      reduceInBulk(bulkText("add.noftz.f16", value(pairOf(1, f16(2)))), pairOf(1, f16(1))).out[3],
      pairOf(3, f16(5)));
  EXPECT_EQ(reduceInBulk(bulkText("add.noftz.bf16", value(pairOf(bf16(4), bf16(-1)))), 0).out[3],
            pairOf(bf16(8), bf16(-2)));
  EXPECT_EQ(
      reduceInBulk(bulkText("min.f16", value(pairOf(f16(-3), 0x7e00))), pairOf(f16(1), f16(1)))
          .out[3],
      pairOf(f16(-3), f16(1))); // a NaN loses
  EXPECT_EQ(
      reduceInBulk(bulkText("max.bf16", value(pairOf(bf16(2), 0x0000))), pairOf(bf16(1), 0x8000))
          .out[3],
      pairOf(bf16(2), 0x0000)); // -0 is less than +0
  // add.f32 flushes subnormals, keeping the sign.
  EXPECT_EQ(reduceInBulk(bulkText("add.f32", value(0x00000001)), 0x00000001).out[3], 0u);
  EXPECT_EQ(reduceInBulk(bulkText("add.f32", value(0x80000001)), 0x80000000).out[3], 0x80000000u);
}

TEST(BulkReduction, WideTypes) {
  // Pairs of words: even threads have the lower halves.
  const std::string low = "and.b32 %r21, %r0, 1;\n  setp.eq.u32 %p2, %r21, 0;\n"
                          "  selp.u32 %r20, 0xffffffff, 0, %p2;";
  Bulk add = reduceInBulk(bulkText("add.u64", low), 0);
  EXPECT_EQ(add.out[6], 0xfffffffeu);
  EXPECT_EQ(add.out[7], 1u);
  Bulk least = reduceInBulk(bulkText("min.s64", low), 0xffffffff); // -1 stays
  EXPECT_EQ(least.out[7], 0xffffffffu);
  Bulk most = reduceInBulk(bulkText("max.u64", low), 0);
  EXPECT_EQ(most.out[6], 0xffffffffu);
  EXPECT_EQ(most.out[7], 0u);
  EXPECT_EQ(reduceInBulk(bulkText("xor.b64", low), 3).out[6], 3u);
  const std::string doubles = "and.b32 %r21, %r0, 1;\n  setp.eq.u32 %p2, %r21, 0;\n"
                              "  selp.u32 %r20, 0, 0x3ff80000, %p2;";           // 1.5
  EXPECT_EQ(reduceInBulk(bulkText("add.f64", doubles), 0).out[7], 0x40080000u); // 3
}

TEST(BulkReduction, OrderAndMistakes) {
  const std::string good = bulkText("add.u32", "mov.u32 %r20, %r3;");
  Options orders{1};
  orders.orders = 4;
  EXPECT_EQ(reduceInBulk(good, 0, orders).kind(), "");
  EXPECT_EQ(reduceInBulk(with(good, "  fence.proxy.async;\n", ""), 0).kind(),
            "missing-proxy-fence");
  EXPECT_EQ(reduceInBulk(with(good, "  bar.sync 0;\n", ""), 0).kind(), "shared-race");
  EXPECT_EQ(reduceInBulk(with(good, "  cp.async.bulk.wait_group 0;\n", ""), 0).kind(),
            "unfinished-copy");
  EXPECT_EQ(reduceInBulk(with(good, "[%r6], 256", "[%r6], 250"), 0).kind(), "invalid-address");
  EXPECT_EQ(reduceInBulk(with(good, "[%d1], [%r6]", "[%d0], [%r6]"), 0).kind(),
            "write-to-read-only");
  // A plain store of another block races with it; a copy does as well.
  EXPECT_EQ(reduceInBulk(with(good, "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32",
                              "cp.async.bulk.global.shared::cta.bulk_group"),
                         0)
                .kind(),
            "global-race");
  // Floats of different sizes: the order of blocks shows in the sum, and that is a fault.
  const std::string floats = bulkText(
      "add.f32", "setp.eq.u32 %p2, %r1, 0;\n  selp.u32 %r20, 0x7f000000, 0x3f800000, %p2;");
  EXPECT_EQ(reduceInBulk(floats, bits(-0x1p127f), orders).kind(), "unordered-result");
}

TEST(BulkReduction, ToTheOtherBlock) {
  const std::string body =
      with(sending("  st.shared.u32 [%r12+1024], %r3;\n  fence.proxy.async;\n  bar.sync 0;\n  @%p1 "
                   "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
                   ".add.u32 [%r8], [%r6+1024], 256, [%r9];"),
           "  barrier.cluster.arrive.aligned;\n",
           "  fence.proxy.async;\n"
           "  barrier.cluster.arrive.aligned;\n");
  Outcome outcome = execute(with(body, "[%r12], 0;", "[%r12], 7;"), 2);
  ASSERT_EQ(outcome.kind(), "") << outcome.status.toString();
  for (uint32_t i = 0; i < 128; ++i)
    EXPECT_EQ(outcome.out[i], 7 + (i ^ 64));
  EXPECT_EQ(execute(with(body, "  st.shared.u32 [%r12], 0;\n", ""), 2).kind(),
            "uninitialised-shared");
}

TEST(BulkReduction, Tensors) {
  // Four blocks add ones to the rows 1 and 2 of a tensor of 4 rows; row 3 of the box is outside.
  const std::string body = R"(
  mov.u32 %r6, s;
  shl.b32 %r10, %r0, 2;
  add.u32 %r12, %r6, %r10;
  st.shared.u32 [%r12], VALUE;
  fence.proxy.async;
  bar.sync 0;
  setp.ne.u32 %p1, %r0, 0;
  @%p1 exit;
  cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%d8, {0, 1}], [%r6];
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
)";
  auto execute = [&](TensorType type, const std::string &value, std::vector<uint32_t> &out) {
    std::vector<uint8_t> in(8);
    TensorInput target(3 * 64);
    std::vector<uint8_t> bytes = target.storage;
    std::fill(bytes.begin(), bytes.end(), 0);
    auto address = reinterpret_cast<uint64_t>(bytes.data());
    size_t begin = (address + 63) / 64 * 64 - address;
    TensorMap map;
    map.type = type;
    map.rank = 2;
    map.dims = {16, 3};
    map.strides = {64};
    map.box = {16, 4};
    map.base = address + begin + 192;
    std::memcpy(&bytes[begin], encode(map)->bytes.data(), kTensorMapBytes);
    RunResult result = runKernel(kernelText(with(kTensorAddresses, "%d8, %d0, 63", "%d8, %d1, 63") +
                                                with(body, "VALUE", value),
                                            kTensorShared),
                                 in, bytes, {64, 1, 1}, {4, 1, 1});
    out.resize(48);
    std::memcpy(out.data(), &bytes[begin + 192], 192);
    return result.status.ok() ? "" : std::string(toString(result.fault.kind));
  };
  std::vector<uint32_t> out;
  EXPECT_EQ(execute(TensorType::U32, "3", out), "");
  for (uint32_t i = 0; i < 48; ++i)
    EXPECT_EQ(out[i], i < 16 ? 0u : 12u);
  EXPECT_EQ(execute(TensorType::F32, "0x3f000000", out), "");
  EXPECT_EQ(out[20], bits(2.0f));
  EXPECT_EQ(execute(TensorType::TF32, "0", out), "invalid-address"); // no such reduction
}

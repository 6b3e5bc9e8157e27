// cp.async.bulk and cp.async.bulk.tensor (PTX ISA 9.7.9.25.4 and 5): boxes of 1 to 5
// dimensions, swizzles, what lies outside; and what happens without the waits.
#include "tests/unit/sim/AsyncSupport.h"

using namespace llmopt::sim;
using namespace llmopt::sim::test;

namespace {

constexpr uint32_t kOut = 4096;

/// A load of a box to shared memory, which then goes to `out` as it lies there.
const std::string kLoad = initBarrier(1) + R"(
  @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], BYTES;
  @%p1 LOAD
)" + waitFor(0) + R"(
  mov.u32 %r3, 0;
  shl.b32 %r5, %r0, 4;
  add.u32 %r5, %r5, %r2;
COPY:
  ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [%r5];
  st.global.v4.u32 [%d10], {%r10, %r11, %r12, %r13};
  add.u64 %d10, %d10, 2048;
  add.u32 %r5, %r5, 2048;
  add.u32 %r3, %r3, 2048;
  setp.lt.u32 %p3, %r3, SIZE;
  @%p3 bra COPY;
)";

std::string tensorLoad(uint32_t rank, const std::string &coordinates) {
  return fmt::format("cp.async.bulk.tensor.{}d.shared::cluster.global.tile."
                     "mbarrier::complete_tx::bytes [%r2], [%d8, {{{}}}], [%r1];",
                     rank, coordinates);
}

struct Box {
  TensorMap map;
  std::vector<int> at;
};

/// What lies in shared memory, by the words of the ISA: boxes dense, the innermost
/// dimension first; then, of the eight 16-byte pieces of each 128 bytes, the one with
/// number p lies where p xor (number of the 128 bytes, modulo 2, 4 or 8) is.
std::vector<uint8_t> expected(const Box &box, const uint8_t *data) {
  const TensorMap &m = box.map;
  uint32_t bytes = sizeOf(m.type);
  std::vector<uint8_t> dense;
  uint32_t count = m.boxBytes() / bytes;
  for (uint32_t i = 0; i < count; ++i) {
    uint64_t offset = 0;
    bool inside = true;
    for (uint32_t d = 0, rest = i; d < m.rank; ++d) {
      int64_t c = box.at[d] + int64_t{rest % m.boxElements(d)} * m.elementStrides[d];
      rest /= m.boxElements(d);
      inside = inside && c >= 0 && c < static_cast<int64_t>(m.dims[d]);
      offset += static_cast<uint64_t>(c) * (d ? m.strides[d - 1] : bytes);
    }
    for (uint32_t b = 0; b < bytes; ++b) {
      uint8_t nan = b + 1 == bytes ? 0x7f : 0xff;
      dense.push_back(inside ? data[offset + b] : m.fill == TensorFill::Zero ? uint8_t{0} : nan);
    }
  }
  std::vector<uint8_t> result(dense.size());
  uint32_t modulo = m.swizzle == TensorSwizzle::None ? 1 : spanOf(m.swizzle) / 16;
  for (uint32_t i = 0; i < dense.size(); ++i) {
    uint32_t piece = i / 16 % 8, line = i / 128;
    result[line * 128 + (piece ^ line % modulo) * 16 + i % 16] = dense[i];
  }
  return result;
}

void expectLoad(const Box &box) {
  TensorInput in(8192);
  in.setMap(box.map);
  uint32_t bytes = box.map.boxBytes();
  ASSERT_EQ(bytes % 128, 0u);
  std::string coordinates;
  for (size_t i = 0; i < box.at.size(); ++i)
    coordinates += fmt::format("{}{}", i ? ", " : "", box.at[i]);
  std::string body = with(kLoad, "BYTES", std::to_string(bytes));
  body = with(body, "LOAD", tensorLoad(box.map.rank, coordinates));
  // All of `s` is copied, so all of it must be written: by the copy, or not read.
  std::vector<uint8_t> out(kOut, 0xee);
  body = with(body, "ld.shared.v4",
              "sub.u32 %r6, %r5, %r2;\n  setp.lt.u32 %p4, %r6, " + std::to_string(bytes) +
                  ";\n  @%p4 ld.shared.v4");
  body = with(body, "st.global.v4", "@%p4 st.global.v4");
  body = with(body, "SIZE", "4096");
  RunResult result =
      runKernel(kernelText(kTensorAddresses + body, kTensorShared), in.storage, out, {128, 1, 1});
  ASSERT_TRUE(result.status.ok()) << result.status.toString();
  std::vector<uint8_t> want = expected(box, in.data());
  out.resize(bytes);
  auto [got, wanted] = std::mismatch(out.begin(), out.end(), want.begin());
  EXPECT_TRUE(got == out.end()) << "byte " << got - out.begin() << " is " << int{*got} << ", not "
                                << int{*wanted} << "; rank " << box.map.rank << " swizzle "
                                << static_cast<int>(box.map.swizzle) << " at " << coordinates;
}

Box boxOf(TensorType type, std::vector<uint64_t> dims, std::vector<uint32_t> box,
          std::vector<int> at, TensorSwizzle swizzle = TensorSwizzle::None) {
  Box result;
  result.map.type = type;
  result.map.rank = static_cast<uint32_t>(dims.size());
  result.map.swizzle = swizzle;
  uint64_t stride = sizeOf(type);
  for (size_t i = 0; i < dims.size(); ++i) {
    result.map.dims[i] = dims[i];
    result.map.box[i] = box[i];
    stride = (stride * dims[i] + 15) / 16 * 16;
    if (i + 1 < dims.size())
      result.map.strides[i] = stride;
  }
  result.at = std::move(at);
  return result;
}

} // namespace

TEST(BulkTensor, SwizzlesOfTwoDimensions) {
  for (auto [swizzle, columns] : {std::pair{TensorSwizzle::None, 64u},
                                  {TensorSwizzle::B32, 16u},
                                  {TensorSwizzle::B64, 32u},
                                  {TensorSwizzle::B128, 64u}}) {
    expectLoad(boxOf(TensorType::BF16, {64, 40}, {columns, 32}, {0, 0}, swizzle));
    expectLoad(boxOf(TensorType::BF16, {64, 40}, {columns, 16}, {0, 7}, swizzle));
  }
  expectLoad(boxOf(TensorType::U8, {128, 40}, {128, 16}, {0, 3}, TensorSwizzle::B128));
  expectLoad(boxOf(TensorType::F32, {40, 40}, {32, 16}, {4, 1}, TensorSwizzle::B128));
}

TEST(BulkTensor, Dimensions) {
  expectLoad(boxOf(TensorType::U16, {500}, {256}, {100}));
  expectLoad(boxOf(TensorType::F16, {32, 10, 6}, {16, 4, 4}, {16, 3, 1}, TensorSwizzle::B32));
  expectLoad(boxOf(TensorType::S32, {8, 5, 4, 6}, {4, 2, 4, 4}, {2, 1, 0, 2}));
  expectLoad(boxOf(TensorType::F64, {4, 3, 4, 3, 5}, {2, 2, 2, 2, 4}, {1, 1, 2, 0, 1}));
}

TEST(BulkTensor, ElementsOutside) {
  for (TensorFill fill : {TensorFill::Zero, TensorFill::Nan}) {
    Box box = boxOf(TensorType::BF16, {60, 20}, {32, 16}, {40, 10}, TensorSwizzle::B64);
    box.map.fill = fill;
    expectLoad(box);
    box.at = {-3, -2}; // from before the first element on
    expectLoad(box);
    box.at = {100, 0};
    expectLoad(box);
    Box floats = boxOf(TensorType::F32, {10, 9}, {8, 16}, {7, -4});
    floats.map.fill = fill;
    expectLoad(floats);
  }
  expectLoad(boxOf(TensorType::U8, {30, 9}, {16, 16}, {-7, 3}));
}

TEST(BulkTensor, EveryOtherElement) {
  Box box = boxOf(TensorType::U16, {32, 60}, {16, 31}, {8, 3});
  box.map.elementStrides[1] = 2; // 16 rows of 31
  EXPECT_EQ(box.map.boxBytes(), 16u * 16 * 2);
  expectLoad(box);
}

TEST(BulkTensor, MapsThatBreakARule) {
  auto refused = [](auto &&change, std::string_view what) {
    TensorMap map;
    map.rank = 2;
    map.base = 4096;
    map.dims = {64, 64, 1, 1, 1};
    map.strides = {128};
    map.box = {64, 8, 1, 1, 1};
    map.swizzle = TensorSwizzle::B128;
    EXPECT_TRUE(encode(map).ok());
    EXPECT_EQ(*decodeTensorMap(encode(map)->bytes), map);
    change(map);
    auto result = encode(map);
    ASSERT_FALSE(result.ok());
    EXPECT_NE(result.status().message().find(what), std::string::npos) << result.status().message();
  };
  refused([](TensorMap &m) { m.rank = 6; }, "rank 6");
  refused([](TensorMap &m) { m.base = 8; }, "multiple of 16");
  refused([](TensorMap &m) { m.dims[1] = 0; }, "dims[1] is 0");
  refused([](TensorMap &m) { m.strides[0] = 100; }, "strides[0] is 100");
  refused([](TensorMap &m) { m.box[1] = 257; }, "box[1] is 257");
  refused([](TensorMap &m) { m.box[0] = 65; }, "130 bytes");
  refused([](TensorMap &m) { m.swizzle = TensorSwizzle::B64; }, "the swizzle allows 64");
  refused([](TensorMap &m) { m.elementStrides[1] = 9; }, "elementStrides[1] is 9");
  refused([](TensorMap &m) { m.type = TensorType::S32, m.box[0] = 32, m.fill = TensorFill::Nan; },
          "NaN");
}

namespace {

/// Runs a body on the tensor of 64 x 32 bf16 with boxes of 64 x 8, swizzled 128 bytes.
RunResult runTensor(const std::string &body, std::vector<uint8_t> &out, Options options = {1},
                    TensorInput *given = nullptr) {
  TensorInput own(8192);
  TensorInput &in = given ? *given : own;
  if (!given)
    in.setMap(boxOf(TensorType::BF16, {64, 32}, {64, 8}, {0, 0}, TensorSwizzle::B128).map);
  return runKernel(kernelText(kTensorAddresses + body, kTensorShared), in.storage, out, {128, 1, 1},
                   {1, 1, 1}, 0, options);
}

std::string kindOf(const std::string &body, Options options = {1, 1 << 20}) {
  std::vector<uint8_t> out(kOut);
  RunResult result = runTensor(body, out, options);
  return result.status.ok() ? "" : std::string(toString(result.fault.kind));
}

const std::string kTile =
    with(with(with(kLoad, "BYTES", "1024"), "SIZE", "1"), "LOAD", tensorLoad(2, "0, 0"));
/// Threads 0 to 63 read the tile.
const std::string kReadTile = with(kTile, "  mov.u32 %r3, 0;",
                                   "  setp.ge.u32 %p5, %r0, 64;\n  @%p5 exit;\n  mov.u32 %r3, 0;");

} // namespace

TEST(BulkTensor, WaitsThatAreMissing) {
  EXPECT_EQ(kindOf(kReadTile), "");
  EXPECT_EQ(kindOf(with(kReadTile, "@!%p2 bra W;", "")), "");
  EXPECT_EQ(kindOf(with(kReadTile, waitFor(0), "")), "unfinished-copy");
  // One warp waits, and does not tell the others.
  std::string alone =
      with(kReadTile, waitFor(0),
           "  setp.ge.u32 %p6, %r0, 32;\n  @%p6 bra PAST;\n" + waitFor(0) + "PAST:\n");
  EXPECT_EQ(kindOf(alone), "unfinished-copy");
  EXPECT_EQ(kindOf(with(alone, "PAST:\n", "PAST:\n  bar.sync 0;\n")), "");
  EXPECT_EQ(kindOf(with(kReadTile, "1024;", "1040;")), "transaction-count");
  EXPECT_EQ(kindOf(with(kReadTile, "1024;", "1008;")), "transaction-count");
  // Nobody waits, nobody reads.
  EXPECT_EQ(kindOf(with(kReadTile, waitFor(0), "  exit;\n")), "unfinished-copy");
}

TEST(BulkTensor, TargetsThatAreInUse) {
  // A thread reads what the copy overwrites.
  const std::string before = R"(
  setp.lt.u32 %p5, %r0, 64;
  @%p5 st.shared.v4.u32 [%r5], {%r0, %r0, %r0, %r0};
  @%p5 ld.shared.u32 %r6, [%r5];
  fence.proxy.async;
  ORDER
  @%p1 mbarrier.arrive.expect_tx)";
  std::string body = with(kReadTile, "  @%p1 mbarrier.arrive.expect_tx",
                          "  shl.b32 %r5, %r0, 4;\n  add.u32 %r5, %r5, %r2;" + before);
  EXPECT_EQ(kindOf(with(body, "ORDER", "bar.sync 0;")), "");
  EXPECT_EQ(kindOf(with(body, "ORDER", "")), "shared-race");
  std::string unfenced = with(body, "  fence.proxy.async;\n", "");
  EXPECT_EQ(kindOf(with(unfenced, "ORDER", "bar.sync 0;")), "missing-proxy-fence");
  // The fence of the one who copies, after the barrier, is as good.
  EXPECT_EQ(kindOf(with(unfenced, "ORDER", "bar.sync 0;\n  @%p1 fence.proxy.async.shared::cta;")),
            "");
  EXPECT_EQ(kindOf(with(unfenced, "ORDER", "bar.sync 0;\n  @%p1 fence.proxy.async.global;")),
            "missing-proxy-fence");
}

TEST(BulkTensor, AddressesThatAreWrong) {
  EXPECT_EQ(kindOf(with(kReadTile, "[%r2], [%d8", "[%r2+64], [%d8")), "misaligned");
  EXPECT_EQ(kindOf(with(kReadTile, "[%r2], [%d8", "[%r2+8192], [%d8")), "shared-out-of-bounds");
  EXPECT_EQ(kindOf(with(kReadTile, "[%d8,", "[%d9,")), "invalid-address"); // no map there
  EXPECT_EQ(kindOf(with(kReadTile, "{0, 0}], [%r1]", "{0, 0}], [%r1+8]")), "invalid-barrier");
  TensorInput small(2000); // the tensor is larger than its buffer
  small.setMap(boxOf(TensorType::BF16, {64, 1000}, {64, 8}, {0, 0}, TensorSwizzle::B128).map);
  std::vector<uint8_t> out(kOut);
  RunResult result = runTensor(with(kReadTile, "{0, 0}", "{0, 90}"), out, {1}, &small);
  EXPECT_EQ(toString(result.fault.kind), "global-out-of-bounds");
}

TEST(BulkTensor, Stores) {
  // Each thread writes a piece; thread 0 stores the box at row 28, of which 4 rows are
  // inside.
  const std::string body = R"(
  mov.u32 %r2, s;
  setp.eq.u32 %p1, %r0, 0;
  shl.b32 %r5, %r0, 4;
  add.u32 %r5, %r5, %r2;
  setp.lt.u32 %p5, %r0, 64;
  @%p5 st.shared.v4.u32 [%r5], {%r0, %r0, %r0, %r0};
  fence.proxy.async.shared::cta;
  bar.sync 0;
  @!%p1 bra DONE;
  cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d8, {0, 28}], [%r2];
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group.read 0;
DONE:
)";
  auto execute = [&](const std::string &text, std::vector<uint8_t> &out) {
    // The tensor is in `out`: 64 x 32 bf16, behind the map.
    std::vector<uint8_t> in(8);
    TensorInput target(4096);
    out = target.storage;
    auto address = reinterpret_cast<uint64_t>(out.data());
    size_t begin = (address + 63) / 64 * 64 - address;
    Box box = boxOf(TensorType::BF16, {64, 32}, {64, 8}, {0, 0}, TensorSwizzle::B128);
    box.map.base = address + begin + 192;
    std::memcpy(&out[begin], encode(box.map)->bytes.data(), kTensorMapBytes);
    RunResult result = runKernel(
        kernelText(with(kTensorAddresses, "%d8, %d0, 63", "%d8, %d1, 63") + text, kTensorShared),
        in, out, {128, 1, 1});
    out.erase(out.begin(), out.begin() + static_cast<ptrdiff_t>(begin + 192));
    return result;
  };
  std::vector<uint8_t> out;
  RunResult result = execute(body, out);
  ASSERT_TRUE(result.status.ok()) << result.status.toString();
  EXPECT_EQ(result.counters.globalStoreBytes, 4u * 128);
  for (uint32_t row = 28; row < 32; ++row)
    for (uint32_t piece = 0; piece < 8; ++piece)
      EXPECT_EQ(out[row * 128 + piece * 16], (row - 28) * 8 + (piece ^ (row - 28)));
  auto kind = [&](const std::string &what, const std::string &by) {
    RunResult changed = execute(with(body, what, by), out);
    return changed.status.ok() ? "" : std::string(toString(changed.fault.kind));
  };
  EXPECT_EQ(kind("  fence.proxy.async.shared::cta;\n", ""), "missing-proxy-fence");
  EXPECT_EQ(kind("  bar.sync 0;\n", ""), "shared-race");
  EXPECT_EQ(kind("  cp.async.bulk.wait_group.read 0;\n", ""), "unfinished-copy");
  EXPECT_EQ(kind("  cp.async.bulk.commit_group;\n", ""), "unfinished-copy");
  EXPECT_EQ(kind("wait_group.read 0;", "wait_group.read 0;\n  st.shared.u32 [%r2], 5;"), "");
  EXPECT_EQ(kind("wait_group.read 0;", "wait_group.read 1;\n  st.shared.u32 [%r2], 5;\n"
                                       "  cp.async.bulk.wait_group 0;"),
            "unfinished-copy");
}

TEST(Bulk, BytesInARow) {
  const std::string load = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                           "[%r2], [%d9+32], 1024, [%r1];";
  std::string body = with(kReadTile, tensorLoad(2, "0, 0"), load);
  TensorInput in(8192);
  std::vector<uint8_t> out(kOut);
  RunResult result = runTensor(body, out, {1}, &in);
  ASSERT_TRUE(result.status.ok()) << result.status.toString();
  EXPECT_TRUE(std::equal(out.begin(), out.begin() + 1024, in.data() + 32));
  EXPECT_EQ(result.counters.globalLoadBytes, 1024u);
  EXPECT_EQ(kindOf(with(body, "1024, [%r1]", "1000, [%r1]")), "invalid-address");
  EXPECT_EQ(kindOf(with(body, "[%d9+32]", "[%d9+40]")), "misaligned");
  EXPECT_EQ(kindOf(with(body, waitFor(0), "")), "unfinished-copy");

  // And back: shared to global memory.
  const std::string store = R"(
  mov.u32 %r2, s;
  shl.b32 %r5, %r0, 4;
  add.u32 %r5, %r5, %r2;
  st.shared.v4.u32 [%r5], {%r0, %r0, %r0, %r0};
  fence.proxy.async;
  bar.sync 0;
  setp.ne.u32 %p1, %r0, 0;
  @%p1 exit;
  cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r2], 2048;
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
)";
  ASSERT_TRUE((result = runTensor(store, out)).status.ok()) << result.status.toString();
  for (uint32_t i = 0; i < 128; ++i)
    EXPECT_EQ(out[16 * i + 4], i);
}

TEST(Bulk, PrefetchesChangeNothing) {
  EXPECT_EQ(kindOf("  cp.async.bulk.prefetch.L2.global [%d9], 64;\n"
                   "  cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%d8, {0, 0}];\n"
                   "  prefetch.tensormap [%d8];"),
            "");
}

TEST(Bulk, UnknownFormsAreRefused) {
  for (std::string_view text :
       {"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f16 [%d1], [%r2], 16;", // no noftz
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.max.f32 [%d1], [%r2], 16;",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.exch.b32 [%d1], [%r2], 16;",
        "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.f32 "
        "[%r1], [%r2], 16, [%r3];",
        "cp.async.bulk.tensor.2d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
        "[%r2], [%d8, {0, 0}], [%r1];",
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%r2], [%d8, {0}], [%r1];"}) {
    auto module = loadPtx(kernelText(std::string(text), kTensorShared), "test.ptx");
    ASSERT_FALSE(module.ok()) << text;
    EXPECT_NE(module.status().message().find("test.ptx:"), std::string::npos);
  }
}

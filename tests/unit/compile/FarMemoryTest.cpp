// Arrays of more than 4 GiB, of which a call touches little: elements beyond 2^32 are read and
// written where they are, on the CPU and on the simulator. Devices give such memory without taking
// it.
#include "Support.h"

#include "runtime/device/BoundCall.h"

#include <fmt/format.h>

#include <cstring>

namespace llmopt::test {
namespace {

using runtime::ArrayRef;

/// A call whose arrays lie on the device, some of them elsewhere than the harness put them.
class FarCall {
public:
  FarCall(Compiled &f, harness::Call &call) : f(f), call(call) {
    auto uploaded =
        runtime::StagedArrays::upload(stream(), f.program, f.runner().argumentsOf(call));
    if (!uploaded)
      throw std::runtime_error(uploaded.status().message());
    staged.emplace(*std::move(uploaded));
    arguments = staged->arguments();
  }

  runtime::CallArguments arguments;

  /// Runs the call and brings its results back.
  void run() {
    auto bound =
        runtime::BoundCall::bind(f.runner().deviceProgram(), arguments, f.runner().bindOptions());
    ASSERT_TRUE(bound.ok()) << bound.status().toString();
    runtime::Status status = bound->run(stream());
    ASSERT_TRUE(status.ok()) << status.toString();
    status = staged->download(stream());
    ASSERT_TRUE(status.ok()) << status.toString();
  }

  /// Elements [begin, begin + count) of an array of the harness go to `to`.
  void copy(const char *name, int64_t begin, int64_t count, uint8_t *to) {
    const harness::HostArray &array = *call.find(name);
    size_t size = reference::sizeOf(array.type);
    ASSERT_TRUE(stream()
                    .copyIn(to, static_cast<const uint8_t *>(array.data()) + size_t(begin) * size,
                            size_t(count) * size)
                    .ok());
  }
  std::vector<uint8_t> bytesAt(const uint8_t *from, size_t count) {
    std::vector<uint8_t> bytes(count);
    EXPECT_TRUE(stream().copyOut(bytes.data(), from, count).ok() && stream().synchronize().ok());
    return bytes;
  }

private:
  runtime::Stream &stream() { return f.runner().deviceStream(); }

  Compiled &f;
  harness::Call &call;
  std::optional<runtime::StagedArrays> staged;
};

class FarMemory : public OnEachDevice {
protected:
  void TearDown() override { memory = {}; }

  /// Skips the test where the machine does not let it have the address space.
  void allocate(Compiled &f, int64_t bytes) {
    auto got = f.runner().device().allocate(size_t(bytes));
    if (!got)
      GTEST_SKIP() << got.status().message();
    memory = *std::move(got);
  }
  runtime::DeviceMemory memory;
};

//===----------------------------------------------------------------------===//
// A16: pages whose offsets pass 2^31 and 2^32 elements
//===----------------------------------------------------------------------===//

constexpr int64_t kHeads = 8, kDim = 128, kPage = 16, kHalf = kPage * kHeads * kDim;
/// The keys of a page stand before its values, in one pool: page 2^16 begins at element 2^31.
constexpr int64_t kPageElements = 2 * kHalf, kPages = (1 << 17) + 16;

/// The call with its page `id` as page `first + id` of the large pool.
void expectSameAt(int64_t first, Compiled &f, const harness::Shape &shape,
                  const harness::Call &near, uint8_t *pool) {
  SCOPED_TRACE(testing::Message() << "pages from " << first);
  harness::Call far = f.call(shape);
  harness::HostArray &table = *far.find("block_table"), &slots = *far.find("slots");
  for (int64_t b = 0; b < table.shape[0]; ++b)
    for (int64_t c = 0; c < table.shape[1]; ++c)
      if (double id = table.get({b, c}); id >= 0)
        table.set({b, c}, double(first) + id);
  for (int64_t t = 0; t < slots.shape[0]; ++t)
    if (double slot = slots.get({t}); slot >= 0)
      slots.set({t}, double(first * kPage) + slot);
  FarCall call(f, far);
  int64_t pages = near.find("k_pool")->shape[0];
  auto at = [&](int64_t page, int64_t half) {
    return pool + ((first + page) * kPageElements + half * kHalf) * 2;
  };
  for (int64_t page = 0; page < pages; ++page) {
    call.copy("k_pool", page * kHalf, kHalf, at(page, 0));
    call.copy("v_pool", page * kHalf, kHalf, at(page, 1));
  }
  for (int64_t half : {0, 1})
    call.arguments.arrays[half ? "v_pool" : "k_pool"] = {pool + half * kHalf * 2,
                                                         bundle::ElementType::BF16,
                                                         {kPages, kPage, kHeads, kDim},
                                                         {kPageElements, kHeads * kDim, kDim, 1}};
  call.run();
  EXPECT_EQ(far.find("o")->elementBytes(), near.find("o")->elementBytes());
  for (const char *name : {"k_pool", "v_pool"}) {
    const auto *want = static_cast<const uint8_t *>(near.find(name)->data());
    for (int64_t page = 0; page < pages; ++page, want += kHalf * 2)
      EXPECT_EQ(
          std::memcmp(call.bytesAt(at(page, *name == 'v'), kHalf * 2).data(), want, kHalf * 2), 0)
          << name << ", page " << page;
  }
}

TEST_P(FarMemory, PagesBeyond32BitsAreReadAndAppended) {
  Compiled f(R"(
func.func @f(%q: tensor<?x16x128xbf16>, %k: tensor<?x8x128xbf16>, %v: tensor<?x8x128xbf16>,
             %slots: tensor<?xi64>, %kv: !attn.kv_cache<8x128xbf16, page = 16>,
             %s: !attn.sequences) -> tensor<?x16x128xbf16> {
  attn.append %k, %v, %slots, %kv : tensor<?x8x128xbf16>, tensor<?x8x128xbf16>, tensor<?xi64>,
              !attn.kv_cache<8x128xbf16, page = 16>
  %o = attn.attention %q, %kv, %s mask(causal)
    : tensor<?x16x128xbf16>, !attn.kv_cache<8x128xbf16, page = 16>, !attn.sequences
      -> tensor<?x16x128xbf16>
  return %o : tensor<?x16x128xbf16>
})",
             GetParam());
  ASSERT_NO_FATAL_FAILURE(allocate(f, kPages * kPageElements * 2));
  if (IsSkipped())
    return;
  harness::Shape shape = shapeOf({1, 3, 1}, {40, 50, 17});
  harness::Call near = f.verify(shape);
  int64_t pages = near.find("k_pool")->shape[0];
  ASSERT_LE(pages, 16);
  for (int64_t first : {int64_t{0}, (int64_t{1} << 16) - 2, (int64_t{1} << 17) - 2, kPages - pages})
    expectSameAt(first, f, shape, near, memory.data());
}

//===----------------------------------------------------------------------===//
// Dense K and V, sequences or keys far from each other
//===----------------------------------------------------------------------===//

TEST_P(FarMemory, StridesOfKeysPass32Bits) {
  constexpr int64_t kKvHeads = 2, kWidth = 64, kRow = kKvHeads * kWidth;
  Compiled f(R"(
func.func @f(%q: tensor<?x?x4x64xf16>, %k: tensor<?x?x2x64xf16>, %v: tensor<?x?x2x64xf16>)
    -> tensor<?x?x4x64xf16> {
  %o = attn.attention %q, %k, %v mask(causal)
    : tensor<?x?x4x64xf16>, tensor<?x?x2x64xf16>, tensor<?x?x2x64xf16> -> tensor<?x?x4x64xf16>
  return %o : tensor<?x?x4x64xf16>
})",
             GetParam());
  ASSERT_NO_FATAL_FAILURE(allocate(f, (int64_t{5} << 30) * 2));
  if (IsSkipped())
    return;
  harness::Shape shape = shapeOf({3, 3}, {18, 18});
  harness::Call near = f.verify(shape);
  struct Far {
    int64_t sequence, key; ///< strides
  };
  // Values lie behind their key.
  for (Far stride : {Far{(int64_t{1} << 32) + 64, 2 * kRow}, Far{1 << 20, (1 << 28) + 64}}) {
    SCOPED_TRACE(testing::Message() << "strides " << stride.sequence << ", " << stride.key);
    harness::Call far = f.call(shape);
    FarCall call(f, far);
    auto at = [&](int64_t b, int64_t key) { return b * stride.sequence + key * stride.key; };
    for (int64_t b = 0; b < 2; ++b)
      for (int64_t key = 0; key < 18; ++key) {
        ASSERT_LE(at(b, key) + 2 * kRow, int64_t{5} << 30);
        uint8_t *to = memory.data() + at(b, key) * 2;
        call.copy("k", (b * 18 + key) * kRow, kRow, to);
        call.copy("v", (b * 18 + key) * kRow, kRow, to + kRow * 2);
      }
    for (const char *name : {"k", "v"})
      call.arguments.arrays[name] = {memory.data() + (*name == 'v' ? kRow * 2 : 0),
                                     bundle::ElementType::F16,
                                     {2, 18, kKvHeads, kWidth},
                                     {stride.sequence, stride.key, kWidth, 1}};
    call.run();
    EXPECT_EQ(far.find("o")->elementBytes(), near.find("o")->elementBytes());
  }
}

//===----------------------------------------------------------------------===//
// pytorch#187227: rows of a mask past 2^32 elements
//===----------------------------------------------------------------------===//

TEST_P(FarMemory, RowsOfAMaskPass32Bits) {
  constexpr int64_t kQueries = 70, kKeys = 40;
  for (const char *type : {"i1", "f16"}) {
    SCOPED_TRACE(type);
    bool mask = std::string_view(type) == "i1";
    Compiled f(fmt::format(R"(
func.func @f(%q: tensor<?x?x4x24xf16>, %k: tensor<?x?x2x24xf16>, %v: tensor<?x?x2x24xf16>,
             %m: tensor<?x1x?x?x{0}>) -> tensor<?x?x4x24xf16> {{
  %o = attn.attention %q, %k, %v args(%m : tensor<?x1x?x?x{0}>) {1}
    : tensor<?x?x4x24xf16>, tensor<?x?x2x24xf16>, tensor<?x?x2x24xf16> -> tensor<?x?x4x24xf16>
  return %o : tensor<?x?x4x24xf16>
}})",
                           type, mask ? "mask(dense<arg0>)" : "bias(arg0)"),
               GetParam());
    // Row 64 begins at element 2^32 and what the row before has.
    constexpr int64_t kStride = (int64_t{1} << 26) + 16;
    int64_t size = mask ? 1 : 2;
    ASSERT_NO_FATAL_FAILURE(allocate(f, kQueries * kStride * size));
    if (IsSkipped())
      return;
    harness::Shape shape = shapeOf({kQueries}, {kKeys});
    harness::Call near = f.verify(shape), far = f.call(shape);
    FarCall call(f, far);
    for (int64_t row = 0; row < kQueries; ++row)
      call.copy("arg0", row * kKeys, kKeys, memory.data() + row * kStride * size);
    ArrayRef &m = call.arguments.arrays.at("arg0");
    m.data = memory.data();
    m.host = nullptr;
    ASSERT_EQ(m.strides[2], kKeys);
    m.strides = {kQueries * kStride, kQueries * kStride, kStride, 1};
    call.run();
    EXPECT_EQ(far.find("o")->elementBytes(), near.find("o")->elementBytes());
  }
}

LLMOPT_ON_EACH_DEVICE(FarMemory);

} // namespace
} // namespace llmopt::test

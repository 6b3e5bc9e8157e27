// A warp-specialised attention of sm_90a with tensor maps, wgmma and mbarriers in the manner of
// FlashAttention 3, written before the simulator and apart from it. It is read where it lies beside
// the test data: prototypes/nvrtc/fa3.cu.
#include "tests/unit/sim/AttentionOracle.h"
#include "tests/unit/sim/Nvrtc.h"
#include "tests/unit/sim/Support.h"

#include "runtime/device/sim/TensorMap.h"
#include "tests/support/TestData.h"

#include <algorithm>
#include <fstream>
#include <sstream>

using namespace llmopt;
using namespace llmopt::sim;
using namespace llmopt::sim::test;

namespace {

constexpr int kDim = 128, kTile = 128, kThreads = 384;
constexpr uint32_t kShared = 5 * kTile * kDim * 2; ///< of Q one tile, of K and V two
constexpr double kScale = 0.08838834764831845, kLog2E = 1.4426950408889634;

struct Shape {
  int queries, keys, heads, kvHeads, causal;
};

struct Attention {
  explicit Attention(const Shape &shape)
      : shape(shape), q(randomBf16(elements(shape.queries, shape.heads), 1)),
        k(randomBf16(elements(shape.keys, shape.kvHeads), 2)), v(randomBf16(k.size(), 3)),
        out(q.size(), 0xffff), lse(size_t(shape.queries) * shape.heads, NAN) {}

  runtime::StatusOr<Counters> execute(const Module &module, const Options &options,
                                      Fault *fault = nullptr) {
    Arrays memory;
    memory.in(q, "q").in(k, "k").in(v, "v").out(out, "out").out(lse, "lse");
    Params params;
    params.add(map(q, shape.queries, shape.heads)).add(map(k, shape.keys, shape.kvHeads));
    params.add(map(v, shape.keys, shape.kvHeads)).add(out.data()).add(lse.data());
    params.add(shape.queries).add(shape.keys).add(shape.heads).add(shape.kvHeads);
    params.add(float(kScale * kLog2E)).add(shape.causal);
    std::vector<std::byte> bytes(params.span().begin(), params.span().end());
    bytes.resize(module.kernels()[0].paramBytes);
    Launch launch{"fa3",
                  {uint32_t(shape.queries + kTile - 1) / kTile, uint32_t(shape.heads), 1},
                  {kThreads, 1, 1},
                  kShared,
                  bytes};
    warnings.clear();
    return run(module, memory, launch, options, fault, nullptr, &warnings);
  }

  /// Largest error in units of what rounding P and O to bf16 allows; of the LSE, of 2^-17.
  double worst() const {
    double worst = 0;
    for (int h = 0; h < shape.heads; ++h)
      for (int i = 0; i < shape.queries; ++i)
        worst = std::max(worst, worstOfRow(h, i));
    return worst;
  }

  std::vector<Fault> warnings;

private:
  static size_t elements(int rows, int heads) { return size_t(rows) * heads * kDim; }

  static EncodedTensorMap map(const std::vector<uint16_t> &data, int rows, int heads) {
    uint64_t row = uint64_t(heads) * kDim * 2;
    TensorMap map;
    map.rank = 4;
    map.base = reinterpret_cast<uint64_t>(data.data());
    map.dims = {kDim, uint64_t(heads), uint64_t(rows), 1};
    map.strides = {kDim * 2, row, row * uint64_t(rows)};
    map.box = {kDim / 2, 1, kTile, 1};
    map.swizzle = TensorSwizzle::B128;
    auto encoded = encode(map);
    EXPECT_TRUE(encoded.ok()) << encoded.status().toString();
    return *encoded;
  }

  double worstOfRow(int h, int i) const {
    int seen = shape.causal ? i + shape.keys - shape.queries + 1 : shape.keys;
    size_t row = (size_t(i) * shape.heads + h) * kDim;
    auto at = [&](int j) {
      return (size_t(j) * shape.kvHeads + h / (shape.heads / shape.kvHeads)) * kDim;
    };
    RowResult want = attendRow(&q[row], seen, kDim, kScale, at, k, v);
    double worst = std::fabs(lse[size_t(h) * shape.queries + i] - want.lse * kLog2E) * 0x1p17;
    for (int e = 0; e < kDim; ++e) {
      double allowed = 0x1p-9 * (2 * want.weights[e] + std::fabs(want.out[e])) + 1e-6;
      worst = std::max(worst, std::fabs(f(out[row + e]) - want.out[e]) / allowed);
      if (std::isnan(f(out[row + e])))
        return INFINITY;
    }
    return std::isnan(worst) ? INFINITY : worst;
  }

  Shape shape;
  std::vector<uint16_t> q, k, v, out;
  std::vector<float> lse;
};

/// The kernel that frees a tile of K or V with one arrival of a warpgroup, as it was written; or
/// with one of each warp.
class Prototype : public testing::Test {
protected:
  void SetUp() override {
    LLMOPT_NEEDS_TEST_DATA();
    std::ifstream file(llmopt::test::dataFolder() / "../prototypes/nvrtc/fa3.cu");
    if (!file)
      GTEST_SKIP() << "no prototypes/nvrtc/fa3.cu beside the test data (LLMOPT_TEST_DATA)";
    std::stringstream text;
    text << file.rdbuf();
    perGroup = text.str();
    perWarp = perGroup;
    EXPECT_EQ(replace(perWarp, "mb_init(ke+8*i,2);", "mb_init(ke+8*i,8);"), 1);
    EXPECT_EQ(replace(perWarp, "mb_init(ve+8*i,2);", "mb_init(ve+8*i,8);"), 1);
    EXPECT_EQ(replace(perWarp, "(tid&127)==0", "(tid&31)==0"), 2);
  }

  /// Null, and the test skipped, without NVRTC.
  static std::shared_ptr<const Module> compile(const std::string &source) {
    auto ptx = compileToPtx(source, "90a", {"-lineinfo"});
    return ptx ? load(*ptx) : nullptr;
  }

  std::string perGroup, perWarp;

private:
  static int replace(std::string &text, std::string_view what, std::string_view by) {
    int count = 0;
    for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size(), ++count)
      text.replace(at, what.size(), by);
    return count;
  }
};

constexpr Shape kShapes[] = {{256, 256, 2, 1, 0}, {256, 256, 2, 2, 1}, {300, 700, 2, 1, 1}};

} // namespace

TEST_F(Prototype, MatchesTheReferenceAndIsCleanIfEachWarpFrees) {
  auto module = compile(perWarp);
  if (!module)
    GTEST_SKIP() << "no NVRTC on this machine";
  for (const Shape &shape : kShapes)
    for (uint64_t seed : {0, 1}) {
      SCOPED_TRACE(testing::Message() << shape.queries << " x " << shape.keys << ", causal "
                                      << shape.causal << ", seed " << seed);
      Attention attention(shape);
      Options options{2, 1 << 22, seed};
      options.unprovenFaults = true;
      auto counters = attention.execute(*module, options);
      ASSERT_TRUE(counters.ok()) << counters.status().toString();
      EXPECT_LE(attention.worst(), 1);
      EXPECT_TRUE(attention.warnings.empty()) << attention.warnings[0].message();
    }
}

TEST_F(Prototype, OneArrivalForAWarpgroupIsUnproven) {
  auto module = compile(perGroup);
  if (!module)
    GTEST_SKIP() << "no NVRTC on this machine";
  for (const Shape &shape : kShapes) {
    SCOPED_TRACE(testing::Message() << shape.queries << " x " << shape.keys);
    Attention attention(shape);
    auto counters = attention.execute(*module, {2, 1 << 22, 0});
    ASSERT_TRUE(counters.ok()) << counters.status().toString();
    EXPECT_LE(attention.worst(), 1); // it may be right: a warning
    if (shape.keys <= 2 * kTile)     // nothing is written over what was freed
      continue;
    ASSERT_FALSE(attention.warnings.empty());
    for (const Fault &warning : attention.warnings) {
      EXPECT_EQ(toString(warning.kind), "unproven-release");
      EXPECT_NE(warning.detail.find("the warpgroup was not synchronised before; the ISA does not "
                                    "say that one warp's wait is enough"),
                std::string::npos)
          << warning.detail;
    }
    Options strict{2, 1 << 22, 0};
    strict.unprovenFaults = true;
    Fault fault;
    EXPECT_FALSE(attention.execute(*module, strict, &fault).ok());
    EXPECT_EQ(toString(fault.kind), "unproven-release");
  }
}

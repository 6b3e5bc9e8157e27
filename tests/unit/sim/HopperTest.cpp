// A warp-specialised attention of sm_90a (kernels/hopper.cu) from NVRTC's PTX: its
// numbers, and what happens when one of its waits or fences is taken away.
#include "runtime/base/Half.h"
#include "runtime/device/sim/TensorMap.h"

#include "tests/unit/sim/AttentionOracle.h"
#include "tests/unit/sim/Nvrtc.h"
#include "tests/unit/sim/Support.h"

#include <algorithm>
#include <cmath>
#include <random>

using namespace llmopt::sim;
using namespace llmopt::sim::test;
using namespace llmopt;

namespace {

constexpr double kLog2E = 1.4426950408889634;
constexpr uint32_t kDim = 64, kRows = 64, kShared = 6 * 64 * 64 * 2;

struct Shape {
  int queries, keys, heads, headsPerKv, causal;
};

class Attention {
public:
  explicit Attention(const Shape &shape)
      : shape(shape), q(randomBf16(size(shape.queries, shape.heads), 1)),
        k(randomBf16(size(shape.keys, shape.heads / shape.headsPerKv), 2)),
        v(randomBf16(k.size(), 3)), out(q.size(), 0xffff),
        lse(size_t(shape.queries) * shape.heads, NAN) {}

  runtime::StatusOr<Counters> execute(const Module &module, const Options &options,
                                      Fault *fault = nullptr) {
    Arrays memory;
    memory.in(q, "q").in(k, "k").in(v, "v").out(out, "out").out(lse, "lse");
    int kvHeads = shape.heads / shape.headsPerKv;
    Params params;
    params.add(map(q, shape.queries, shape.heads)).add(map(k, shape.keys, kvHeads));
    params.add(map(v, shape.keys, kvHeads)).add(map(out, shape.queries, shape.heads));
    params.add(lse.data());
    params.add(shape.queries).add(shape.keys).add(shape.headsPerKv).add(shape.causal);
    params.add(scale());
    std::vector<std::byte> bytes(params.span().begin(), params.span().end());
    bytes.resize(module.kernels()[0].paramBytes);
    Launch launch{
        "attention",
        {(static_cast<uint32_t>(shape.queries) + 127) / 128, static_cast<uint32_t>(shape.heads), 1},
        {384, 1, 1},
        kShared,
        bytes};
    warnings.clear();
    return run(module, memory, launch, options, fault, nullptr, &warnings);
  }

  static float scale() { return 0.125f * 1.44269504f; }

  /// Largest error, in units of what rounding P and O to bf16 allows (2^-9 each, and the
  /// sum of P is not rounded); that of the LSE in units of 2^-17.
  double worst() const {
    double worst = 0;
    for (int h = 0; h < shape.heads; ++h)
      for (int i = 0; i < shape.queries; ++i)
        worst = std::max(worst, worstOfRow(h, i));
    return worst;
  }

  std::vector<uint16_t> rows() const { return out; }
  std::vector<Fault> warnings;

private:
  static size_t size(int rows, int heads) { return size_t(rows) * heads * kDim; }

  static EncodedTensorMap map(const std::vector<uint16_t> &data, int rows, int heads) {
    TensorMap map;
    map.rank = 3;
    map.base = reinterpret_cast<uint64_t>(data.data());
    map.dims = {kDim, static_cast<uint64_t>(heads), static_cast<uint64_t>(rows)};
    map.strides = {2 * kDim, uint64_t{2} * kDim * static_cast<uint64_t>(heads)};
    map.box = {kDim, 1, kRows};
    map.swizzle = TensorSwizzle::B128;
    auto encoded = encode(map);
    EXPECT_TRUE(encoded.ok()) << encoded.status().toString();
    return *encoded;
  }

  double worstOfRow(int h, int i) const {
    int limit =
        shape.causal ? std::min(shape.keys, i + shape.keys - shape.queries + 1) : shape.keys;
    const uint16_t *row = &q[(size_t(i) * shape.heads + h) * kDim];
    auto at = [&](int j) {
      return (size_t(j) * (shape.heads / shape.headsPerKv) + h / shape.headsPerKv) * kDim;
    };
    RowResult want = attendRow(row, std::max(limit, 0), kDim, scale() / kLog2E, at, k, v);
    double worst = 0;
    for (uint32_t e = 0; e < kDim; ++e) {
      double allowed = 0x1p-9 * (2 * want.weights[e] + std::fabs(want.out[e]));
      double error = std::fabs(f(out[(size_t(i) * shape.heads + h) * kDim + e]) - want.out[e]);
      worst = std::isnan(error) ? INFINITY : std::max(worst, error / (allowed + 1e-6));
    }
    double found = lse[size_t(h) * shape.queries + i]; // to the base of 2
    double wrong = limit > 0 ? std::fabs(found - want.lse * kLog2E) * 0x1p17 : 0;
    return std::isnan(wrong) ? INFINITY : std::max(worst, wrong);
  }

  Shape shape;
  std::vector<uint16_t> q, k, v, out;
  std::vector<float> lse;
};

std::optional<std::string> hopperPtx(const std::string &source) {
  return compileToPtx(source, "90a", {"-lineinfo", "--std=c++17"});
}

/// The kernel with the line that has a tag replaced.
std::string changed(const std::string &tag, const std::string &by) {
  std::string text = kernelSource("hopper.cu");
  size_t at = text.find("// [" + tag + "]");
  EXPECT_NE(at, std::string::npos) << tag;
  size_t begin = text.rfind('\n', at) + 1;
  return text.replace(begin, at - begin, by + " ");
}

struct Mutant {
  std::string tag, by;
  std::vector<FaultKind> kinds; ///< that may be found, by the order of execution
};

/// What a run of a mutant finds: a fault's kind, or "wrong", or "" for nothing.
std::string outcome(const std::string &source, uint64_t seed, Fault &fault) {
  auto ptx = hopperPtx(source);
  if (!ptx)
    return "";
  auto module = load(*ptx);
  Attention attention({200, 400, 2, 2, 0});
  Options options{2, 1 << 22, seed};
  options.unprovenFaults = true;
  auto counters = attention.execute(*module, options, &fault);
  if (!counters)
    return std::string(toString(fault.kind));
  return attention.worst() > 1 ? "wrong" : "";
}

} // namespace

TEST(Hopper, AttentionMatchesTheReference) {
  auto ptx = hopperPtx(kernelSource("hopper.cu"));
  if (!ptx)
    GTEST_SKIP() << "no NVRTC on this machine";
  auto module = load(*ptx);
  ASSERT_TRUE(module);
  for (const Shape &shape :
       {Shape{128, 64, 1, 1, 0}, Shape{128, 256, 2, 2, 0}, Shape{200, 333, 4, 2, 1},
        Shape{1, 1, 1, 1, 0}, Shape{130, 65, 1, 1, 1}})
    for (uint64_t seed : {0, 1, 2}) {
      Attention attention(shape);
      auto counters = attention.execute(*module, {2, 1 << 22, seed});
      ASSERT_TRUE(counters.ok()) << counters.status().toString();
      EXPECT_LE(attention.worst(), 1) << shape.queries << " x " << shape.keys;
      EXPECT_TRUE(attention.warnings.empty()) << attention.warnings[0].message();
    }
}

TEST(Hopper, CountsDoNotDependOnTheOrder) {
  auto ptx = hopperPtx(kernelSource("hopper.cu"));
  if (!ptx)
    GTEST_SKIP() << "no NVRTC on this machine";
  auto module = load(*ptx);
  std::optional<Counters> first;
  std::vector<uint16_t> rows;
  for (uint64_t seed : {0, 1, 2, 3}) {
    Attention attention({200, 400, 2, 1, 1});
    auto counters =
        attention.execute(*module, {static_cast<uint32_t>(1 + seed % 2), 1 << 22, seed});
    ASSERT_TRUE(counters.ok()) << counters.status().toString();
    if (!first) {
      first = *counters;
      rows = attention.rows();
      // 2 blocks of 2 groups per head; tiles of 64 keys up to the last that they see.
      uint64_t tiles = 2 * 2 * (6 + 7);
      EXPECT_EQ(counters->mma, tiles * 4 * (4 + 4));
      EXPECT_EQ(counters->mmaMultiplyAdds, tiles * 2 * 64 * 64 * 64);
    }
    EXPECT_EQ(attention.rows(), rows);
    EXPECT_EQ(counters->mma, first->mma);
    EXPECT_EQ(counters->globalLoadBytes, first->globalLoadBytes);
    EXPECT_EQ(counters->globalStoreBytes, first->globalStoreBytes);
  }
}

TEST(Hopper, MutantsAreFound) {
  using K = FaultKind;
  const std::vector<Mutant> mutants = {
      {"fence-init", "", {K::UnprovenInit}},
      {"sync-init", "", {K::InvalidBarrier, K::SharedRace}},
      {"wait-q", "", {K::UnfinishedCopy}},
      {"wait-k", "", {K::UnfinishedCopy}},
      {"wait-v", "", {K::UnfinishedCopy}},
      {"wait-k-empty", "", {K::UnfinishedProduct, K::UnfinishedCopy, K::InvalidBarrier}},
      {"wait-v-empty", "", {K::UnfinishedProduct, K::UnfinishedCopy, K::InvalidBarrier}},
      {"fence-s", "", {K::MissingWgmmaFence}},
      {"fence-o", "", {K::MissingWgmmaFence}},
      {"commit-s", "", {K::UnfinishedProduct}},
      {"commit-o", "", {K::UnfinishedProduct}},
      {"wait-s", "", {K::UnfinishedProduct}},
      {"wait-o", "", {K::UnfinishedProduct}},
      {"fence-proxy", "", {K::MissingProxyFence}},
      {"sync-result", "", {K::SharedRace, K::UninitialisedShared}},
      {"wait-store", "", {K::UnfinishedCopy}},
      {"expect-q", "expectBytes(&bars.q, kTileBytes);", {K::UnfinishedCopy}},
      {"expect-k", "expectBytes(&bars.kFull[s], kTileBytes / 2);", {K::TransactionCount}},
      {"expect-v", "expectBytes(&bars.vFull[s], kTileBytes + 16);", {K::TransactionCount}},
      {"expect-k", "arrive(&bars.kFull[s]);", {K::UnfinishedCopy}},
      {"release-k", "", {K::Deadlock}},
      {"release-v", "", {K::Deadlock}},
      {"count-k",
       "initBarrier(&bars.kEmpty[s], 1);",
       {K::UnfinishedProduct, K::UnprovenRelease, K::InvalidBarrier, K::Deadlock}},
      {"wait-s",
       "asm volatile(\"wgmma.wait_group.sync.aligned 1;\" ::: \"memory\");",
       {K::UnfinishedProduct}},
      {"wait-k", "wait(&bars.kFull[stage], parity ^ 1);", {K::UnfinishedCopy, K::Deadlock}},
      {"wait-k",
       "release(&bars.kEmpty[stage]); wait(&bars.kFull[stage], parity);",
       {K::UnfinishedCopy}},
      {"release-lane", "if (threadIdx.x % 32 == 0 && threadIdx.x / 32 != 7)", {K::Deadlock}},
  };
  if (!hopperPtx(kernelSource("hopper.cu")))
    GTEST_SKIP() << "no NVRTC on this machine";
  Fault none;
  for (uint64_t seed : {0, 1, 2})
    EXPECT_EQ(outcome(kernelSource("hopper.cu"), seed, none), "");
  for (const Mutant &mutant : mutants)
    for (uint64_t seed : {0, 1, 2}) {
      Fault fault;
      std::string found = outcome(changed(mutant.tag, mutant.by), seed, fault);
      EXPECT_TRUE(std::any_of(mutant.kinds.begin(), mutant.kinds.end(),
                              [&](FaultKind kind) { return toString(kind) == found; }))
          << mutant.tag << " '" << mutant.by << "' with seed " << seed << ": '" << found << "' "
          << fault.message();
    }
}

TEST(Hopper, OneArrivalForAWarpgroupIsUnproven) {
  std::string source = kernelSource("hopper.cu");
  auto replace = [&](const std::string &what, const std::string &by) {
    for (size_t at; (at = source.find(what)) != std::string::npos;)
      source.replace(at, what.size(), by);
  };
  replace("kConsumers * kWarpsOfGroup)", "kConsumers)");
  replace("if (threadIdx.x % 32 == 0) // [release-lane]", "if (threadIdx.x % 128 == 0)");
  auto ptx = hopperPtx(source);
  if (!ptx)
    GTEST_SKIP() << "no NVRTC on this machine";
  auto module = load(*ptx);
  for (uint64_t seed : {0, 1, 2}) {
    Attention attention({200, 400, 2, 2, 0});
    auto counters = attention.execute(*module, {2, 1 << 22, seed});
    ASSERT_TRUE(counters.ok()) << counters.status().toString();
    EXPECT_LE(attention.worst(), 1);
    ASSERT_FALSE(attention.warnings.empty());
    for (const Fault &warning : attention.warnings)
      EXPECT_EQ(toString(warning.kind), "unproven-release");
    EXPECT_NE(attention.warnings[0].detail.find("the warpgroup was not synchronised"),
              std::string::npos);

    Options options{2, 1 << 22, seed};
    options.unprovenFaults = true;
    Fault fault;
    EXPECT_FALSE(attention.execute(*module, options, &fault).ok());
    EXPECT_EQ(toString(fault.kind), "unproven-release");
  }
  // With the warpgroup synchronised before, one arrival says it for all.
  replace("if (threadIdx.x % 128 == 0)\n",
          "asm volatile(\"bar.sync %0, 128;\" ::\"r\"(threadIdx.x / 128) : \"memory\");\n"
          "  if (threadIdx.x % 128 == 32)\n");
  ptx = hopperPtx(source);
  module = load(*ptx);
  Attention attention({200, 400, 2, 2, 0});
  auto counters = attention.execute(*module, {2, 1 << 22, 1});
  ASSERT_TRUE(counters.ok()) << counters.status().toString();
  EXPECT_TRUE(attention.warnings.empty()) << attention.warnings[0].message();
}

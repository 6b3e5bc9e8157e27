// Real kernels from NVRTC's PTX, for every architecture, against host code.
#include "runtime/base/Half.h"

#include "tests/unit/sim/AttentionOracle.h"
#include "tests/unit/sim/Nvrtc.h"
#include "tests/unit/sim/Support.h"

#include <algorithm>
#include <cmath>
#include <random>

#define HD
namespace host {
#include "tests/unit/sim/kernels/plain.inc"
}

using namespace llmopt::sim;
using namespace llmopt::sim::test;
using namespace llmopt;

namespace {

constexpr const char *kArchs[] = {"80", "86", "89", "90", "100", "120"};

std::optional<std::string> attentionPtx(const std::string &file, int dim, const std::string &arch,
                                        std::vector<std::string> options = {}) {
  std::string source =
      fmt::format("#define DIM {}\n", dim) + kernelSource("tensor.cuh") + kernelSource(file);
  return compileToPtx(source, arch, options);
}

std::optional<std::string> plainPtx(const std::string &arch) {
  return compileToPtx("#define HD __device__\n" + kernelSource("plain.inc") +
                          kernelSource("plain.cu"),
                      arch, {"--fmad=false"});
}

/// P and O are rounded to bf16 (2^-9 relative each); the row sum is not, which
/// is the error of P once more.
void expectRow(const RowResult &expected, const uint16_t *out, const std::string &what) {
  for (size_t e = 0; e < expected.out.size(); ++e)
    ASSERT_NEAR(f(out[e]), expected.out[e],
                0x1p-9 * (2 * expected.weights[e] + std::fabs(expected.out[e])) + 1e-6)
        << what << " element " << e;
}

struct PrefillCase {
  int dim, queries, keys, heads, group;
  bool causal;
};

class Prefill {
public:
  explicit Prefill(const PrefillCase &c)
      : c(c), q(randomBf16(size_t(c.queries) * c.heads * c.dim, 1)),
        k(randomBf16(size_t(c.keys) * c.heads / c.group * c.dim, 2)),
        v(randomBf16(size_t(c.keys) * c.heads / c.group * c.dim, 3)), out(q.size(), 0xffff),
        lse(size_t(c.queries) * c.heads) {}

  runtime::StatusOr<Counters> execute(const Module &module, const Options &options = {},
                                      Fault *fault = nullptr) {
    Arrays memory;
    memory.in(q, "q").in(k, "k").in(v, "v").out(out, "out").out(lse, "lse");
    Params params;
    params.add(q.data()).add(k.data()).add(v.data()).add(out.data()).add(lse.data());
    params.add(c.queries).add(c.keys).add(c.group);
    params.add(static_cast<float>(scale() * 1.4426950408889634)).add(int{c.causal});
    Launch launch{"prefill",
                  {static_cast<uint32_t>(c.queries + 63) / 64, static_cast<uint32_t>(c.heads), 1},
                  {128, 1, 1},
                  static_cast<uint32_t>(5 * 64 * c.dim * 2),
                  params.span()};
    return run(module, memory, launch, options, fault);
  }

  void check() const {
    int kvHeads = c.heads / c.group;
    for (int i = 0; i < c.queries; ++i)
      for (int h = 0; h < c.heads; ++h) {
        int visible = c.causal ? std::min(c.keys, i + c.keys - c.queries + 1) : c.keys;
        size_t row = size_t(i) * c.heads + h;
        RowResult expected = attendRow(
            &q[row * c.dim], visible, c.dim, scale(),
            [&](int j) { return (size_t(j) * kvHeads + h / c.group) * c.dim; }, k, v);
        expectRow(expected, &out[row * c.dim], fmt::format("row {} head {}", i, h));
        ASSERT_NEAR(lse[row], expected.lse, 1e-5 * (1 + std::fabs(expected.lse)));
      }
  }

  double scale() const { return 1 / std::sqrt(double(c.dim)); }

  PrefillCase c;
  std::vector<uint16_t> q, k, v, out;
  std::vector<float> lse;
};

constexpr PrefillCase kSmall = {64, 70, 133, 2, 2, true};

} // namespace

#define LLMOPT_REQUIRE_PTX(ptx)                                                                    \
  if (!(ptx))                                                                                      \
  GTEST_SKIP() << "no NVRTC on this machine"

TEST(Kernel, PrefillOnEveryArchitecture) {
  for (const char *arch : kArchs) {
    SCOPED_TRACE(arch);
    auto ptx = attentionPtx("prefill.cu", 64, arch);
    LLMOPT_REQUIRE_PTX(ptx);
    auto module = load(*ptx);
    ASSERT_TRUE(module);
    EXPECT_EQ(module->target(), fmt::format("sm_{}", arch));
    Prefill prefill(kSmall);
    auto counters = prefill.execute(*module);
    ASSERT_TRUE(counters.ok()) << counters.status().toString();
    prefill.check();
    // Causal: the second block sees all three tiles, the first two of them;
    // 8 * 4 products for scores and as many for the output, in each warp.
    EXPECT_EQ(counters->mma, uint64_t{2 * (2 + 3) * 4 * (32 + 32)});
    EXPECT_EQ(counters->sharedWavefronts, counters->sharedIdeal);
  }
}

TEST(Kernel, PrefillOfOtherShapes) {
  for (PrefillCase c :
       {PrefillCase{128, 64, 64, 1, 1, false}, PrefillCase{128, 100, 257, 4, 4, true},
        PrefillCase{256, 1, 200, 2, 1, false}}) {
    auto ptx = attentionPtx("prefill.cu", c.dim, "80", {"-lineinfo"});
    LLMOPT_REQUIRE_PTX(ptx);
    auto module = load(*ptx);
    ASSERT_TRUE(module);
    Prefill prefill(c);
    auto counters = prefill.execute(*module);
    ASSERT_TRUE(counters.ok()) << counters.status().toString();
    prefill.check();
  }
}

TEST(Kernel, ResultsDependNeitherOnThreadsNorOnOrder) {
  auto ptx = attentionPtx("prefill.cu", 64, "80");
  LLMOPT_REQUIRE_PTX(ptx);
  auto module = load(*ptx);
  // The same buffers each time: sectors depend on where they lie.
  Prefill prefill(kSmall);
  auto counters = prefill.execute(*module, {1});
  ASSERT_TRUE(counters.ok());
  std::vector<uint16_t> out = prefill.out;
  for (Options options :
       {Options{4}, Options{1, uint64_t{1} << 32, 1}, Options{3, uint64_t{1} << 32, 99}}) {
    std::fill(prefill.out.begin(), prefill.out.end(), 0xffff);
    auto again = prefill.execute(*module, options);
    ASSERT_TRUE(again.ok()) << again.status().toString();
    EXPECT_EQ(prefill.out, out);
    EXPECT_EQ(*counters, *again);
  }
}

// Faults of kernels made wrong on purpose.
TEST(Kernel, MutantsAreCaught) {
  std::string source = "#define DIM 64\n" + kernelSource("tensor.cuh") + kernelSource("prefill.cu");
  struct Mutant {
    std::string from, to;
    std::optional<FaultKind> fault; ///< none: the numbers tell
  };
  const Mutant kMutants[] = {
      {"wait<0>();", "wait<1>();", std::nullopt},
      {"bool valid = first + row < count;", "bool valid = true;", FaultKind::GlobalOutOfBounds},
      {"if (row >= query_rows)\n      continue;", "", FaultKind::GlobalOutOfBounds},
      {"tile_v = tile_k + 2 * kTileBytes", "tile_v = tile_k + 3 * kTileBytes",
       FaultKind::SharedOutOfBounds},
      {"key > query + diagonal", "key > query + diagonal + 1", std::nullopt},
      {"key >= key_rows ||", "", std::nullopt},
      {"sum[half] *= shrink;", "", std::nullopt},
      {"multiply(score[2 * n], a, b[0], b[1]);", "multiply(score[2 * n], a, b[1], b[0]);",
       std::nullopt},
      {"__syncthreads();", "if (lane < 16)\n  __syncthreads();", FaultKind::DivergentSync},
      {"__syncthreads();", "asm volatile(\"bar.sync 1, 160;\");", FaultKind::Deadlock},
  };
  for (const Mutant &mutant : kMutants) {
    SCOPED_TRACE(mutant.from);
    std::string text = source;
    size_t at = text.find(mutant.from);
    ASSERT_NE(at, std::string::npos);
    text.replace(at, mutant.from.size(), mutant.to);
    auto ptx = compileToPtx(text, "80");
    LLMOPT_REQUIRE_PTX(ptx);
    auto module = load(*ptx);
    PrefillCase c = kSmall;
    c.causal = mutant.from != "key >= key_rows ||"; // else the diagonal hides the bound
    Prefill prefill(c);
    auto counters = prefill.execute(*module, {1});
    if (mutant.fault) {
      ASSERT_FALSE(counters.ok());
      EXPECT_NE(counters.status().message().find(toString(*mutant.fault)), std::string::npos)
          << counters.status().toString();
      continue;
    }
    if (!counters.ok())
      continue;
    Prefill right(c);
    auto good = load(*attentionPtx("prefill.cu", 64, "80"));
    ASSERT_TRUE(right.execute(*good, {1}).ok());
    EXPECT_NE(prefill.out, right.out);
  }
}

TEST(Kernel, PagedDecodeWithSplitsOnEveryArchitecture) {
  constexpr int kDim = 64, kGroup = 4, kKvHeads = 2, kHeads = kGroup * kKvHeads, kPage = 16;
  constexpr int kSplits = 3, kSequences = 4, kPages = 20;
  std::vector<int> lengths = {300, 1, 0, 65};
  std::vector<uint16_t> q = randomBf16(kSequences * kHeads * kDim, 4);
  std::vector<int> table(kSequences * kPages, -1000000); // unused entries must not be followed
  int next = 0, total = 40;
  for (int s = 0; s < kSequences; ++s)
    for (int p = 0; p * kPage < lengths[s]; ++p)
      table[s * kPages + p] = (next++ * 7 + 3) % total;
  std::vector<uint16_t> k = randomBf16(size_t(total) * kPage * kKvHeads * kDim, 5);
  std::vector<uint16_t> v = randomBf16(k.size(), 6);
  for (const char *arch : kArchs) {
    SCOPED_TRACE(arch);
    auto ptx = attentionPtx("decode.cu", kDim, arch);
    LLMOPT_REQUIRE_PTX(ptx);
    auto module = load(*ptx);
    ASSERT_TRUE(module);
    std::vector<float> partial(kSequences * kHeads * kSplits * kDim, NAN),
        lse(kSequences * kHeads * kSplits, NAN);
    std::vector<uint16_t> out(q.size(), 0xffff);
    Arrays memory;
    memory.in(q, "q")
        .in(k, "k")
        .in(v, "v")
        .in(table, "table")
        .in(lengths, "lengths")
        .out(partial, "partial")
        .out(lse, "lse")
        .out(out, "out");
    double scale = 1 / std::sqrt(double(kDim));
    Params params;
    params.add(q.data()).add(k.data()).add(v.data()).add(table.data()).add(lengths.data());
    params.add(partial.data()).add(lse.data()).add(int{kGroup}).add(int{kPages}).add(int{kPage});
    params.add(static_cast<float>(scale * 1.4426950408889634));
    uint32_t shared = (16 + 128) * kDim * 2 + (128 + 64 * kDim) * 4;
    auto counters =
        run(*module, memory,
            {"decode", {kSplits, kKvHeads, kSequences}, {128, 1, 1}, shared, params.span()});
    ASSERT_TRUE(counters.ok()) << counters.status().toString();
    Params merge;
    merge.add(partial.data()).add(lse.data()).add(out.data()).add(int{kSplits});
    auto merged =
        run(*module, memory, {"merge", {kSequences * kHeads, 1, 1}, {kDim, 1, 1}, 0, merge.span()});
    ASSERT_TRUE(merged.ok()) << merged.status().toString();
    for (int s = 0; s < kSequences; ++s)
      for (int h = 0; h < kHeads; ++h) {
        RowResult expected = attendRow(
            &q[(s * kHeads + h) * kDim], lengths[s], kDim, scale,
            [&](int j) {
              size_t slot = size_t(table[s * kPages + j / kPage]) * kPage + j % kPage;
              return (slot * kKvHeads + h / kGroup) * kDim;
            },
            k, v);
        expectRow(expected, &out[(s * kHeads + h) * kDim],
                  fmt::format("sequence {} head {}", s, h));
      }
  }
}

TEST(Kernel, PlainCodeEqualsTheHosts) {
  constexpr int kIntegerOps = 15, kFloatOps = 12, kThreads = 256;
  for (const char *arch : kArchs) {
    SCOPED_TRACE(arch);
    auto ptx = plainPtx(arch);
    LLMOPT_REQUIRE_PTX(ptx);
    auto module = load(*ptx);
    ASSERT_TRUE(module);
    std::vector<unsigned long long> integers(kThreads * kIntegerOps);
    std::vector<float> floats(kThreads * kFloatOps);
    Arrays memory;
    memory.out(integers, "integers").out(floats, "floats");
    Params first, second;
    first.add(integers.data()).add(int{kIntegerOps});
    second.add(floats.data()).add(int{kFloatOps});
    auto counters =
        run(*module, memory, {"run_integers", {kThreads / 64, 1, 1}, {64, 1, 1}, 0, first.span()});
    ASSERT_TRUE(counters.ok()) << counters.status().toString();
    counters =
        run(*module, memory, {"run_floats", {kThreads / 64, 1, 1}, {64, 1, 1}, 0, second.span()});
    ASSERT_TRUE(counters.ok()) << counters.status().toString();
    for (unsigned i = 0; i < kThreads; ++i) {
      for (int op = 0; op < kIntegerOps; ++op)
        EXPECT_EQ(integers[i * kIntegerOps + op], host::integers(i * 3, op)) << "integer op " << op;
      for (int op = 0; op < kFloatOps; ++op)
        EXPECT_EQ(std::bit_cast<uint32_t>(floats[i * kFloatOps + op]),
                  std::bit_cast<uint32_t>(host::floats(i * 3, op)))
            << "float op " << op << " of " << i;
    }
  }
}

TEST(Kernel, CallsConstantsAtomicsAndVariables) {
  auto ptx = plainPtx("80");
  LLMOPT_REQUIRE_PTX(ptx);
  auto module = load(*ptx);
  ASSERT_TRUE(module);
  constexpr int kRows = 5, kStride = 300;
  struct Shape {
    int rows;
    float factor[3];
    long long stride;
  } shape = {kRows, {1.0f, 2.0f, 3.0f}, kStride};
  std::vector<float> in(kRows * kStride), out(kRows);
  std::vector<int> done(2);
  for (size_t i = 0; i < in.size(); ++i)
    in[i] = static_cast<float>(i % 7) - 3;
  Arrays memory;
  memory.in(in, "in").out(out, "out").out(done, "done");
  std::vector<std::byte> bytes(24 + sizeof(shape));
  const void *pointers[3] = {in.data(), out.data(), done.data()};
  std::memcpy(bytes.data(), pointers, 24);
  std::memcpy(&bytes[24], &shape, sizeof(shape));
  for (int expected : {7, 8}) {
    done = {0, 0};
    auto counters = run(*module, memory, {"sum_rows", {kRows, 1, 1}, {128, 1, 1}, 0, bytes});
    ASSERT_TRUE(counters.ok()) << counters.status().toString();
    EXPECT_EQ(done[0], kRows);
    EXPECT_EQ(done[1], expected); // the module's variable remembers
  }
  constexpr float kConstants[4] = {1.5f, 2.5f, 3.5f, 4.5f};
  for (int row = 0; row < kRows; ++row) {
    float sum = 0, value = 0;
    for (int i = 0; i < kStride; ++i)
      sum += in[row * kStride + i]; // small integers: exact in any order
    for (int i = 0; i < 1 + row % 4; ++i)
      value = value * sum + shape.factor[i % 3];
    EXPECT_EQ(out[row], value + kConstants[row % 4]);
  }
}

TEST(Kernel, BlocksMayWaitForEachOther) {
  auto ptx = plainPtx("80");
  LLMOPT_REQUIRE_PTX(ptx);
  auto module = load(*ptx);
  std::vector<uint32_t> gate(3), out(16);
  Arrays memory;
  memory.out(gate, "gate").out(out, "out");
  Params params;
  params.add(gate.data()).add(out.data());
  auto counters = run(*module, memory, {"meet", {8, 1, 1}, {64, 1, 1}, 0, params.span()});
  ASSERT_TRUE(counters.ok()) << counters.status().toString();
  EXPECT_EQ(out, std::vector<uint32_t>(16, 36));
}

TEST(Kernel, AFailedAssertionIsAFaultWithItsText) {
  auto ptx = plainPtx("80");
  LLMOPT_REQUIRE_PTX(ptx);
  auto module = load(*ptx);
  std::vector<int> in = {1, 2, 300, 4};
  Arrays memory;
  memory.in(in, "in");
  Params params;
  params.add(in.data());
  Fault fault;
  auto result = run(*module, memory, {"check", {1, 1, 1}, {4, 1, 1}, 0, params.span()}, {}, &fault);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(fault.kind, FaultKind::Trap);
  EXPECT_EQ(fault.lane, 2u);
  EXPECT_NE(fault.detail.find("the assertion 'in[threadIdx.x] < 100' in 'void check(const int *)'"),
            std::string::npos)
      << fault.detail;
}

TEST(Kernel, FaultsNameTheSourceLine) {
  auto ptx = attentionPtx("prefill.cu", 64, "80", {"-lineinfo"});
  LLMOPT_REQUIRE_PTX(ptx);
  auto module = load(*ptx);
  Prefill prefill(kSmall);
  prefill.k.resize(prefill.k.size() - 64);
  Fault fault;
  auto counters = prefill.execute(*module, {1}, &fault);
  ASSERT_FALSE(counters.ok());
  std::string source = "#define DIM 64\n" + kernelSource("tensor.cuh");
  auto place = source.begin() + static_cast<ptrdiff_t>(source.find("asm volatile(\"cp.async.cg"));
  EXPECT_EQ(fault.sourceLine, 1 + std::count(source.begin(), place, '\n'));
  EXPECT_TRUE(fault.sourceFile.ends_with("kernel.cu")) << fault.sourceFile;
  EXPECT_EQ(fault.buffer,
            fmt::format("0 bytes after the end of 'k' ({} bytes)", prefill.k.size() * 2));
}

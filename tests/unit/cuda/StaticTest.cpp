// What can be said of kernels without running them: spills, stack, and the instructions
// that tile shapes imply, for a list of named kernels.
#include "tests/unit/cuda/Support.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

using namespace llmopt;
using namespace llmopt::test;

namespace {

struct Named {
  const char *name;
  int64_t dQk, dV;
  const char *type;
  int64_t page;
  const char *clauses;
};

class CudaStatic : public testing::TestWithParam<Named> {};

int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

size_t count(const std::string &text, const std::string &word) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += word.size())
    ++found;
  return found;
}

std::string specOf(const Named &named) {
  std::string q = fmt::format("tensor<?x32x{}x{}>", named.dQk, named.type);
  std::string o = fmt::format("tensor<?x32x{}x{}>", named.dV, named.type);
  std::string value = named.dV == named.dQk ? "" : fmt::format(", v_dim = {}", named.dV);
  std::string cache =
      fmt::format("!attn.kv_cache<8x{}x{}{}, page = {}>", named.dQk, named.type, value, named.page);
  return fmt::format("func.func @kernel(%q: {0}, %kv: {1}, %seq: !attn.sequences) -> {2} {{\n"
                     "  %o = attn.attention %q, %kv, %seq {3} : {0}, {1}, !attn.sequences -> {2}\n"
                     "  return %o : {2}\n}}",
                     q, cache, o, named.clauses);
}

/// mma and ldmatrix instructions of one body of the loop over tiles.
struct Implied {
  int64_t products, loads, queryLoads;
};

Implied implied(const Named &named, const bundle::Kernel &kernel) {
  int64_t rows = kernel.tileRows, keys = kernel.tileKeys;
  if (rows == 16)
    keys = 16; // of a warp: the warps share out the keys of a tile
  int64_t blocks = std::max<int64_t>(rows / 64, 1);
  int64_t n = ceilDiv(keys, 8), k = ceilDiv(named.dQk, 16);
  int64_t vn = ceilDiv(named.dV, 8), vk = ceilDiv(keys, 16);
  return {blocks * (n * k + vn * vk), ceilDiv(n, 2) * k + ceilDiv(vn, 2) * vk, blocks * k};
}

TEST_P(CudaStatic, has_no_spills_and_the_instructions_its_tiles_imply) {
  if (std::string problem = cudaProblem(); !problem.empty())
    GTEST_SKIP() << problem;
  const Named &named = GetParam();
  Simulated compiled(specOf(named));
  for (const bundle::Kernel &kernel : compiled.program.kernels) {
    SCOPED_TRACE(kernel.entry);
    const bundle::Image &cubin = compiled.program.images[kernel.image];
    ASSERT_EQ(cubin.format, bundle::ImageFormat::Cubin);
    EXPECT_EQ(cubin.figures.spillStoreBytes, 0u);
    EXPECT_EQ(cubin.figures.spillLoadBytes, 0u);
    EXPECT_EQ(cubin.figures.stackBytes, 0u);
    for (const std::string &warning : cubin.figures.warnings)
      EXPECT_EQ(warning.find("C75"), std::string::npos) << warning;
    if (kernel.kind != bundle::KernelKind::Attend)
      continue;
    RecordProperty(kernel.entry + "_registers", int(cubin.figures.registers));
    const bundle::Image &ptx = compiled.program.images[kernel.otherImages.at(0)];
    std::string text(ptx.bytes.begin(), ptx.bytes.end());
    Implied want = implied(named, kernel);
    // Two bodies: with the mask and without.
    EXPECT_EQ(int64_t(count(text, "mma.sync.aligned.m16n8k16")), 2 * want.products);
    bool resident = want.queryLoads * 4 <= 32;
    EXPECT_EQ(int64_t(count(text, "ldmatrix.sync")),
              2 * want.loads + (resident ? 1 : 2) * want.queryLoads);
    EXPECT_GT(count(text, "cp.async.cg.shared.global"), 0u);
  }
}

constexpr const char *kCausal = "mask(causal)";
constexpr const char *kWindow = "mask(causal and window<4096>) softcap(50.0)";

// Each holds a decode kernel (16 rows) and a prefill kernel (64 rows): 20 kernels and more.
INSTANTIATE_TEST_SUITE_P(
    Kernels, CudaStatic,
    testing::Values(Named{"d64_bf16", 64, 64, "bf16", 16, kCausal},
                    Named{"d80_bf16", 80, 80, "bf16", 16, kCausal},
                    Named{"d96_bf16", 96, 96, "bf16", 16, kCausal},
                    Named{"d128_bf16", 128, 128, "bf16", 16, kCausal},
                    Named{"d192_128_bf16", 192, 128, "bf16", 16, kCausal},
                    Named{"d256_bf16", 256, 256, "bf16", 16, kCausal},
                    Named{"d64_f16", 64, 64, "f16", 16, kCausal},
                    Named{"d128_f16", 128, 128, "f16", 16, kCausal},
                    Named{"d128_bf16_page1", 128, 128, "bf16", 1, kCausal},
                    Named{"d128_bf16_window_softcap", 128, 128, "bf16", 16, kWindow}),
    [](const testing::TestParamInfo<Named> &named) { return named.param.name; });

} // namespace

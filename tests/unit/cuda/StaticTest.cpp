// What can be said of kernels without running them: spills, stack, registers, and the
// instructions that tile shapes imply, for a list of named kernels.
#include "codegen/compile/CudaCompile.h"
#include "tests/unit/cuda/Support.h"

#include "llvm/Object/ELFObjectFile.h"
#include "llvm/Support/MemoryBufferRef.h"

#include <cstring>
#include <fmt/format.h>
#include <gtest/gtest.h>

using namespace llmopt;
using namespace llmopt::test;

namespace {

struct Named {
  const char *name;
  int64_t dQk, dV;
  const char *type;
  int64_t page; ///< 0: a dense prefill
  const char *clauses;
  const char *arch = "sm_80";
};

class CudaStatic : public testing::TestWithParam<Named> {};

int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// GQA 32/8.
std::string specOf(const Named &named) {
  auto tensor = [&](const char *extents, int64_t heads, int64_t d) {
    return fmt::format("tensor<{}x{}x{}x{}>", extents, heads, d, named.type);
  };
  std::string q = tensor("?", 32, named.dQk), o = tensor("?", 32, named.dV);
  std::string value = named.dV == named.dQk ? "" : fmt::format(", v_dim = {}", named.dV);
  std::string first = "%kv", second = "%seq", secondType = "!attn.sequences";
  std::string firstType =
      fmt::format("!attn.kv_cache<8x{}x{}{}, page = {}>", named.dQk, named.type, value, named.page);
  if (named.page == 0) {
    q = tensor("?x?", 32, named.dQk), o = tensor("?x?", 32, named.dV);
    first = "%k", second = "%v";
    firstType = tensor("?x?", 8, named.dQk), secondType = tensor("?x?", 8, named.dV);
  }
  return fmt::format("func.func @kernel(%q: {0}, {1}: {2}, {3}: {4}) -> {5} {{\n"
                     "  %o = attn.attention %q, {1}, {3} {6} : {0}, {2}, {4} -> {5}\n"
                     "  return %o : {5}\n}}",
                     q, first, firstType, second, secondType, o, named.clauses);
}

bool onTensorCores(const Named &named) { return std::strcmp(named.type, "f32") != 0; }

/// Instructions of one body of the loop over tiles, counted by hand from the tile's shape.
struct Implied {
  int64_t products, loads, queryLoads, copies, queryCopies;
};

Implied impliedBy(const Named &named, const CudaBuild &build, size_t index) {
  const KernelName &kernel = build.names[index];
  int64_t bytes = onTensorCores(named) ? 2 : 4, threads = build.texts[index].threads;
  // A warp has 16 rows, or 16 keys of its own (decode: the warps share out the keys).
  int64_t keys = kernel.keys / kernel.slices;
  int64_t blocks = ceilDiv(kernel.rows * kernel.slices, threads / 32 * 16);
  int64_t n = ceilDiv(keys, 8), k = ceilDiv(named.dQk, 16);
  int64_t vn = ceilDiv(named.dV, 8), vk = ceilDiv(keys, 16);
  // A row is shared by as many lanes as divide its chunks, 8 at most; a thread's rows are turns of
  // a loop.
  auto copies = [&](int64_t d) {
    int64_t chunks = ceilDiv(d, 16) * 16 * bytes / 16;
    return chunks / std::min<int64_t>(chunks & -chunks, 8);
  };
  return {blocks * (n * k + vn * vk), ceilDiv(n, 2) * k + ceilDiv(vn, 2) * vk, blocks * k,
          copies(named.dQk) + copies(named.dV), copies(named.dQk)};
}

/// Machine instructions of a kernel with these opcodes (low 12 bits of 16 bytes), as sm_80 to
/// sm_90 have them.
int64_t countMachine(const bundle::Image &cubin, const std::string &entry, unsigned opcode) {
  llvm::StringRef bytes(reinterpret_cast<const char *>(cubin.bytes.data()), cubin.bytes.size());
  auto elf = llvm::object::ELFObjectFile<llvm::object::ELF64LE>::create({bytes, "cubin"});
  if (!elf) {
    ADD_FAILURE() << llvm::toString(elf.takeError());
    return -1;
  }
  int64_t found = 0;
  for (const llvm::object::SectionRef &section : elf->sections()) {
    if (llvm::cantFail(section.getName()) != ".text." + entry)
      continue;
    llvm::StringRef code = llvm::cantFail(section.getContents());
    for (size_t at = 0; at + 16 <= code.size(); at += 16) {
      uint64_t word;
      std::memcpy(&word, code.data() + at, 8);
      found += (word & 0xfff) == opcode;
    }
  }
  return found;
}

constexpr unsigned kMachineMma = 0x23c, kMachineMatrixLoad = 0x83b;

void checkAttend(const Named &named, const CudaBuild &build, size_t index) {
  const bundle::Kernel &kernel = build.program.kernels[index];
  const bundle::Image &ptx = build.program.images[kernel.otherImages.at(0)];
  cuda::InstructionCounts found =
      cuda::foundIn({reinterpret_cast<const char *>(ptx.bytes.data()), ptx.bytes.size()});
  cuda::InstructionCounts implied = build.texts[index].implied;
  EXPECT_EQ(found.products, implied.products);
  EXPECT_EQ(found.matrixLoads, implied.matrixLoads);
  EXPECT_EQ(found.wideCopies, implied.wideCopies);
  Implied want = impliedBy(named, build, index);
  // K and V once: the copies of the first tile are begun by a turn of the loop's own.
  EXPECT_EQ(found.wideCopies, want.copies + want.queryCopies);
  if (!onTensorCores(named)) {
    EXPECT_EQ(found.products, 0);
    return;
  }
  EXPECT_EQ(found.products, want.products);
  EXPECT_EQ(found.matrixLoads, want.loads + want.queryLoads);
  if (std::string(named.arch) == "sm_80" || std::string(named.arch) == "sm_90") {
    const bundle::Image &cubin = build.program.images[kernel.image];
    EXPECT_EQ(countMachine(cubin, kernel.entry, kMachineMma), want.products);
    EXPECT_EQ(countMachine(cubin, kernel.entry, kMachineMatrixLoad), found.matrixLoads);
  }
}

TEST_P(CudaStatic, spills_nothing_and_has_the_instructions_that_its_tiles_imply) {
  if (std::string problem = cudaProblem(); !problem.empty())
    GTEST_SKIP() << problem;
  const Named &named = GetParam();
  std::vector<CudaBuild> builds = buildForCuda(specOf(named), named.arch);
  const CudaBuild &build = builds.front();
  runtime::CudaTarget target = *runtime::cudaTargetOf(named.arch);
  ASSERT_EQ(build.program.kernels.size(), build.texts.size());
  for (size_t i = 0; i < build.texts.size(); ++i) {
    const bundle::Kernel &kernel = build.program.kernels[i];
    SCOPED_TRACE(kernel.entry);
    const bundle::Image &cubin = build.program.images[kernel.image];
    ASSERT_EQ(cubin.format, bundle::ImageFormat::Cubin);
    const bundle::ImageFigures &figures = cubin.figures;
    EXPECT_EQ(figures.spillStoreBytes, 0u);
    EXPECT_EQ(figures.spillLoadBytes, 0u);
    EXPECT_EQ(figures.stackBytes, 0u);
    EXPECT_GT(figures.registers, 0u);
    EXPECT_LE(figures.registers,
              runtime::registerBudget(target, kernel.blockThreads, build.texts[i].blocks));
    EXPECT_GE(runtime::residentBlocks(target,
                                      {kernel.blockThreads, figures.registers, kernel.sharedBytes})
                  .blocks,
              build.texts[i].blocks);
    for (const std::string &warning : figures.warnings)
      EXPECT_EQ(warning.find("C75"), std::string::npos) << warning;
    if (kernel.kind == bundle::KernelKind::Attend)
      checkAttend(named, build, i);
  }
}

constexpr const char *kCausal = "mask(causal)";
constexpr const char *kWindow = "mask(causal and window<4096>) softcap(50.0)";

// Each of GQA 32/8 holds a decode kernel (16 rows, keys in slices) and a prefill kernel.
INSTANTIATE_TEST_SUITE_P(
    Kernels, CudaStatic,
    testing::Values(Named{"d64_bf16", 64, 64, "bf16", 16, kCausal},
                    Named{"d80_bf16", 80, 80, "bf16", 16, kCausal},
                    Named{"d96_bf16", 96, 96, "bf16", 16, kCausal},
                    Named{"d128_bf16", 128, 128, "bf16", 16, kCausal},
                    Named{"d192_128_bf16", 192, 128, "bf16", 16, kCausal},
                    Named{"d256_bf16", 256, 256, "bf16", 16, kCausal},
                    Named{"d64_f16", 64, 64, "f16", 16, kCausal},
                    Named{"d80_f16", 80, 80, "f16", 16, kCausal},
                    Named{"d96_f16", 96, 96, "f16", 16, kCausal},
                    Named{"d128_f16", 128, 128, "f16", 16, kCausal},
                    Named{"d192_128_f16", 192, 128, "f16", 16, kCausal},
                    Named{"d256_f16", 256, 256, "f16", 16, kCausal},
                    Named{"d128_bf16_dense", 128, 128, "bf16", 0, kCausal},
                    Named{"d64_f16_dense_no_mask", 64, 64, "f16", 0, ""},
                    Named{"d128_bf16_page1", 128, 128, "bf16", 1, kCausal},
                    Named{"d128_bf16_window_softcap", 128, 128, "bf16", 16, kWindow}),
    [](const testing::TestParamInfo<Named> &named) { return named.param.name; });

// The widest heads and the most common one on chips with other shared memory and assemblers.
INSTANTIATE_TEST_SUITE_P(
    OtherChips, CudaStatic,
    testing::Values(Named{"d128_sm_86", 128, 128, "bf16", 16, kCausal, "sm_86"},
                    Named{"d128_sm_90", 128, 128, "bf16", 16, kCausal, "sm_90"},
                    Named{"d128_sm_100", 128, 128, "bf16", 16, kCausal, "sm_100"},
                    Named{"d128_sm_120", 128, 128, "bf16", 16, kCausal, "sm_120"},
                    Named{"d256_sm_89", 256, 256, "f16", 16, kCausal, "sm_89"},
                    Named{"d256_sm_90", 256, 256, "bf16", 16, kCausal, "sm_90"},
                    Named{"d256_sm_100", 256, 256, "bf16", 16, kCausal, "sm_100"},
                    Named{"d256_sm_120", 256, 256, "bf16", 16, kCausal, "sm_120"}),
    [](const testing::TestParamInfo<Named> &named) { return named.param.name; });

// f32 on the plain units.
INSTANTIATE_TEST_SUITE_P(
    Plain, CudaStatic,
    testing::Values(Named{"d64_f32", 64, 64, "f32", 16, kCausal},
                    Named{"d128_f32", 128, 128, "f32", 16, kCausal},
                    Named{"d192_128_f32", 192, 128, "f32", 16, kCausal},
                    Named{"d256_f32", 256, 256, "f32", 16, kCausal},
                    Named{"d128_f32_sm_86", 128, 128, "f32", 16, kCausal, "sm_86"}),
    [](const testing::TestParamInfo<Named> &named) { return named.param.name; });

} // namespace

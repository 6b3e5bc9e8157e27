// Keys: what decides a program's bytes is in them, and nothing else (case A25).
#include "Support.h"

#include "codegen/cuda/nvrtc/Nvrtc.h"
#include "tools/llm-opt/SpecFile.h"

#include <fmt/format.h>

#include <cstdlib>
#include <set>

namespace llmopt::test {
namespace {

std::string specText(const std::string &mask, const char *space = " ") {
  return fmt::format("func.func @f(%q: tensor<?x4x64xbf16>,{1}%kv: !attn.kv_cache<2x64xbf16, page "
                     "= 16>, %s: !attn.sequences) -> tensor<?x4x64xbf16> {{\n"
                     "%o = attn.attention %q, %kv, %s{1}mask({0}) : tensor<?x4x64xbf16>,\n"
                     "  !attn.kv_cache<2x64xbf16, page = 16>, !attn.sequences\n"
                     "  -> tensor<?x4x64xbf16>\nreturn %o : tensor<?x4x64xbf16>\n}}",
                     mask, space);
}

std::string keyOf(const std::string &text, const CompileOptions &options) {
  std::unique_ptr<cli::SpecFile> file = cli::SpecFile::parse(text, "test");
  if (!file)
    return "no spec";
  llvm::Expected<std::string> key = specKey(file->specs().front(), options);
  EXPECT_TRUE(bool(key));
  return key ? *key : llvm::toString(key.takeError());
}

CompileOptions optionsOf(const char *target) {
  llvm::Expected<CompileOptions> options = optionsFor(target);
  EXPECT_TRUE(bool(options));
  return *options;
}

} // namespace

TEST(SpecKey, IsKnownWithoutCompiling) {
  std::unique_ptr<cli::SpecFile> file = cli::SpecFile::parse(specText("causal"), "test");
  CompileOptions options = optionsOf("cpu");
  uint64_t compiles = compileCount();
  llvm::Expected<std::string> key = specKey(file->specs().front(), options);
  ASSERT_TRUE(bool(key));
  EXPECT_EQ(compileCount(), compiles);
  llvm::Expected<bundle::Program> program = compileSpec(file->specs().front(), options);
  ASSERT_TRUE(bool(program));
  EXPECT_EQ(program->key, *key);
}

TEST(SpecKey, IsAnotherForAnotherSpecTargetAndOption) {
  CompileOptions host = optionsOf("cpu");
  std::set<std::string> keys = {keyOf(specText("causal"), host)};
  size_t wanted = 1;
  auto expectNew = [&](const std::string &text, const CompileOptions &options, const char *what) {
    keys.insert(keyOf(text, options));
    EXPECT_EQ(keys.size(), ++wanted) << what;
  };
  expectNew(specText("causal and window<7>"), host, "mask");
  for (const char *target : {"cuda:sm_80", "cuda:sm_86", "cuda:sm_90"})
    expectNew(specText("causal"), optionsOf(target), target);
  CompileOptions other = optionsOf("cuda:sm_80");
  other.ptxOnly = true;
  expectNew(specText("causal"), other, "PTX alone");
  other = host;
  other.cpu.features += ",-avx512f";
  expectNew(specText("causal"), other, "features");
  other = host;
  other.cpu.optLevel = 3;
  expectNew(specText("causal"), other, "level of optimisation");
  other = host;
  other.rows = {24};
  expectNew(specText("causal"), other, "rows");
  other.rows.clear();
  other.keys = 48;
  expectNew(specText("causal"), other, "keys");
}

TEST(SpecKey, IsTheSameForTheSameSpecWrittenOtherwise) {
  CompileOptions host = optionsOf("cpu");
  EXPECT_EQ(keyOf(specText("causal"), host),
            keyOf("// A comment.\n" + specText("causal", "\n\n  "), host));
}

TEST(SpecKey, NamesTheDevicesCompiler) { // another toolkit, or none
  ::setenv("LLMOPT_NVRTC", "/nowhere/libnvrtc.so.13", 1);
  std::string without = keyOf(specText("causal"), optionsOf("cuda:sm_80")),
              cpu = keyOf(specText("causal"), optionsOf("cpu"));
  ::unsetenv("LLMOPT_NVRTC");
  if (!cuda::Nvrtc::load())
    GTEST_SKIP() << "no NVRTC to compare with";
  EXPECT_NE(keyOf(specText("causal"), optionsOf("cuda:sm_80")), without);
  EXPECT_EQ(keyOf(specText("causal"), optionsOf("cpu")), cpu) << "a CPU kernel needs none";
}

/// What the simulator runs is what machine code is made from, to the byte.
TEST(PtxOnly, IsThePtxOfTheProgramWithMachineCode) {
  if (std::string problem = problemOf("sim"); !problem.empty())
    GTEST_SKIP() << problem;
  std::unique_ptr<cli::SpecFile> file = cli::SpecFile::parse(specText("causal"), "test");
  auto compile = [&](const CompileOptions &options) {
    llvm::Expected<bundle::Program> program = compileSpec(file->specs().front(), options);
    EXPECT_TRUE(bool(program));
    return program ? std::move(*program) : bundle::Program();
  };
  for (const char *target : {"cuda:sm_80", "cuda:sm_90"}) {
    SCOPED_TRACE(target);
    CompileOptions options = optionsOf(target);
    bundle::Program whole = compile(options);
    options.ptxOnly = true;
    bundle::Program alone = compile(options);
    EXPECT_EQ(alone.target, target);
    ASSERT_EQ(alone.kernels.size(), whole.kernels.size());
    EXPECT_EQ(alone.images.size(), alone.kernels.size());
    for (size_t i = 0; i < alone.kernels.size(); ++i) {
      const bundle::Image &ptx = alone.images[alone.kernels[i].image];
      EXPECT_EQ(ptx.format, bundle::ImageFormat::Ptx);
      EXPECT_EQ(alone.kernels[i].entry, whole.kernels[i].entry);
      EXPECT_EQ(ptx, whole.images[whole.kernels[i].otherImages.at(0)]);
    }
  }
}

} // namespace llmopt::test

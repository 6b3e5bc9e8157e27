// NVRTC as it is found on this machine; skipped where there is none.
#include "codegen/cuda/nvrtc/Nvrtc.h"

#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <unistd.h>

using namespace llmopt;
using namespace llmopt::cuda;
using runtime::Status;
using runtime::StatusCode;
using runtime::StatusOr;

namespace {

const char *const kReverse = R"(
extern "C" __global__ void __launch_bounds__(128) reverse(float *p, int n) {
  __shared__ float row[128];
  row[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  p[threadIdx.x] = row[n - threadIdx.x];
}
)";

/// More live values than 32 registers hold.
const char *const kSpilling = R"(
extern "C" __global__ void __launch_bounds__(1024, 2) spilling(float *p, const float *q) {
  float v[96];
  for (int i = 0; i < 96; ++i) v[i] = q[i * 1024 + threadIdx.x];
  for (int r = 0; r < 4; ++r)
    for (int i = 0; i < 96; ++i) v[i] = v[i] * v[(i * 7 + 1) % 96] + v[(i * 13 + 5) % 96];
  for (int i = 0; i < 96; ++i) p[i * 1024 + threadIdx.x] = v[i];
}
)";

struct NvrtcTest : testing::Test {
  void SetUp() override {
    StatusOr<std::shared_ptr<const Nvrtc>> loaded = Nvrtc::load();
    if (!loaded)
      GTEST_SKIP() << loaded.status().message();
    nvrtc = *loaded;
  }

  std::shared_ptr<const Nvrtc> nvrtc;
};

} // namespace

TEST_F(NvrtcTest, OneCallGivesPtxCubinAndFacts) {
  StatusOr<CompiledKernel> kernel =
      nvrtc->compile({.text = kReverse, .name = "reverse.cu", .arch = "sm_80"});
  ASSERT_TRUE(kernel) << kernel.status().toString();
  EXPECT_NE(kernel->ptx.find(".target sm_80"), std::string::npos);
  EXPECT_NE(kernel->ptx.find(".entry reverse"), std::string::npos);
  EXPECT_EQ(std::string(kernel->cubin.begin(), kernel->cubin.begin() + 4), "\x7f"
                                                                           "ELF");
  EXPECT_EQ(kernel->figures.sharedBytes, 512u);
  EXPECT_GT(kernel->figures.registers, 4u);
  EXPECT_EQ(kernel->figures.spillStoreBytes, 0u);
  EXPECT_EQ(kernel->figures.warnings, std::vector<std::string>());
  EXPECT_EQ(kernel->note, "");
}

TEST_F(NvrtcTest, SpillsAreReported) {
  StatusOr<CompiledKernel> kernel =
      nvrtc->compile({.text = kSpilling, .name = "spilling.cu", .arch = "sm_80"});
  ASSERT_TRUE(kernel) << kernel.status().toString();
  EXPECT_LE(kernel->figures.registers, 32u);
  EXPECT_GT(kernel->figures.spillStoreBytes, 0u);
  EXPECT_GT(kernel->figures.spillLoadBytes, 0u);
  EXPECT_GT(kernel->figures.stackBytes, 0u);
}

TEST_F(NvrtcTest, TheSameTextGivesTheSameBytes) { // so that a cache may keep them
  KernelSource source{.text = kReverse, .name = "reverse.cu", .arch = "sm_80"};
  StatusOr<CompiledKernel> first = nvrtc->compile(source), second = nvrtc->compile(source);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->ptx, second->ptx);
  EXPECT_EQ(first->cubin, second->cubin);
}

TEST_F(NvrtcTest, EveryTargetArchitecture) {
  for (const char *arch : {"sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120"}) {
    StatusOr<runtime::CudaArch> parsed = runtime::CudaArch::parse(arch);
    if (parsed->number() > nvrtc->archs().back())
      continue;
    StatusOr<CompiledKernel> kernel =
        nvrtc->compile({.text = kReverse, .name = "reverse.cu", .arch = arch});
    ASSERT_TRUE(kernel) << kernel.status().toString();
    EXPECT_EQ(kernel->arch, arch);
    EXPECT_FALSE(kernel->cubin.empty()) << arch;
    EXPECT_NE(kernel->ptx.find(std::string(".target ") + arch), std::string::npos);
  }
}

TEST_F(NvrtcTest, AnUnknownNewerArchitectureGetsGenericPtxAndSaysSo) { // A43
  StatusOr<CompiledKernel> kernel =
      nvrtc->compile({.text = kReverse, .name = "reverse.cu", .arch = "sm_990"});
  ASSERT_TRUE(kernel) << kernel.status().toString();
  EXPECT_EQ(kernel->arch, "compute_80");
  EXPECT_TRUE(kernel->cubin.empty());
  EXPECT_NE(kernel->ptx.find(".target sm_80"), std::string::npos);
  EXPECT_EQ(kernel->note,
            fmt::format("sm_990 is newer than NVRTC {} knows (up to sm_{}); PTX for compute_80 was "
                        "made, which the driver compiles",
                        nvrtc->version(), nvrtc->archs().back()));
}

TEST_F(NvrtcTest, SoDoesOneInAGapOfItsNumbers) {
  StatusOr<CompiledKernel> kernel =
      nvrtc->compile({.text = kReverse, .name = "reverse.cu", .arch = "sm_95"});
  ASSERT_TRUE(kernel) << kernel.status().toString();
  EXPECT_EQ(kernel->arch, "compute_80");
  EXPECT_TRUE(
      kernel->note.starts_with(fmt::format("NVRTC {} knows no sm_95 (it knows ", nvrtc->version())))
      << kernel->note;
  EXPECT_TRUE(kernel->note.ends_with("PTX for compute_80 was made, which the driver compiles"));
}

// The found library in a folder laid out as the Python package is: it must compile from there.
TEST_F(NvrtcTest, APackageOfAnEnvironmentCompiles) {
  namespace fs = std::filesystem;
  if (!fs::path(nvrtc->path()).is_absolute())
    GTEST_SKIP() << "NVRTC at '" << nvrtc->path() << "' tells no folder";
  fs::path root = fs::temp_directory_path() / fmt::format("nvrtc-package-{}", ::getpid());
  fs::path package = root / "lib/python3.12/site-packages/nvidia/cu13/lib";
  fs::create_directories(package);
  for (const fs::directory_entry &file :
       fs::directory_iterator(fs::path(nvrtc->path()).parent_path()))
    if (file.path().filename().string().starts_with("libnvrtc"))
      fs::create_symlink(fs::canonical(file.path()), package / file.path().filename());
  ::unsetenv("LLMOPT_NVRTC");
  ::setenv("VIRTUAL_ENV", root.c_str(), 1);
  NvrtcPlaces places = nvrtcPlaces();
  ::unsetenv("VIRTUAL_ENV");
  std::erase_if(places.candidates,
                [&](const std::string &path) { return !path.starts_with(root.string()); });
  StatusOr<std::shared_ptr<const Nvrtc>> found = Nvrtc::load(places);
  ASSERT_TRUE(found) << found.status().toString();
  StatusOr<CompiledKernel> kernel =
      (*found)->compile({.text = kReverse, .name = "reverse.cu", .arch = "sm_80"});
  EXPECT_TRUE(kernel) << kernel.status().toString();
  fs::remove_all(root);
}

TEST_F(NvrtcTest, ArchitecturesThatItCannotServeAreNamed) {
  StatusOr<CompiledKernel> dropped =
      nvrtc->compile({.text = kReverse, .name = "reverse.cu", .arch = "sm_30"});
  ASSERT_FALSE(dropped);
  EXPECT_TRUE(dropped.status().message().starts_with(
      fmt::format("NVRTC {} knows no sm_30; it knows ", nvrtc->version())));
  EXPECT_EQ(nvrtc->compile({.text = kReverse, .name = "r.cu", .arch = "gfx90a"}).status().message(),
            "'gfx90a' is no CUDA architecture; write for example sm_80, sm_90a or compute_80");
}

TEST_F(NvrtcTest, ImagesSayWhatTheyNeed) {
  StatusOr<CompiledKernel> kernel =
      nvrtc->compile({.text = kReverse, .name = "reverse.cu", .arch = "sm_80"});
  ASSERT_TRUE(kernel);
  std::vector<bundle::Image> images = kernel->images();
  ASSERT_EQ(images.size(), 2u);
  EXPECT_EQ(images[0].cpu, "sm_80");
  EXPECT_EQ(images[0].format, bundle::ImageFormat::Cubin);
  EXPECT_EQ(images[0].leastDriver % 1000, 0u);
  EXPECT_EQ(images[0].figures, kernel->figures);
  EXPECT_EQ(images[1].cpu, "compute_80");
  EXPECT_EQ(images[1].format, bundle::ImageFormat::Ptx);
  EXPECT_EQ(fmt::format("{}.{}", images[1].leastDriver / 1000, images[1].leastDriver % 1000 / 10),
            nvrtc->version());
}

TEST_F(NvrtcTest, MistakesInTheTextComeWithTheirLine) {
  StatusOr<CompiledKernel> kernel = nvrtc->compile(
      {.text = "extern \"C\" __global__ void k(int *p) {\n  *p = undefined_name;\n}\n",
       .name = "decode.cu",
       .arch = "sm_80"});
  ASSERT_FALSE(kernel);
  EXPECT_EQ(kernel.status().code(), StatusCode::InvalidArgument);
  EXPECT_TRUE(kernel.status().message().starts_with(
      "decode.cu does not compile for sm_80: decode.cu(2): error: identifier \"undefined_name\" is "
      "undefined"))
      << kernel.status().message();
}

TEST_F(NvrtcTest, AMissingHeaderIsNamed) { // A42
  StatusOr<CompiledKernel> kernel =
      nvrtc->compile({.text = "#include <no_such_header.h>\n", .name = "k.cu", .arch = "sm_89"});
  ASSERT_FALSE(kernel);
  EXPECT_EQ(kernel.status().message(),
            "k.cu includes 'no_such_header.h', which NVRTC does not find; kernels include nothing; "
            "remove the #include, or name a folder with the option --include-path");
}

TEST_F(NvrtcTest, ABadOptionIsNamed) {
  StatusOr<CompiledKernel> kernel = nvrtc->compile(
      {.text = kReverse, .name = "reverse.cu", .arch = "sm_80", .options = {"--no-such-option"}});
  ASSERT_FALSE(kernel);
  EXPECT_NE(kernel.status().message().find("--no-such-option"), std::string::npos)
      << kernel.status().message();
}

TEST_F(NvrtcTest, ManyKernelsInThreads) {
  std::vector<KernelSource> sources;
  for (int i = 0; i < 6; ++i)
    sources.push_back(
        {.text = fmt::format("extern \"C\" __global__ void k{0}(int *p) {{ *p = {0}; }}",
                             i == 4 ? "!" : std::to_string(i)),
         .name = fmt::format("k{}.cu", i),
         .arch = "sm_80"});
  std::vector<StatusOr<CompiledKernel>> kernels = nvrtc->compileAll(sources, 3);
  ASSERT_EQ(kernels.size(), sources.size());
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(kernels[i].ok(), i != 4) << i;
    if (kernels[i]) {
      EXPECT_NE(kernels[i]->ptx.find(fmt::format(".entry k{}", i)), std::string::npos);
    }
  }
}

TEST_F(NvrtcTest, LineInfoLeavesTheCodeAlone) {
  KernelSource source{.text = kReverse, .name = "reverse.cu", .arch = "sm_80"};
  StatusOr<CompiledKernel> plain = nvrtc->compile(source);
  source.lineInfo = true;
  StatusOr<CompiledKernel> lines = nvrtc->compile(source);
  ASSERT_TRUE(plain && lines);
  EXPECT_NE(lines->ptx.find(".loc"), std::string::npos);
  EXPECT_EQ(plain->figures, lines->figures);
}

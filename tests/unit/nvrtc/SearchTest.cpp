// Where NVRTC is looked for, and what is said when it is not there or not whole. Needs none.
#include "codegen/cuda/nvrtc/Nvrtc.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

namespace fs = std::filesystem;
using namespace llmopt;
using namespace llmopt::cuda;
using runtime::StatusCode;
using runtime::StatusOr;

namespace {

/// An environment variable for the length of a scope.
class Variable {
public:
  Variable(const char *name, const std::string &value) : name(name) {
    if (const char *old = std::getenv(name))
      before = old;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (before)
      ::setenv(name, before->c_str(), 1);
    else
      ::unsetenv(name);
  }

private:
  const char *name;
  std::optional<std::string> before;
};

struct NvrtcSearch : testing::Test {
  fs::path folder = fs::temp_directory_path() / fmt::format("nvrtc-search-{}", ::getpid());
  void SetUp() override { fs::create_directories(folder); }
  void TearDown() override { fs::remove_all(folder); }
  void touch(const fs::path &path) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << "not a library";
  }
  bool looksAt(const fs::path &path) {
    std::vector<std::string> places = nvrtcPlaces().candidates;
    return std::find(places.begin(), places.end(), path) != places.end();
  }
};

} // namespace

TEST_F(NvrtcSearch, TheVariableIsTheOnlyPlaceWhereItIsSet) {
  Variable file("LLMOPT_NVRTC", "/some/libnvrtc.so.13");
  EXPECT_EQ(nvrtcPlaces().candidates, std::vector<std::string>{"/some/libnvrtc.so.13"});
  touch(folder / "libnvrtc.so.12");
  Variable inFolder("LLMOPT_NVRTC", folder);
  EXPECT_EQ(nvrtcPlaces().candidates, std::vector<std::string>{folder / "libnvrtc.so.12"});
}

TEST_F(NvrtcSearch, ToolkitsAndPythonEnvironments) {
  fs::path toolkit = folder / "cuda/lib64/libnvrtc.so.12";
  fs::path package13 = folder / "venv/lib/python3.11/site-packages/nvidia/cu13/lib/libnvrtc.so.13";
  fs::path package12 =
      folder / "venv/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12";
  for (const fs::path &path : {toolkit, package13, package12})
    touch(path);
  Variable unset("LLMOPT_NVRTC", "");
  EXPECT_FALSE(looksAt(toolkit));
  Variable home("CUDA_HOME", folder / "cuda"), environment("VIRTUAL_ENV", folder / "venv");
  EXPECT_TRUE(looksAt(toolkit));
  EXPECT_TRUE(looksAt(package13));
  EXPECT_TRUE(looksAt(package12));
}

// As `pip install nvidia-cuda-nvrtc` lays the files out.
TEST_F(NvrtcSearch, PackagesOfEveryCommonEnvironment) {
  const char *const kPackage = "lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13";
  Variable unset("LLMOPT_NVRTC", ""), conda("CONDA_PREFIX", folder / "conda"),
      environment("VIRTUAL_ENV", folder / "active"), home("HOME", folder / "home");
  for (const char *root : {"conda", "active", "home/.local"}) {
    EXPECT_FALSE(looksAt(folder / root / kPackage)) << root;
    touch(folder / root / kPackage);
    EXPECT_TRUE(looksAt(folder / root / kPackage)) << root;
  }
  fs::path before = fs::current_path();
  fs::current_path(folder);
  for (const char *root : {"venv", ".venv"}) {
    touch(folder / root / kPackage);
    EXPECT_TRUE(looksAt(fs::path(root) / kPackage)) << root;
  }
  fs::current_path(before);
  // Folders of the system, which a test does not write to.
  std::vector<std::string> folders = nvrtcPlaces().folders;
  for (const char *system :
       {"/usr/local/lib/python3*/dist-packages", "/usr/local/lib/python3*/site-packages",
        "/usr/lib/python3/dist-packages", "/usr/local/cuda/lib64"})
    EXPECT_NE(std::find(folders.begin(), folders.end(), system), folders.end()) << system;
}

TEST_F(NvrtcSearch, SearchedFoldersAreInTheErrorWithoutAVariable) {
  Variable unset("LLMOPT_NVRTC", ""), toolkit("CUDA_HOME", folder / "toolkit"),
      environment("VIRTUAL_ENV", folder / "active");
  NvrtcPlaces places = nvrtcPlaces();
  ASSERT_GE(places.folders.size(), 7u);
  places.candidates = {"libnvrtc.so.999"}; // the machine may have one
  StatusOr<std::shared_ptr<const Nvrtc>> missing = Nvrtc::load(places);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.status().code(), StatusCode::Unavailable);
  EXPECT_EQ(missing.status().message(),
            fmt::format("no NVRTC: the CUDA compiler library was not found; install CUDA 12 or 13 "
                        "or the Python package nvidia-cuda-nvrtc, or set LLMOPT_NVRTC; tried "
                        "libnvrtc.so.999 (cannot open shared object file: No such file or "
                        "directory); looked into {}",
                        fmt::join(places.folders, ", ")));
  for (const char *searched : {"/toolkit/lib64", "/active/lib/python3*/site-packages",
                               "/usr/local/cuda/lib64", "/usr/lib/python3/dist-packages"})
    EXPECT_NE(missing.status().message().find(searched), std::string::npos) << searched;
}

TEST_F(NvrtcSearch, WhatWasTriedIsInTheError) { // A14
  Variable variable("LLMOPT_NVRTC", folder / "libnvrtc.so.13");
  StatusOr<std::shared_ptr<const Nvrtc>> missing = Nvrtc::load();
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.status().code(), StatusCode::Unavailable);
  EXPECT_EQ(missing.status().message(),
            fmt::format("no NVRTC: the CUDA compiler library was not found; install CUDA 12 or 13 "
                        "or the Python package nvidia-cuda-nvrtc, or set LLMOPT_NVRTC; tried "
                        "{0}/libnvrtc.so.13 (cannot open shared object file: No such file or "
                        "directory)",
                        folder.string()));
  touch(folder / "libnvrtc.so.13");
  StatusOr<std::shared_ptr<const Nvrtc>> broken = Nvrtc::load();
  ASSERT_FALSE(broken);
  EXPECT_NE(broken.status().message().find("libnvrtc.so.13 ("), std::string::npos);
}

TEST_F(NvrtcSearch, AnotherLibraryIsNotTakenForIt) {
  Variable variable("LLMOPT_NVRTC", "libm.so.6");
  StatusOr<std::shared_ptr<const Nvrtc>> loaded = Nvrtc::load();
  ASSERT_FALSE(loaded);
  EXPECT_NE(loaded.status().message().find("libm.so.6' lacks nvrtcGetErrorString, nvrtcVersion"),
            std::string::npos)
      << loaded.status().message();
}

TEST_F(NvrtcSearch, FailuresOfNvrtcItselfAreNamed) { // A14: builtins missing
  Variable variable("LLMOPT_NVRTC", FAKE_NVRTC);
  StatusOr<std::shared_ptr<const Nvrtc>> nvrtc = Nvrtc::load();
  ASSERT_TRUE(nvrtc) << nvrtc.status().toString();
  EXPECT_EQ((*nvrtc)->version(), "12.3");
  auto messageFor = [&](const char *result, const char *log) {
    Variable first("FAKE_NVRTC_RESULT", result), second("FAKE_NVRTC_LOG", log);
    return (*nvrtc)->compile({.text = "", .name = "k.cu", .arch = "sm_90"}).status().toString();
  };
  EXPECT_EQ(
      messageFor("7", "nvrtc: error: failed to open libnvrtc-builtins.so.12.3.\n  Make sure"),
      "Unavailable: NVRTC at '" FAKE_NVRTC
      "' does not find its library libnvrtc-builtins.so.12.3; put it into the same folder, or "
      "point LLMOPT_NVRTC at a whole installation");
  EXPECT_EQ(messageFor("1", ""), "ResourceExhausted: NVRTC 12.3 failed on k.cu: NVRTC_ERROR_FAKE");
  EXPECT_EQ(messageFor("11", "why"),
            "Unavailable: NVRTC 12.3 failed on k.cu: NVRTC_ERROR_FAKE: why");
  EXPECT_EQ(messageFor("0", ""), "Internal: NVRTC 12.3 gave no machine code for k.cu and sm_90");
}

TEST(AssemblerLog, RegistersSpillsSharedMemory) {
  bundle::ImageFigures figures = parseAssemblerLog(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'decode' for 'sm_80'\n"
      "ptxas info    : Function properties for decode\n"
      "ptxas         .     1024 bytes stack frame, 1188 bytes spill stores, 1020 bytes spill "
      "loads\n"
      "ptxas info    : Used 173 registers, used 1 barriers, 1024 bytes cumulative stack size, 512 "
      "bytes smem, 364 bytes cmem[0]\n"
      "ptxas info    : Compile time = 4.146 ms");
  EXPECT_EQ(figures, (bundle::ImageFigures{.registers = 173,
                                           .stackBytes = 1024,
                                           .spillStoreBytes = 1188,
                                           .spillLoadBytes = 1020,
                                           .sharedBytes = 512,
                                           .warnings = {}}));
}

TEST(AssemblerLog, WarningsKeepTheirCode) {
  bundle::ImageFigures figures = parseAssemblerLog(
      "k.cu(3): warning #177-D: variable \"x\" was declared but never referenced\n"
      "ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are "
      "serialized\n"
      "ptxas warning : Unresolved extern variable");
  EXPECT_EQ(figures.warnings,
            (std::vector<std::string>{"C7511: Potential Performance Loss: wgmma.mma_async "
                                      "instructions are serialized",
                                      "Unresolved extern variable"}));
  EXPECT_EQ(parseAssemblerLog("").warnings.size(), 0u);
}

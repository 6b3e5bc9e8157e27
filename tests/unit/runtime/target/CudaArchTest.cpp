#include "runtime/target/CudaArch.h"

#include <gtest/gtest.h>

using namespace llmopt::runtime;

namespace {

CudaArch arch(std::string_view name) { return *CudaArch::parse(name); }

} // namespace

TEST(CudaArch, NamesRoundTrip) {
  for (const char *name : {"sm_80", "sm_90a", "sm_100f", "sm_121", "compute_80", "compute_90a"})
    EXPECT_EQ(arch(name).name(), name);
  EXPECT_EQ(arch("sm_100a").major, 10u);
  EXPECT_EQ(arch("sm_86").minor, 6u);
}

TEST(CudaArch, OtherTextIsRefused) {
  for (const char *name :
       {"", "sm_", "80", "sm80", "sm_8", "sm_90b", "sm_90aa", "compute_x", "sm_-80", "sm_999999"})
    EXPECT_EQ(CudaArch::parse(name).status().message(),
              fmt::format("'{}' is no CUDA architecture; write for example sm_80, sm_90a or "
                          "compute_80",
                          name));
}

TEST(CudaArch, KnownAreThoseOfTheTableWithTheirVariants) {
  for (const char *name : {"sm_50", "sm_80", "sm_87", "sm_90", "sm_90a", "sm_100f", "sm_121a"})
    EXPECT_TRUE(arch(name).known().ok()) << name;
  for (const char *name : {"sm_10", "sm_81", "sm_80a", "sm_90f", "sm_99", "sm_122", "sm_9999"})
    EXPECT_EQ(arch(name).known().message(),
              fmt::format("there is no architecture '{}'; sm_50, 52, 53, 60, 61, 62, 70, 72, 75, "
                          "80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121 are known, from "
                          "sm_90 on also with an 'a' and from sm_100 on with an 'f'",
                          name));
}

TEST(CudaArch, MachineCodeStaysInItsFamily) { // A25: a wrong image can't be taken
  EXPECT_TRUE(arch("sm_80").cubinRunsOn(arch("sm_80")));
  EXPECT_TRUE(arch("sm_80").cubinRunsOn(arch("sm_86")));
  EXPECT_FALSE(arch("sm_86").cubinRunsOn(arch("sm_80")));
  EXPECT_FALSE(arch("sm_80").cubinRunsOn(arch("sm_90")));
  EXPECT_TRUE(arch("sm_90a").cubinRunsOn(arch("sm_90")));
  EXPECT_FALSE(arch("sm_100a").cubinRunsOn(arch("sm_103")));
  EXPECT_TRUE(arch("sm_100f").cubinRunsOn(arch("sm_103")));
}

TEST(CudaArch, PtxRunsOnLaterChips) {
  EXPECT_TRUE(arch("compute_80").ptxRunsOn(arch("sm_80")));
  EXPECT_TRUE(arch("compute_80").ptxRunsOn(arch("sm_120")));
  EXPECT_FALSE(arch("compute_90").ptxRunsOn(arch("sm_89")));
  EXPECT_FALSE(arch("compute_90a").ptxRunsOn(arch("sm_100")));
  EXPECT_TRUE(arch("compute_100f").ptxRunsOn(arch("sm_103")));
  EXPECT_FALSE(arch("compute_100f").ptxRunsOn(arch("sm_120")));
}

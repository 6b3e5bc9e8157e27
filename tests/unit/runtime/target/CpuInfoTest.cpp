#include "runtime/target/CpuInfo.h"

#include <algorithm>
#include <cstdlib>
#include <gtest/gtest.h>

using namespace llmopt::runtime;

namespace {

/// Sets LLMOPT_CPU_FEATURES for the duration of a test.
class FeaturesVariable {
public:
  explicit FeaturesVariable(const char *value) {
    if (const char *old = std::getenv("LLMOPT_CPU_FEATURES"))
      before = old;
    ::setenv("LLMOPT_CPU_FEATURES", value, 1);
  }
  ~FeaturesVariable() {
    if (before.empty())
      ::unsetenv("LLMOPT_CPU_FEATURES");
    else
      ::setenv("LLMOPT_CPU_FEATURES", before.c_str(), 1);
  }

private:
  std::string before;
};

CpuInfo makeInfo(std::vector<std::string> features) {
  CpuInfo info;
  std::sort(features.begin(), features.end());
  info.features = std::move(features);
  return info;
}

} // namespace

TEST(CpuInfo, DetectsThisMachine) {
  CpuInfo info = detectCpu();
  EXPECT_GE(info.threads, 1u);
  EXPECT_GE(info.cores, 1u);
  EXPECT_LE(info.cores, info.threads);
  EXPECT_TRUE(std::is_sorted(info.features.begin(), info.features.end()));
#if defined(__x86_64__)
  EXPECT_TRUE(info.has("sse2"));
  EXPECT_EQ(info.vendor.size(), 12u);
  // The compiler's run-time library asks the same questions independently.
  EXPECT_EQ(info.has("avx2"), __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ(info.has("fma"), __builtin_cpu_supports("fma") != 0);
  EXPECT_EQ(info.has("avx512f"), __builtin_cpu_supports("avx512f") != 0);
  EXPECT_EQ(info.has("avx512bw"), __builtin_cpu_supports("avx512bw") != 0);
  EXPECT_EQ(info.has("avx512vl"), __builtin_cpu_supports("avx512vl") != 0);
  EXPECT_EQ(info.has("avx512dq"), __builtin_cpu_supports("avx512dq") != 0);
  EXPECT_EQ(info.has("avx512bf16"), __builtin_cpu_supports("avx512bf16") != 0);
#endif
}

TEST(CpuInfo, TheEnvironmentOnlyLowers) {
  CpuInfo all = detectCpu();
  {
    FeaturesVariable variable("baseline");
    StatusOr<CpuInfo> low = hostCpu();
    ASSERT_TRUE(low);
    EXPECT_FALSE(low->has("avx"));
    EXPECT_EQ(low->has("sse2"), all.has("sse2"));
    EXPECT_EQ(targetOf(*low).vectorBits, 128u);
  }
  {
    FeaturesVariable variable("avx2");
    StatusOr<CpuInfo> middle = hostCpu();
    ASSERT_TRUE(middle);
    EXPECT_EQ(middle->has("avx2"), all.has("avx2"));
    EXPECT_FALSE(middle->has("avx512f"));
    EXPECT_LE(targetOf(*middle).vectorBits, 256u);
  }
  {
    FeaturesVariable variable("native");
    EXPECT_EQ(hostCpu()->features, all.features);
  }
  EXPECT_FALSE(limitCpu(makeInfo({"sse2"}), CpuLevel::Native).has("avx512f"));
}

TEST(CpuInfo, AMisspeltLevelIsAnError) {
  FeaturesVariable variable("avx3");
  EXPECT_EQ(hostCpu().status().message(),
            "environment variable LLMOPT_CPU_FEATURES is 'avx3'; allowed are "
            "baseline, "
            "avx2, avx512 and native");
}

TEST(CpuInfo, TargetsFollowFromFeatures) {
  CpuTarget sse = targetOf(makeInfo({"sse2"}));
  EXPECT_EQ(sse.vectorBits, 128u);
  EXPECT_EQ(sse.registers, 16u);
  EXPECT_GT(sse.l2Bytes, 0u) << "unknown caches get a common size";
  CpuTarget avx2 = targetOf(makeInfo({"avx2", "fma", "f16c"}));
  EXPECT_EQ(avx2.vectorBits, 256u);
  EXPECT_TRUE(avx2.hasFma && avx2.hasF16c && !avx2.hasBf16Dot);
  CpuTarget wide = targetOf(makeInfo(
      {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512bf16"}));
  EXPECT_EQ(wide.vectorBits, 512u);
  EXPECT_EQ(wide.registers, 32u);
  EXPECT_TRUE(wide.hasBf16Dot && !wide.slowBf16Dot);
  CpuInfo intel = makeInfo({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512bf16"});
  intel.vendor = "GenuineIntel";
  EXPECT_TRUE(targetOf(intel).slowBf16Dot);
  EXPECT_FALSE(targetOf(limitCpu(intel, CpuLevel::Avx512)).slowBf16Dot);
}

TEST(CpuInfo, MissingFeaturesAreNamed) {
  CpuInfo info = makeInfo({"avx2", "fma"});
  using Names = std::vector<std::string>;
  EXPECT_EQ(missingFeatures(info, ""), Names());
  EXPECT_EQ(missingFeatures(info, "+avx2,+fma,-avx512f"), Names());
  EXPECT_EQ(missingFeatures(info, "+avx2,+avx512f,+magic"), (Names{"avx512f", "magic"}));
  EXPECT_EQ(missingFeatures(info, "+prefer-256-bit,+fast-gather,,"), Names());
  EXPECT_EQ(featureString(info), "+avx2,+fma");
  CpuInfo host = detectCpu();
  EXPECT_EQ(missingFeatures(host, featureString(host)), Names());
}

#include "runtime/target/CpuInfo.h"

#include "runtime/target/CpuFeatures.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <optional>
#include <sched.h>
#include <set>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace llmopt::runtime {

namespace {

using Registers = std::array<uint32_t, 4>;

#if defined(__x86_64__)

Registers cpuid(uint32_t leaf, uint32_t subleaf) {
  Registers r{};
  // Fails for a leaf above the highest of its range: all zero, no feature.
  if (!__get_cpuid_count(leaf, subleaf, &r[0], &r[1], &r[2], &r[3]))
    return {};
  return r;
}

/// The register states that the operating system saves (XCR0).
uint64_t enabledStates() {
  constexpr uint32_t kOsXsave = 1u << 27;
  if (!(cpuid(1, 0)[2] & kOsXsave))
    return 0;
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

#else

Registers cpuid(uint32_t, uint32_t) { return {}; }
uint64_t enabledStates() { return 0; }

#endif

bool isEnabled(CpuState state, uint64_t enabled) {
  constexpr uint64_t kAvx = 0x6, kAvx512 = 0xe6, kAmx = 0x60000;
  switch (state) {
  case CpuState::None:
    return true;
  case CpuState::Avx:
    return (enabled & kAvx) == kAvx;
  case CpuState::Avx512:
    return (enabled & kAvx512) == kAvx512;
  case CpuState::Amx:
    return (enabled & kAmx) == kAmx;
  }
  return false;
}

std::string vendorName() {
  Registers r = cpuid(0, 0);
  std::array<uint32_t, 3> order = {r[1], r[3], r[2]};
  return std::string(reinterpret_cast<const char *>(order.data()), 12).c_str();
}

std::string brandName() {
  if (cpuid(0x80000000, 0)[0] < 0x80000004)
    return "";
  std::string brand;
  for (uint32_t leaf = 0x80000002; leaf <= 0x80000004; ++leaf) {
    Registers r = cpuid(leaf, 0);
    brand.append(reinterpret_cast<const char *>(r.data()), sizeof(r));
  }
  brand = brand.c_str();
  brand.erase(0, brand.find_first_not_of(' '));
  brand.erase(brand.find_last_not_of(' ') + 1);
  return brand;
}

/// First line of a file below the folder of one processor in sysfs, or "".
std::string readSysfs(int processor, const std::string &name) {
  std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu{}/{}", processor, name));
  std::string line;
  std::getline(file, line);
  return line;
}

/// "32K" and "8M" as bytes.
uint64_t parseSize(const std::string &text) {
  uint64_t value = 0;
  auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc())
    return 0;
  char unit = stop == text.data() + text.size() ? ' ' : *stop;
  return value << (unit == 'K' ? 10 : unit == 'M' ? 20 : unit == 'G' ? 30 : 0);
}

void readCaches(int processor, CpuInfo &info) {
  for (int index = 0; index < 8; ++index) {
    std::string folder = fmt::format("cache/index{}/", index);
    std::string type = readSysfs(processor, folder + "type");
    std::string level = readSysfs(processor, folder + "level");
    uint64_t size = parseSize(readSysfs(processor, folder + "size"));
    if (type == "Instruction" || size == 0)
      continue;
    if (level == "1")
      info.l1dBytes = size;
    if (level == "2")
      info.l2Bytes = size;
    if (level == "3")
      info.l3Bytes = size;
  }
}

cpu_set_t usableProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0)
    CPU_SET(0, &set);
  return set;
}

void readTopology(const cpu_set_t &set, CpuInfo &info) {
  std::set<std::string> cores;
  int first = -1;
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (!CPU_ISSET(processor, &set))
      continue;
    first = first < 0 ? processor : first;
    std::string core = readSysfs(processor, "topology/core_id");
    std::string package = readSysfs(processor, "topology/physical_package_id");
    // Without sysfs each processor counts as a core.
    cores.insert(core.empty() ? std::to_string(processor) : package + ":" + core);
  }
  info.threads = static_cast<uint32_t>(std::max(1, CPU_COUNT(&set)));
  info.cores = static_cast<uint32_t>(std::max<size_t>(1, cores.size()));
  readCaches(std::max(first, 0), info);
}

CpuInfo readCpu(const cpu_set_t &set) {
  CpuInfo info;
  info.vendor = vendorName();
  info.brand = brandName();
  readTopology(set, info);
  uint64_t enabled = enabledStates();
  for (const CpuFeature &feature : cpuFeatures()) {
    Registers registers = cpuid(feature.leaf, feature.subleaf);
    bool present = registers[static_cast<size_t>(feature.where)] >> feature.bit & 1;
    if (present && isEnabled(feature.state, enabled))
      info.features.emplace_back(feature.name);
  }
  std::sort(info.features.begin(), info.features.end());
  return info;
}

/// Names that only steer the compiler's choices.
bool isTuning(std::string_view name) {
  constexpr std::string_view prefixes[] = {"fast-", "faster-", "slow-", "prefer-", "false-deps-",
                                           "no-",   "allow-",  "use-",  "tuning"};
  constexpr std::string_view names[] = {
      "branchfusion",        "macrofusion", "idivl-to-divb", "idivq-to-divl", "vzeroupper",
      "sbb-dep-breaking",    "ermsb",       "fsrm",          "nopl",

      "pad-short-functions", "lea-uses-ag", "lea-sp",        "evex512"};
  return std::any_of(std::begin(prefixes), std::end(prefixes),
                     [&](std::string_view p) { return name.starts_with(p); }) ||
         std::find(std::begin(names), std::end(names), name) != std::end(names);
}

} // namespace

bool CpuInfo::has(std::string_view feature) const {
  return std::binary_search(features.begin(), features.end(), feature, std::less<>());
}

CpuInfo detectCpu() {
  // In a virtual machine each cpuid is a trap; all of them and sysfs take milliseconds.
  // Only what the process may use can change.
  static std::mutex mutex;
  static std::optional<std::pair<cpu_set_t, CpuInfo>> known;
  cpu_set_t set = usableProcessors();
  std::lock_guard lock(mutex);
  if (!known || !CPU_EQUAL(&known->first, &set))
    known.emplace(set, readCpu(set));
  return known->second;
}

CpuInfo limitCpu(CpuInfo info, CpuLevel level) {
  for (const CpuFeature &feature : cpuFeatures())
    if (feature.level > level)
      std::erase(info.features, feature.name);
  return info;
}

StatusOr<CpuInfo> hostCpu() {
  CpuInfo info = detectCpu();
  const char *variable = std::getenv("LLMOPT_CPU_FEATURES");
  if (!variable || !*variable)
    return info;
  constexpr std::pair<std::string_view, CpuLevel> levels[] = {{"baseline", CpuLevel::Baseline},
                                                              {"avx2", CpuLevel::Avx2},
                                                              {"avx512", CpuLevel::Avx512},
                                                              {"native", CpuLevel::Native}};
  for (auto [name, level] : levels)
    if (name == variable)
      return limitCpu(std::move(info), level);
  return invalidArgument("environment variable LLMOPT_CPU_FEATURES is '{}'; allowed are "
                         "baseline, avx2, avx512 and native",
                         variable);
}

CpuTarget targetOf(const CpuInfo &info) {
  CpuTarget target;
  bool wide =
      info.has("avx512f") && info.has("avx512bw") && info.has("avx512dq") && info.has("avx512vl");
  bool ymm = info.has("avx2") && info.has("fma");
  target.vectorBits = wide ? 512 : ymm ? 256 : 128;
  target.registers = wide ? 32 : 16;
  target.hasFma = info.has("fma");
  target.hasF16c = info.has("f16c");
  target.hasBf16Dot = wide && info.has("avx512bf16");
  // Intel's cores begin one vdpbf16ps in two cycles, but two FMAs in each: half the products a
  // second (measured on Emerald Rapids, docs/results/cpu.md). Zen 5 does twice those of FMA.
  target.slowBf16Dot = target.hasBf16Dot && info.vendor == "GenuineIntel";
  target.l1dBytes = info.l1dBytes ? info.l1dBytes : target.l1dBytes;
  target.l2Bytes = info.l2Bytes ? info.l2Bytes : target.l2Bytes;
  target.l3Bytes = info.l3Bytes ? info.l3Bytes : target.l3Bytes;
  target.threads = info.threads;
  return target;
}

std::string featureString(const CpuInfo &info) {
  std::string text;
  for (const std::string &feature : info.features) {
    text += text.empty() ? "+" : ",+";
    text += feature;
  }
  return text;
}

std::vector<std::string> missingFeatures(const CpuInfo &info, std::string_view required) {
  std::vector<std::string> missing;
  while (!required.empty()) {
    std::string_view item = required.substr(0, required.find(','));
    required.remove_prefix(std::min(required.size(), item.size() + 1));
    if (!item.starts_with('+'))
      continue;
    std::string_view name = item.substr(1);
    if (!info.has(name) && !isTuning(name))
      missing.emplace_back(name);
  }
  return missing;
}

} // namespace llmopt::runtime

#include "runtime/target/CudaArch.h"

#include <algorithm>
#include <charconv>

namespace llmopt::runtime {
namespace {

/// NVIDIA's table of PTX targets, PTX ISA 9.0.
constexpr uint32_t kNumbers[] = {50, 52, 53, 60, 61,  62,  70,  72,  75,  80, 86,
                                 87, 88, 89, 90, 100, 101, 103, 110, 120, 121};
constexpr uint32_t kFirstOwn = 90, kFirstFamily = 100; ///< with a variant 'a', 'f'

} // namespace

StatusOr<CudaArch> CudaArch::parse(std::string_view name) {
  auto refuse = [&] {
    return invalidArgument("'{}' is no CUDA architecture; write for example sm_80, sm_90a or "
                           "compute_80",
                           name);
  };
  CudaArch arch;
  std::string_view rest = name;
  if (rest.starts_with("compute_")) {
    arch.isVirtual = true;
    rest.remove_prefix(8);
  } else if (rest.starts_with("sm_")) {
    rest.remove_prefix(3);
  } else {
    return refuse();
  }
  uint32_t number = 0;
  auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
  std::string_view tail(end, rest.data() + rest.size() - end);
  if (error != std::errc() || number < 10 || number > 9999 || tail.size() > 1)
    return refuse();
  if (!tail.empty()) {
    if (tail[0] != 'a' && tail[0] != 'f')
      return refuse();
    arch.variant = tail[0];
  }
  arch.major = number / 10;
  arch.minor = number % 10;
  return arch;
}

Status CudaArch::known() const {
  bool hasVariant = !variant || number() >= (variant == 'a' ? kFirstOwn : kFirstFamily);
  if (hasVariant && std::ranges::find(kNumbers, number()) != std::end(kNumbers))
    return {};
  std::string all;
  for (uint32_t each : kNumbers)
    all += (all.empty() ? "sm_" : ", ") + std::to_string(each);
  return invalidArgument("there is no architecture '{}'; {} are known, from sm_{} on also with an "
                         "'a' and from sm_{} on with an 'f'",
                         name(), all, kFirstOwn, kFirstFamily);
}

std::string CudaArch::name() const {
  std::string text = fmt::format("{}_{}", isVirtual ? "compute" : "sm", number());
  if (variant)
    text += variant;
  return text;
}

bool CudaArch::cubinRunsOn(const CudaArch &chip) const {
  if (variant == 'a')
    return number() == chip.number();
  return major == chip.major && minor <= chip.minor;
}

bool CudaArch::ptxRunsOn(const CudaArch &chip) const {
  if (variant == 'a')
    return number() == chip.number();
  if (variant == 'f')
    return major == chip.major && minor <= chip.minor;
  return number() <= chip.number();
}

} // namespace llmopt::runtime

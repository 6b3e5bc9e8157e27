#include "runtime/target/CudaArch.h"

#include <charconv>

namespace llmopt::runtime {

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

#include "runtime/device/Devices.h"

#include "runtime/device/cpu/CpuDevice.h"
#include "runtime/device/cuda/CudaDevice.h"
#include "runtime/device/sim/SimDevice.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <optional>

namespace llmopt::runtime {

namespace {

template <typename Kind>
StatusOr<std::shared_ptr<Device>> asDevice(StatusOr<std::shared_ptr<Kind>> device) {
  if (!device)
    return device.status();
  return std::shared_ptr<Device>(*std::move(device));
}

StatusOr<std::shared_ptr<Device>> openAny() {
  if (StatusOr<std::shared_ptr<CudaDevice>> cuda = CudaDevice::open())
    return std::shared_ptr<Device>(*std::move(cuda));
  return asDevice(CpuDevice::create());
}

/// What "sim" alone stands for: the oldest chip that kernels are made for.
constexpr std::string_view kSimulatedChip = "sm_80";

/// LLMOPT_SIM_STRICT=0 leaves out the checks that take time; LLMOPT_SIM_SEED=N permutes the
/// order of blocks and warps; LLMOPT_SIM_ORDERS=N runs each kernel in N orders and compares.
StatusOr<std::shared_ptr<Device>> openSimulator(std::string_view chip) {
  StatusOr<CudaArch> arch = CudaArch::parse(chip);
  if (!arch)
    return arch.status();
  LLMOPT_RETURN_IF_ERROR(arch->known());
  sim::Options options;
  options.unprovenFaults = true; // kernels of ours must not depend on luck
  struct Variable {
    const char *name;
    uint64_t least, most;
    void (*set)(sim::Options &, uint64_t);
  };
  constexpr Variable kVariables[] = {
      {"LLMOPT_SIM_STRICT", 0, 1, [](sim::Options &o, uint64_t n) { o.strict = n; }},
      {"LLMOPT_SIM_ORDERS", 1, std::numeric_limits<uint32_t>::max(),
       [](sim::Options &o, uint64_t n) { o.orders = uint32_t(n); }},
      {"LLMOPT_SIM_SEED", 0, std::numeric_limits<uint64_t>::max(),
       [](sim::Options &o, uint64_t n) { o.seed = n; }}};
  for (const auto &[name, least, most, set] : kVariables) {
    const char *text = std::getenv(name);
    if (!text)
      continue;
    uint64_t number = 0;
    const char *stop = text + std::string_view(text).size();
    if (auto [end, error] = std::from_chars(text, stop, number);
        error != std::errc() || end != stop || number < least || number > most)
      return invalidArgument("{} is '{}'; a number from {} to {} is allowed", name, text, least,
                             most);
    set(options, number);
  }
  return std::shared_ptr<Device>(SimDevice::create(*arch, options));
}

/// The number behind "cuda:"; 0 for "cuda" alone.
std::optional<uint32_t> ordinalOf(std::string_view name) {
  uint32_t ordinal = 0;
  if (name == "cuda")
    return ordinal;
  name.remove_prefix(std::min(name.size(), std::string_view("cuda:").size()));
  auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), ordinal);
  if (name.empty() || error != std::errc() || end != name.data() + name.size())
    return std::nullopt;
  return ordinal;
}

/// The architecture of a target "cuda:sm_80"; 0 where there is none.
uint32_t archNumber(const bundle::Program &program) {
  size_t colon = program.target.find(':');
  if (colon == std::string::npos)
    return 0;
  StatusOr<CudaArch> arch = CudaArch::parse(std::string_view(program.target).substr(colon + 1));
  return arch ? arch->number() : 0;
}

} // namespace

StatusOr<std::shared_ptr<Device>> openDevice(std::string_view name) {
  if (name == "auto")
    return openAny();
  if (name == "cpu")
    return asDevice(CpuDevice::create());
  if (name == "cuda" || name.starts_with("cuda:"))
    if (std::optional<uint32_t> ordinal = ordinalOf(name))
      return asDevice(CudaDevice::open(*ordinal));
  if (name == "sim" || name.starts_with("sim:"))
    return openSimulator(name == "sim" ? kSimulatedChip : name.substr(4));
  return invalidArgument("unknown device '{}'; auto, cpu, cuda, cuda:NUMBER, sim and sim:ARCH can "
                         "be had",
                         name);
}

std::string_view targetKind(const bundle::Program &program) {
  return std::string_view(program.target).substr(0, program.target.find(':'));
}

StatusOr<std::shared_ptr<DeviceProgram>> loadBest(Device &device,
                                                  std::vector<bundle::Program> family) {
  // A simulated device runs what a real one does.
  std::string_view wanted = device.facts().kind == DeviceKind::Cpu ? "cpu" : "cuda";
  std::vector<size_t> order(family.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    uint32_t first = archNumber(family[a]), second = archNumber(family[b]);
    return first != second ? first > second : a < b;
  });
  std::string reasons;
  for (size_t index : order) {
    bundle::Program &program = family[index];
    std::string reason =
        fmt::format("the program for {} is for another kind of device", program.target);
    if (targetKind(program) == wanted) {
      StatusOr<std::shared_ptr<DeviceProgram>> loaded = device.load(std::move(program));
      if (loaded || loaded.status().code() != StatusCode::Unavailable)
        return loaded;
      reason = loaded.status().message();
    }
    reasons += (reasons.empty() ? "" : "; ") + reason;
  }
  return makeStatus(StatusCode::Unavailable, "nothing in the bundle runs on device '{}': {}",
                    device.facts().name, reasons.empty() ? "it is empty" : reasons);
}

} // namespace llmopt::runtime

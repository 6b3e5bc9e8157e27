// See Image.h.
#include "tests/support/fake-cuda/Image.h"
#include "tests/support/fake-cuda/Machine.h"
#include "tests/support/fake-cuda/Results.h"

#include "runtime/bundle/WorkItem.h"
#include "runtime/device/cpu/ElfLoader.h"
#include "runtime/device/sim/Simulator.h"
#include "runtime/target/CudaArch.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <elf.h>

using namespace llmopt;

namespace fakecuda {
namespace {

/// CPU entries, one call a block.
class HostImage final : public Image {
public:
  explicit HostImage(runtime::LoadedObject object) : object(std::move(object)) {}

  bool has(const std::string &function) const override { return bool(object.function(function)); }
  int check(const std::string &, const LaunchShape &) const override { return 0; }
  int launch(const std::string &function, const LaunchShape &shape, std::span<const uint8_t> params,
             std::string &) const override {
    auto entry = reinterpret_cast<bundle::CpuEntry>(*object.function(function));
    alignas(64) static uint8_t scratch[1 << 16];
    for (unsigned block = 0; block < shape.grid[0]; ++block)
      if (entry(params.data(), block, scratch) != 0)
        return kLaunchFailed;
    return 0;
  }

private:
  runtime::LoadedObject object;
};

int resultOf(sim::FaultKind kind) {
  switch (kind) {
  case sim::FaultKind::GlobalOutOfBounds:
  case sim::FaultKind::InvalidAddress:
  case sim::FaultKind::SharedOutOfBounds:
  case sim::FaultKind::LocalOutOfBounds:
    return kIllegalAddress;
  case sim::FaultKind::Misaligned:
    return kMisaligned;
  case sim::FaultKind::Deadlock:
  case sim::FaultKind::StepBudget:
    return kTimeout;
  default:
    return kLaunchFailed;
  }
}

/// The device `sim` has the checks that take time; here they are on request, for the driver's
/// calls are what is tested.
sim::Options simOptions() {
  sim::Options options;
  const char *strict = std::getenv("LLMOPT_SIM_STRICT");
  options.strict = strict && std::atoi(strict) != 0;
  return options;
}

class SimImage final : public Image {
public:
  explicit SimImage(std::shared_ptr<const sim::Module> module) : module(std::move(module)) {}

  bool has(const std::string &function) const override { return module->kernel(function); }

  int check(const std::string &function, const LaunchShape &shape) const override {
    const sim::KernelInfo &info = *module->kernel(function);
    uint32_t threads = 1;
    for (int d = 0; d < 3; ++d) {
      threads *= shape.block[d];
      if (shape.grid[d] == 0 || shape.block[d] == 0 ||
          (info.requiredThreads[d] && info.requiredThreads[d] != shape.block[d]))
        return kInvalidValue;
    }
    uint32_t most = 1024;
    if (info.maxThreads[0])
      most =
          info.maxThreads[0] * std::max(info.maxThreads[1], 1u) * std::max(info.maxThreads[2], 1u);
    return threads <= most ? 0 : kInvalidValue;
  }

  int launch(const std::string &function, const LaunchShape &shape, std::span<const uint8_t> params,
             std::string &text) const override {
    sim::Launch launch;
    launch.kernel = function;
    std::copy_n(shape.grid, 3, launch.grid.begin());
    std::copy_n(shape.block, 3, launch.block.begin());
    launch.dynamicShared = shape.shared;
    launch.params = std::as_bytes(params);
    sim::Fault fault;
    auto counters = sim::run(*module, state().memory, launch, simOptions(), &fault);
    if (counters)
      return 0;
    text = counters.status().message();
    return fault.kernel.empty() ? kInvalidValue : resultOf(fault.kind);
  }

private:
  std::shared_ptr<const sim::Module> module;
};

/// The CUDA version that a PTX version came with: 7.y with 11.y, and so on.
uint32_t cudaOf(std::string_view ptx) {
  size_t at = ptx.find(".version ");
  unsigned major = 0, minor = 0;
  if (at == std::string_view::npos ||
      std::sscanf(std::string(ptx.substr(at, 24)).c_str(), ".version %u.%u", &major, &minor) != 2)
    return 0;
  return (major + 4) * 1000 + minor * 10;
}

Loaded loadPtx(std::string_view text, const Chip &chip) {
  if (uint32_t cuda = cudaOf(text); cuda > chip.driver)
    return {nullptr, kUnsupportedPtx, fmt::format("ptxas fatal: the PTX is of CUDA {}", cuda)};
  auto module = sim::loadPtx(text, "driver.ptx");
  if (!module)
    return {nullptr, kInvalidPtx, "ptxas fatal: " + module.status().message()};
  auto target = runtime::CudaArch::parse((*module)->target());
  if (!target || !target->ptxRunsOn({.major = chip.major, .minor = chip.minor}))
    return {nullptr, kNoBinary, fmt::format("the PTX is for {}", (*module)->target())};
  return {std::make_shared<SimImage>(*std::move(module)), 0, ""};
}

/// All bytes of an object: to behind its tables and its sections, whichever ends last.
std::vector<uint8_t> objectAt(const uint8_t *bytes) {
  const auto *header = reinterpret_cast<const Elf64_Ehdr *>(bytes);
  const auto *sections = reinterpret_cast<const Elf64_Shdr *>(bytes + header->e_shoff);
  uint64_t end = std::max(header->e_shoff + uint64_t{header->e_shentsize} * header->e_shnum,
                          header->e_phoff + uint64_t{header->e_phentsize} * header->e_phnum);
  for (unsigned i = 0; i < header->e_shnum; ++i)
    if (sections[i].sh_type != SHT_NOBITS)
      end = std::max(end, sections[i].sh_offset + sections[i].sh_size);
  return {bytes, bytes + end};
}

Loaded loadHostObject(const uint8_t *bytes) {
  auto object = runtime::LoadedObject::load(objectAt(bytes));
  if (!object)
    return {nullptr, kInvalidImage, object.status().message()};
  return {std::make_shared<HostImage>(*std::move(object)), 0, ""};
}

} // namespace

Loaded loadImage(const uint8_t *bytes, const Chip &chip) {
  auto isObject = [](const uint8_t *at) { return std::memcmp(at, "\177ELF", 4) == 0; };
  if (std::memcmp(bytes, "//PTX   ", 8) == 0 && isObject(bytes + 8))
    return loadHostObject(bytes + 8);
  if (!isObject(bytes)) {
    std::string_view text(reinterpret_cast<const char *>(bytes));
    if (text.find(".version") == std::string_view::npos)
      return {nullptr, kInvalidImage, "the image is neither machine code nor PTX"};
    return loadPtx(text, chip);
  }
  if (reinterpret_cast<const Elf64_Ehdr *>(bytes)->e_machine != EM_CUDA)
    return loadHostObject(bytes);
  Beside found = ptxBeside(objectAt(bytes));
  auto arch = runtime::CudaArch::parse(found.chip);
  if (!arch)
    return {nullptr, kNoBinary, "no bundle holds this machine code beside its PTX"};
  if (!arch->cubinRunsOn({.major = chip.major, .minor = chip.minor}))
    return {nullptr, kNoBinary, fmt::format("the machine code is for {}", found.chip)};
  return loadPtx(std::string_view(found.ptx.c_str()), chip);
}

} // namespace fakecuda

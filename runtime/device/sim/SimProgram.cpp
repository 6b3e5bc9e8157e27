#include "runtime/device/sim/SimProgram.h"

#include <algorithm>
#include <cstring>

namespace llmopt::runtime {

using bundle::BufferRole;
using bundle::SlotKind;

StatusOr<uint32_t> SimProgram::chooseImage(const bundle::Kernel &kernel,
                                           const CudaArch &chip) const {
  std::vector<uint32_t> candidates = {kernel.image};
  candidates.insert(candidates.end(), kernel.otherImages.begin(), kernel.otherImages.end());
  std::optional<uint32_t> best;
  std::string reasons;
  for (uint32_t index : candidates) {
    const bundle::Image &image = held.images[index];
    if (image.format != bundle::ImageFormat::Ptx)
      continue;
    StatusOr<CudaArch> arch = CudaArch::parse(image.cpu);
    if (!arch)
      return arch.status();
    if (!arch->ptxRunsOn(chip))
      reasons += fmt::format("; PTX for {} does not run on {}", image.cpu, chip.name());
    else if (!best || arch->number() > CudaArch::parse(held.images[*best].cpu)->number())
      best = index;
  }
  if (best)
    return *best;
  return makeStatus(StatusCode::Unavailable,
                    "kernel '{}' has no PTX that the simulator can run{}; it runs PTX only",
                    kernel.entry, reasons);
}

StatusOr<std::shared_ptr<const sim::Module>> SimProgram::moduleOf(uint32_t index) {
  if (auto it = images.find(index); it != images.end())
    return it->second;
  const std::vector<uint8_t> &bytes = held.images[index].bytes;
  std::string_view text(reinterpret_cast<const char *>(bytes.data()), bytes.size());
  while (!text.empty() && text.back() == '\0')
    text.remove_suffix(1);
  StatusOr<std::shared_ptr<const sim::Module>> module =
      sim::loadPtx(text, fmt::format("{}.ptx", held.name));
  if (module)
    images[index] = *module;
  return module;
}

Status SimProgram::initialise(const std::optional<CudaArch> &wanted) {
  for (const bundle::Kernel &kernel : held.kernels) {
    size_t colon = held.target.find(':');
    StatusOr<CudaArch> chip =
        wanted ? StatusOr<CudaArch>(*wanted)
               : CudaArch::parse(colon == std::string::npos
                                     ? std::string_view(held.target)
                                     : std::string_view(held.target).substr(colon + 1));
    if (!chip)
      return makeStatus(StatusCode::Unavailable,
                        "it was compiled for '{}'; the simulator runs CUDA programs", held.target);
    StatusOr<uint32_t> image = chooseImage(kernel, *chip);
    if (!image)
      return image.status();
    StatusOr<std::shared_ptr<const sim::Module>> module = moduleOf(*image);
    if (!module)
      return module.status();
    if (!(*module)->kernel(kernel.entry))
      return makeStatus(StatusCode::DataLoss, "the PTX for {} has no kernel '{}'",
                        held.images[*image].cpu, kernel.entry);
    modules.push_back(*std::move(module));
    choice += fmt::format("{}{}: PTX for {}", choice.empty() ? "" : "; ", kernel.entry,
                          held.images[*image].cpu);
  }
  return {};
}

namespace {

/// What a kernel writes besides its results: arrays of the plan; the cache, when it appends.
bool writtenBy(bundle::KernelKind kind, BufferRole role) {
  if (role == BufferRole::KeyPool || role == BufferRole::ValuePool)
    return kind == bundle::KernelKind::Append;
  return role == BufferRole::PartialOut || role == BufferRole::PartialLse ||
         role == BufferRole::Counters;
}

} // namespace

/// The allocations that the parameter block points to, under the names of the
/// arrays in them; nothing else can be touched. One that holds an array which
/// kernels write may be written. Of a plan, whose arrays follow each other in an
/// allocation of its own, each array ends where the next one begins.
Status SimProgram::registerBuffers(const KernelCall &call) const {
  struct Entry {
    uint64_t end = 0;
    std::string names;
    bool written = false;
  };
  std::map<uint64_t, Entry> entries;
  for (size_t i = 0; i < held.slots.size(); ++i) {
    if (held.slots[i].kind != SlotKind::Pointer)
      continue;
    size_t at = sizeof(bundle::ParamHeader) + i * sizeof(uint64_t);
    if (at + sizeof(uint64_t) > call.params.size())
      return invalidArgument("a parameter block of {} bytes; program '{}' has {} slots",
                             call.params.size(), held.name, held.slots.size());
    uint64_t address = 0;
    std::memcpy(&address, call.params.data() + at, sizeof(address));
    const bundle::Buffer &buffer = held.buffers[held.slots[i].buffer];
    auto allocation = simDevice->allocationOf(address);
    if (!allocation) { // absent or empty; a kernel that reads it all the same has a fault
      LLMOPT_RETURN_IF_ERROR(memory.add(reinterpret_cast<const void *>(address), 0, buffer.name,
                                        sim::Access::ReadOnly));
      registered.push_back(address);
      continue;
    }
    Entry &entry = entries[buffer.role >= BufferRole::ItemOffsets ? address : allocation->first];
    entry.end = allocation->first + allocation->second;
    entry.names += (entry.names.empty() ? "" : ", ") + buffer.name;
    entry.written |= buffer.output || writtenBy(held.kernels[call.kernel].kind, buffer.role);
  }
  for (auto it = entries.begin(); it != entries.end(); ++it) {
    const auto &[address, entry] = *it;
    auto next = std::next(it);
    uint64_t end = next == entries.end() ? entry.end : std::min(entry.end, next->first);
    LLMOPT_RETURN_IF_ERROR(
        memory.add(reinterpret_cast<const void *>(address), end - address, entry.names,
                   entry.written ? sim::Access::ReadWrite : sim::Access::ReadOnly));
    registered.push_back(address);
  }
  return {};
}

void SimProgram::forgetBuffers() const {
  for (uint64_t address : registered)
    static_cast<void>(memory.remove(reinterpret_cast<const void *>(address)));
  registered.clear();
}

Status SimProgram::run(const KernelCall &call, uint32_t workers) const {
  const bundle::Kernel &kernel = held.kernels[call.kernel];
  std::lock_guard lock(running);
  sim::Launch launch;
  launch.kernel = kernel.entry;
  launch.grid = {workers, 1, 1};
  launch.block = {kernel.blockThreads, 1, 1};
  launch.cluster = {kernel.clusterBlocks, 1, 1};
  launch.dynamicShared = kernel.sharedBytes;
  launch.params = std::as_bytes(call.params);
  sim::Fault fault;
  sim::Profile profile;
  Status ready = registerBuffers(call);
  StatusOr<sim::Counters> counters =
      ready.ok() ? sim::run(*modules[call.kernel], memory, launch, simDevice->options, &fault,
                            simDevice->profiling ? &profile : nullptr)
                 : StatusOr<sim::Counters>(ready);
  forgetBuffers();
  std::lock_guard deviceLock(simDevice->mutex);
  if (!counters) {
    if (!fault.kernel.empty())
      simDevice->fault = fault;
    return counters.status().withContext(fmt::format("program '{}'", held.name));
  }
  simDevice->counters[kernel.entry] += *counters;
  if (simDevice->profiling)
    simDevice->profiles[kernel.entry] += profile;
  return {};
}

} // namespace llmopt::runtime

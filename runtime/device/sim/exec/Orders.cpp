#include "runtime/device/sim/exec/Orders.h"

#include <algorithm>
#include <cstring>

namespace llmopt::sim {

namespace {

/// The bytes of all buffers that may be written, by the number of the buffer.
using Snapshot = std::vector<std::vector<std::byte>>;

Snapshot take(const GlobalMemory &memory) {
  Snapshot snapshot;
  for (const GlobalMemory::Buffer &buffer : memory.buffers()) {
    std::vector<std::byte> &bytes = snapshot.emplace_back();
    if (buffer.access != Access::ReadWrite)
      continue;
    const auto *begin = reinterpret_cast<const std::byte *>(buffer.begin);
    bytes.assign(begin, begin + (buffer.end - buffer.begin));
  }
  return snapshot;
}

void restore(const GlobalMemory &memory, const Snapshot &snapshot) {
  for (size_t i = 0; i < snapshot.size(); ++i)
    if (!snapshot[i].empty())
      std::memcpy(reinterpret_cast<void *>(memory.buffers()[i].begin), snapshot[i].data(),
                  snapshot[i].size());
}

/// The address of the first byte that differs, 0 if none does.
uint64_t difference(const GlobalMemory &memory, const Snapshot &expected) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto *actual = reinterpret_cast<const std::byte *>(memory.buffers()[i].begin);
    auto [want, got] = std::mismatch(expected[i].begin(), expected[i].end(), actual);
    if (want != expected[i].end())
      return reinterpret_cast<uint64_t>(got);
  }
  return 0;
}

} // namespace

runtime::StatusOr<Counters> runOrders(const Module &module, GlobalMemory &memory,
                                      const Launch &launch, const Options &options, Fault *fault,
                                      Profile *profile, std::vector<Fault> *warnings) {
  // The module's variables are buffers too; they come with the first launch.
  if (auto variables = memory.variables(module); !variables)
    return variables.status();
  Options one = options;
  one.orders = 1;
  Snapshot before = take(memory);
  runtime::StatusOr<Counters> first = run(module, memory, launch, one, fault, profile, warnings);
  if (!first)
    return first;
  Snapshot expected = take(memory);
  for (uint32_t i = 1; i < options.orders; ++i) {
    restore(memory, before);
    one.seed = options.seed + i;
    if (auto again = run(module, memory, launch, one, fault); !again)
      return again;
    uint64_t address = difference(memory, expected);
    if (!address)
      continue;
    Fault found;
    found.kind = FaultKind::UnorderedResult;
    found.kernel = launch.kernel;
    found.module = module.name();
    found.address = address;
    found.buffer = memory.describe(address);
    found.detail = fmt::format("seeds {} and {} leave different bits: the result depends on the "
                               "order of blocks and warps",
                               options.seed, one.seed);
    if (fault)
      *fault = found;
    return runtime::Status(runtime::StatusCode::InvalidArgument, found.message());
  }
  return first;
}

} // namespace llmopt::sim

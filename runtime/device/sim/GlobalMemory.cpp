#include "runtime/device/sim/GlobalMemory.h"

#include "runtime/base/AlignedBuffer.h"
#include "runtime/device/sim/decode/Program.h"

#include <algorithm>
#include <cstring>

namespace llmopt::sim {

using runtime::Status;

struct GlobalMemory::Instance {
  std::vector<runtime::AlignedBuffer> storage;
  std::vector<uint64_t> addresses;
};

GlobalMemory::GlobalMemory() = default;
GlobalMemory::~GlobalMemory() = default;
GlobalMemory::GlobalMemory(GlobalMemory &&) noexcept = default;
GlobalMemory &GlobalMemory::operator=(GlobalMemory &&) noexcept = default;

Status GlobalMemory::add(const void *data, size_t bytes, std::string name, Access access) {
  auto begin = reinterpret_cast<uint64_t>(data);
  if (bytes == 0) {
    empty.push_back({begin, begin, std::move(name), access});
    return {};
  }
  uint64_t end = begin + bytes;
  if (!data || end < begin || end > kSharedWindow)
    return runtime::invalidArgument("buffer '{}' of {} bytes at {:#x} is no memory of the host",
                                    name, bytes, begin);
  auto after = std::upper_bound(sorted.begin(), sorted.end(), begin,
                                [](uint64_t at, const Buffer &b) { return at < b.end; });
  if (after != sorted.end() && after->begin < end)
    return runtime::invalidArgument(
        "buffer '{}' of {} bytes overlaps buffer '{}'; remove that one before", name, bytes,
        after->name);
  sorted.insert(after, {begin, end, std::move(name), access});
  return {};
}

Status GlobalMemory::remove(const void *data) {
  auto begin = reinterpret_cast<uint64_t>(data);
  auto it = std::lower_bound(sorted.begin(), sorted.end(), begin,
                             [](const Buffer &b, uint64_t at) { return b.begin < at; });
  if (it != sorted.end() && it->begin == begin) {
    sorted.erase(it);
    return {};
  }
  auto none = std::ranges::find(empty, begin, &Buffer::begin);
  if (none == empty.end())
    return runtime::makeStatus(runtime::StatusCode::NotFound, "no buffer begins at {:#x}", begin);
  empty.erase(none);
  return {};
}

const GlobalMemory::Buffer *GlobalMemory::find(uint64_t address, uint64_t bytes) const {
  auto it = std::upper_bound(sorted.begin(), sorted.end(), address,
                             [](uint64_t at, const Buffer &b) { return at < b.end; });
  if (it == sorted.end() || address < it->begin || bytes > it->end - address)
    return nullptr;
  return &*it;
}

std::string GlobalMemory::describe(uint64_t address) const {
  auto after = std::upper_bound(sorted.begin(), sorted.end(), address,
                                [](uint64_t at, const Buffer &b) { return at < b.end; });
  auto size = [](const Buffer &b) { return b.end - b.begin; };
  if (after != sorted.end() && address >= after->begin)
    return fmt::format("byte {} of '{}' ({} bytes)", address - after->begin, after->name,
                       size(*after));
  const Buffer *nearest = nullptr;
  auto distance = [&](const Buffer &b) {
    return address < b.begin ? b.begin - address : address - b.end;
  };
  auto consider = [&](const Buffer &b) {
    if (!nearest || distance(b) < distance(*nearest))
      nearest = &b;
  };
  // Of two at the same distance an empty one: an address in it is never in bounds.
  std::ranges::for_each(empty, consider);
  if (after != sorted.end())
    consider(*after);
  if (after != sorted.begin())
    consider(*(after - 1));
  if (!nearest)
    return "no buffer is registered";
  std::string names = fmt::format("'{}'", nearest->name);
  for (const Buffer &other : empty)
    if (&other != nearest && size(*nearest) == 0 && other.begin == nearest->begin)
      names += fmt::format(", '{}'", other.name);
  return fmt::format("{} bytes {} {} ({} bytes)", distance(*nearest),
                     address < nearest->begin ? "before" : "after the end of", names,
                     size(*nearest));
}

runtime::StatusOr<const std::vector<uint64_t> *> GlobalMemory::variables(const Module &module) {
  const detail::Program &program = module.program();
  std::unique_ptr<Instance> &slot = instances[program.id];
  if (slot)
    return &slot->addresses;
  auto instance = std::make_unique<Instance>();
  for (const GlobalVariable &variable : program.variables) {
    uint64_t bytes = std::max<uint64_t>(variable.bytes, 1);
    runtime::AlignedBuffer &buffer = instance->storage.emplace_back(bytes + variable.align);
    auto start = reinterpret_cast<uint64_t>(buffer.data());
    start = (start + variable.align - 1) / variable.align * variable.align;
    auto *data = reinterpret_cast<std::byte *>(start);
    std::memset(data, 0, bytes);
    if (!variable.initial.empty())
      std::memcpy(data, variable.initial.data(), variable.initial.size());
    instance->addresses.push_back(start);
    LLMOPT_RETURN_IF_ERROR(add(data, bytes, fmt::format("{}:{}", program.name, variable.name),
                               variable.constant ? Access::ReadOnly : Access::ReadWrite));
  }
  for (size_t i = 0; i < program.variables.size(); ++i) {
    for (const GlobalVariable::Relocation &r : program.variables[i].relocations) {
      uint64_t address = instance->addresses[r.variable] + r.addend;
      std::memcpy(reinterpret_cast<std::byte *>(instance->addresses[i]) + r.offset, &address, 8);
    }
  }
  slot = std::move(instance);
  return &slot->addresses;
}

} // namespace llmopt::sim

#include "runtime/device/sim/exec/Access.h"

#include <algorithm>

namespace llmopt::sim {

using ptx::Space;

namespace {

std::string_view verb(AccessKind kind) {
  switch (kind) {
  case AccessKind::Load:
  case AccessKind::StrongLoad:
    return "load";
  case AccessKind::Store:
  case AccessKind::StrongStore:
    return "store";
  case AccessKind::Atomic:
    return "atomic";
  case AccessKind::Reduction:
    return "reduction";
  case AccessKind::AsyncLoad:
    return "asynchronous load";
  case AccessKind::AsyncStore:
    return "asynchronous store";
  }
  return "access";
}

/// Memory that begins at address 0 of its space.
std::byte *locateWindow(Warp &warp, FaultKind fault, std::string_view name, std::byte *memory,
                        uint64_t size, uint32_t lane, uint64_t address, uint32_t bytes,
                        AccessKind kind) {
  if (address <= size && bytes <= size - address)
    return memory + address;
  warp.fault(fault, lane, address,
             fmt::format("{} of {} bytes at offset {} of {} memory; it has {} bytes", verb(kind),
                         bytes, static_cast<int64_t>(address), name, size));
  return nullptr;
}

std::byte *locateParam(Warp &warp, uint32_t lane, uint64_t address, uint32_t bytes,
                       AccessKind kind) {
  if (writes(kind)) {
    warp.fault(FaultKind::WriteToReadOnly, lane, address,
               fmt::format("{} to kernel parameters", verb(kind)));
    return nullptr;
  }
  std::span<const std::byte> params = warp.block->launch().params;
  return locateWindow(warp, FaultKind::ParamOutOfBounds, "parameter",
                      const_cast<std::byte *>(params.data()), params.size(), lane, address, bytes,
                      kind);
}

} // namespace

Space spaceOf(uint64_t &address) {
  struct Window {
    uint64_t begin;
    Space space;
  };
  constexpr Window kWindows[] = {
      {kSharedWindow, Space::Shared}, {kLocalWindow, Space::Local}, {kParamWindow, Space::Param}};
  for (const Window &window : kWindows) {
    if (address - window.begin < kWindowBytes) {
      address -= window.begin;
      return window.space;
    }
  }
  return Space::Global;
}

bool staysInBlock(Warp &warp, uint32_t lane, uint64_t address) {
  if (address >> kRankShift == 0)
    return true;
  warp.fault(FaultKind::InvalidAddress, lane, address,
             "an address of another block's shared memory, in an instruction for the own one");
  return false;
}

std::byte *locate(Warp &warp, Space space, uint32_t lane, uint64_t address, uint32_t bytes,
                  AccessKind kind) {
  if (space == Space::Generic)
    space = spaceOf(address);
  if (address & (bytes - 1)) {
    warp.fault(FaultKind::Misaligned, lane, address,
               fmt::format("{} of {} bytes in {} memory at an address that is no multiple of {}",
                           verb(kind), bytes, ptx::toString(space), bytes),
               space == Space::Global ? warp.block->launch().memory->describe(address) : "");
    return nullptr;
  }
  switch (space) {
  case Space::Shared: {
    Block *block = warp.block;
    if (address >> kRankShift) [[unlikely]]
      if (!(block = block->resolve(warp, lane, address)))
        return nullptr;
    return locateWindow(warp, FaultKind::SharedOutOfBounds, "shared", block->shared(),
                        warp.block->launch().sharedBytes, lane, address, bytes, kind);
  }
  case Space::Local: {
    uint64_t frame = warp.kernel->info.localBytes;
    return locateWindow(warp, FaultKind::LocalOutOfBounds, "local",
                        warp.local.data() + lane * frame, frame, lane, address, bytes, kind);
  }
  case Space::Param:
    return locateParam(warp, lane, address, bytes, kind);
  default:
    return warp.block->global(warp, lane, address, bytes, writes(kind));
  }
}

std::byte *Block::findGlobal(Warp &warp, uint32_t lane, uint64_t address, uint32_t bytes,
                             bool write) {
  const GlobalMemory::Buffer *buffer = grid.memory->find(address, bytes);
  if (!buffer) {
    if (spaceOf(address) != Space::Global)
      warp.fault(FaultKind::InvalidAddress, lane, address,
                 "a generic address of shared, local or parameter memory in an instruction for "
                 "global memory");
    else
      warp.fault(FaultKind::GlobalOutOfBounds, lane, address,
                 fmt::format("{} of {} bytes of global memory outside every buffer",
                             write ? "store" : "load", bytes),
                 grid.memory->describe(address));
    return nullptr;
  }
  if (write && buffer->access == Access::ReadOnly) {
    warp.fault(FaultKind::WriteToReadOnly, lane, address,
               fmt::format("store of {} bytes to the read-only buffer '{}'", bytes, buffer->name),
               grid.memory->describe(address));
    return nullptr;
  }
  lastBegin = buffer->begin;
  lastEnd = buffer->end;
  lastWritable = buffer->access == Access::ReadWrite;
  return reinterpret_cast<std::byte *>(address);
}

} // namespace llmopt::sim

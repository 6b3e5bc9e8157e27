// Accesses of lanes to memory: checked, located, counted. Every instruction
// that touches memory goes through here, so checks of orderings (races, reads
// of what was never written) have one place to look.
#pragma once

#include "runtime/device/sim/exec/Block.h"
#include "runtime/device/sim/ptx/Ast.h"

namespace llmopt::sim {

/// Strong ones are volatile, relaxed, acquire, release.
enum class AccessKind : uint8_t {
  Load,
  Store,
  StrongLoad,
  StrongStore,
  Atomic,
  Reduction, ///< of a bulk copy: atomic, and orders nothing
  AsyncLoad,
  AsyncStore,
};

inline bool writes(AccessKind kind) {
  return kind != AccessKind::Load && kind != AccessKind::StrongLoad &&
         kind != AccessKind::AsyncLoad;
}

/// The space of a generic address, which becomes an address of that space.
ptx::Space spaceOf(uint64_t &address);

/// The bytes at an address of the space, or null and a fault of the warp.
/// `bytes` is a power of two up to 32, and what the address must be aligned to.
std::byte *locate(Warp &warp, ptx::Space space, uint32_t lane, uint64_t address, uint32_t bytes,
                  AccessKind kind);

/// Lanes of one instruction that touch one space.
struct LaneAddresses {
  std::array<uint64_t, kLanes> at = {};
  LaneMask lanes = 0;

  void add(uint32_t lane, uint64_t address) {
    at[lane] = address;
    lanes |= 1u << lane;
  }
};

/// False and a fault of the warp for an address of another block's shared memory, which
/// the instruction cannot reach.
bool staysInBlock(Warp &warp, uint32_t lane, uint64_t address);

/// `locate` for shared memory, which is most often the block's own.
inline std::byte *locateShared(Warp &warp, uint32_t lane, uint64_t address, uint32_t bytes,
                               AccessKind kind) {
  uint64_t size = warp.block->launch().sharedBytes;
  if ((address & (bytes - 1)) == 0 && address < size && bytes <= size - address) [[likely]]
    return warp.block->shared() + address;
  return locate(warp, ptx::Space::Shared, lane, address, bytes, kind);
}

/// `locateShared` and `staysInBlock`.
inline std::byte *locateOwn(Warp &warp, uint32_t lane, uint64_t address, uint32_t bytes,
                            AccessKind kind) {
  std::byte *at = locateShared(warp, lane, address, bytes, kind);
  return at && staysInBlock(warp, lane, address) ? at : nullptr;
}

// What follows counts the access of an instruction and, in a strict run, checks
// that it is ordered with others; it comes after the data has moved.

/// Counts an instruction's access to global memory.
void recordGlobal(Warp &warp, const LaneAddresses &addresses, uint32_t bytes, AccessKind kind);
/// Counts an instruction's access to shared memory. Lanes of a wavefront touch
/// 128 bytes at most: 32 lanes of 4 bytes, 16 of 8, 8 of 16.
void recordShared(Warp &warp, const LaneAddresses &addresses, uint32_t bytes, AccessKind kind);
/// Counts rows of a matrix that the lanes of a warp move together.
void recordRows(Warp &warp, const LaneAddresses &rows, uint32_t bytes, AccessKind kind);
/// The one that fits the space; generic addresses are told apart.
void record(Warp &warp, ptx::Space space, const LaneAddresses &addresses, uint32_t bytes,
            AccessKind kind);

/// Addresses that an instruction's base row and offset give.
inline uint64_t baseAddress(const Warp &warp, const Inst &inst, uint32_t row, bool wide,
                            uint32_t lane) {
  if (wide)
    return warp.wide(row)[lane] + static_cast<uint64_t>(inst.imm);
  return warp.narrow(row)[lane] + static_cast<uint32_t>(inst.imm);
}

} // namespace llmopt::sim

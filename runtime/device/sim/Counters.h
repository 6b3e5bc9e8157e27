// What a simulated grid did, counted.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace llmopt::sim {

/// Classes of instructions in the counters.
enum class InstClass : uint8_t {
  Integer,    ///< integer and bit arithmetic, address computation
  Float,      ///< f16, bf16, f32, f64 arithmetic
  Special,    ///< ex2, lg2, rcp, rsqrt, sqrt, sin, cos, tanh
  Convert,    ///< cvt
  Move,       ///< mov, selp, cvta, reads of special registers
  Predicate,  ///< setp and arithmetic on predicates
  Branch,     ///< bra, brx, call, ret, exit
  Global,     ///< loads and stores of global memory
  Shared,     ///< loads and stores of shared memory, ldmatrix, stmatrix
  Local,      ///< loads and stores of local memory: spills, indexed arrays
  Param,      ///< loads of parameters and constants
  Atomic,     ///< atom, red
  AsyncCopy,  ///< cp.async and its commits and waits
  Matrix,     ///< mma
  Collective, ///< shfl, vote, match, redux, activemask, movmatrix
  Barrier,    ///< barriers and fences
};
inline constexpr size_t kInstClasses = 16;

/// "integer", "float", ...: for tables.
std::string_view toString(InstClass c);

/// What accesses and branches cost: of an instruction, or of all of them.
struct AccessCounts {
  /// Bytes that lanes asked of global memory (cp.async included), and 32-byte
  /// sectors that a warp's access touches, summed over accesses.
  uint64_t globalLoadBytes = 0;
  uint64_t globalStoreBytes = 0;
  uint64_t globalSectors = 0;

  /// Passes through the 32 banks of shared memory, and what they would be
  /// without bank conflicts.
  uint64_t sharedWavefronts = 0;
  uint64_t sharedIdeal = 0;

  uint64_t divergentBranches = 0; ///< branches whose lanes went both ways

  AccessCounts &operator+=(const AccessCounts &other);
  bool operator==(const AccessCounts &) const = default;
};

struct Counters : AccessCounts {
  /// Instructions issued to a warp, and lanes that executed them.
  uint64_t warpInstructions = 0;
  uint64_t laneInstructions = 0;
  std::array<uint64_t, kInstClasses> warpByClass = {};
  std::array<uint64_t, kInstClasses> laneByClass = {};

  /// Warp-level matrix products, and multiply-adds in them.
  uint64_t mma = 0;
  uint64_t mmaMultiplyAdds = 0;

  uint64_t barriers = 0; ///< barriers that warps arrived at

  Counters &operator+=(const Counters &other);
  bool operator==(const Counters &) const = default;
};

/// What one instruction of the text did, over all warps.
struct InstProfile : AccessCounts {
  uint32_t line = 0; ///< of the PTX
  std::string text;
  std::string sourceFile; ///< from the line table
  uint32_t sourceLine = 0;
  InstClass cls = InstClass::Integer;
  uint64_t warps = 0; ///< times issued
  uint64_t lanes = 0; ///< lanes that executed it
};

/// What kernels asked of one buffer.
struct BufferProfile {
  std::string name;
  uint64_t loadBytes = 0;
  uint64_t storeBytes = 0;
  uint64_t sectors = 0; ///< 32 bytes each, summed over accesses
  /// Sectors that were touched at all: what a cache that forgets nothing moves.
  uint64_t uniqueLoadBytes = 0;
  uint64_t uniqueStoreBytes = 0;
};

struct Profile {
  std::vector<InstProfile> instructions; ///< in the order of the text
  std::vector<BufferProfile> buffers;    ///< those that were touched

  /// Adds another launch of the same kernel; buffers are matched by name.
  Profile &operator+=(const Profile &other);
};

} // namespace llmopt::sim

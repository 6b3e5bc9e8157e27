// A module in the form that is executed: instructions with their handler and
// the places of their operands in the register file of a warp.
//
// The register file holds one *row* per register: 32 cells, one a lane, of 4
// bytes (values up to 32 bits; the upper bits of shorter values mean nothing)
// or 8. Predicates are masks, one bit a lane. Constants, special registers and
// addresses of variables are rows too, filled when a warp starts, so that a
// handler knows only rows.
#pragma once

#include "runtime/device/sim/Simulator.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace llmopt::sim {

using LaneMask = uint32_t;
inline constexpr uint32_t kLanes = 32;
inline constexpr LaneMask kAllLanes = ~LaneMask{0};

struct Warp;
struct Inst;
/// Executes an instruction for the lanes of the mask, which is never empty.
using Handler = void (*)(Warp &, const Inst &, LaneMask);

/// How the warp goes on after an instruction.
enum class Flow : uint8_t {
  Next,
  Branch,   ///< to Inst::target
  Table,    ///< to Kernel::targets[Inst::target + value of row a]
  Exit,     ///< the lanes end
  Converge, ///< first waits for the lanes that Inst::need names
  Barrier,  ///< of the block; `run` then only records the lanes' contribution
  Wait,     ///< `run` leaves lanes that must wait in Warp::blocked, or says Warp::yielded
  Group,    ///< `run` once all warps of the warpgroup are there, for all of them
};

/// Which lanes a converging instruction waits for.
enum class Need : uint8_t {
  None,
  Members, ///< those of the member mask in row c that have not exited
  Alive,   ///< all that have not exited
  All,     ///< all 32: a fault if one has exited
};

/// Instructions whose result may not depend on one of their inputs.
enum class Masking : uint8_t {
  None,
  Select, ///< selp: a or b, by predicate c
  And,    ///< of predicates: false if one is
  Or,     ///< true if one is
};

inline constexpr uint32_t kNoGuard = ~uint32_t{0};

struct Inst {
  Handler run = nullptr;
  int64_t imm = 0;
  /// Rows (byte offsets in the register file) or predicate numbers.
  uint32_t d = 0, d2 = 0, a = 0, b = 0, c = 0;
  uint32_t guard = kNoGuard;
  uint32_t list = 0;   ///< first of further rows in Kernel::lists
  uint32_t target = 0; ///< an instruction, or the first entry of a branch table
  Flow flow = Flow::Next;
  Need need = Need::None;
  InstClass cls = InstClass::Integer;
  bool guardNegated = false;
  bool tracked = false; ///< see Kernel::tracked and Kernel::wgmmaRegisters
  Masking masking = Masking::None;
  uint8_t outputs = 0; ///< of `list`, which has outputs first
  uint8_t inputs = 0;
  uint8_t bytes = 0; ///< of one element in memory
  uint8_t mode = 0;  ///< for the handler
};

/// Width classes of registers.
enum class RegClass : uint8_t { Predicate, Narrow, Wide };

/// What a row (or predicate) holds when a warp starts.
struct Constant {
  /// DynamicShared becomes Literal at the end of decoding.
  enum class Kind : uint8_t { Literal, Variable, Special, DynamicShared };
  Kind kind = Kind::Literal;
  RegClass cls = RegClass::Narrow;
  uint32_t row = 0;
  uint64_t value = 0; ///< the literal; the variable's number; the Special
  int64_t offset = 0; ///< added to the variable's address
};

enum class Special : uint8_t {
  TidX,
  TidY,
  TidZ,
  NtidX,
  NtidY,
  NtidZ,
  CtaidX,
  CtaidY,
  CtaidZ,
  NctaidX,
  NctaidY,
  NctaidZ,
  LaneId,
  WarpId,
  NwarpId,
  LanemaskEq,
  LanemaskLe,
  LanemaskLt,
  LanemaskGe,
  LanemaskGt,
  DynamicSmemSize,
  TotalSmemSize,
  Zero, ///< smid, gridid
  One,  ///< nsmid
  ClusterIdX,
  ClusterIdY,
  ClusterIdZ,
  NclusterIdX,
  NclusterIdY,
  NclusterIdZ,
  ClusterCtaidX,
  ClusterCtaidY,
  ClusterCtaidZ,
  ClusterNctaidX,
  ClusterNctaidY,
  ClusterNctaidZ,
  ClusterCtarank,
  ClusterNctarank,
  IsExplicitCluster,
};

/// Where an instruction stands in the PTX and, by the line table, in the source.
struct Place {
  std::string_view text;
  uint32_t line = 0;
  uint32_t sourceFile = 0; ///< .file number; 0: unknown
  uint32_t sourceLine = 0;
};

/// An instruction's use of a register that may have no value.
struct TrackedUse {
  enum class Role : uint8_t {
    Guard,
    Needed,      ///< must have a value
    First,       ///< operand a: without it the results have no value, but for Inst::masking
    Second,      ///< operand b
    Passed,      ///< others: the same
    Accumulator, ///< the same, where predicate c of the instruction is true
    Result,
  };
  uint32_t reg = 0; ///< of Kernel::tracked
  Role role = Role::Needed;
};

/// A .shared variable. A dynamic one (`extern .shared`) has what the launch gives.
struct SharedArray {
  std::string name;
  uint32_t begin = 0;
  uint32_t bytes = 0;
  bool dynamic = false;
};

/// An instruction's use of a register that is an operand of some wgmma, and so may be
/// under way; of moves between such registers too.
struct WgmmaUse {
  enum class Role : uint8_t {
    Read,
    Written,
    MovedFrom, ///< to the next use, which is MovedTo: what is under way goes with it
    MovedTo,
    Accumulator, ///< of a wgmma
    Fragment,    ///< A of a wgmma
  };
  uint32_t reg = 0; ///< of Kernel::wgmmaRegisters
  Role role = Role::Read;
};

struct Kernel {
  KernelInfo info;
  std::vector<Inst> code;
  std::vector<Place> places; ///< of code
  std::vector<uint32_t> lists;
  std::vector<uint32_t> targets;
  std::vector<Constant> constants;
  /// Names of the registers that may be read before they have a value, and
  /// their uses by instruction.
  std::vector<std::string> tracked;
  std::vector<std::vector<TrackedUse>> trackedUses;
  /// Names of the registers that wgmmas work on, and their uses by instruction.
  std::vector<std::string> wgmmaRegisters;
  std::vector<std::vector<WgmmaUse>> wgmmaUses;
  uint32_t registerBytes = 0;
  uint32_t predicates = 0;
  std::vector<SharedArray> sharedArrays; ///< by address, dynamic ones behind those with a size
  uint32_t dynamicSharedOffset = 0;
  bool dynamicShared = false;
  /// Its blocks communicate through global memory, so that they run in order.
  bool ordered = false;
  /// It has instructions that work on their own: mbarriers, bulk copies, wgmma.
  bool async = false;
};

/// A .global or .const variable of the module.
struct GlobalVariable {
  std::string name;
  uint64_t bytes = 0;
  uint32_t align = 1;
  bool constant = false;
  std::vector<std::byte> initial; ///< shorter than bytes: the rest is 0
  struct Relocation {
    uint64_t offset = 0; ///< of the 8 bytes that get the address
    uint32_t variable = 0;
    uint64_t addend = 0;
  };
  std::vector<Relocation> relocations;
};

/// Lines of the CUDA text that come from a line of a spec.
struct SpecRange {
  uint32_t first = 0, last = 0;
  std::string file;
  uint32_t line = 0;
};

namespace detail {
struct Program {
  uint64_t id = 0; ///< unique in the process
  std::string name;
  std::string text; ///< places and names point into it
  std::string target;
  std::vector<Kernel> kernels;
  std::vector<KernelInfo> infos;
  std::vector<GlobalVariable> variables;
  std::vector<std::pair<uint32_t, std::string>> files;
  std::vector<SpecRange> specLines;

  /// The path of a .file number; empty if there is none.
  std::string file(uint32_t number) const {
    for (const auto &[known, path] : files)
      if (known == number)
        return path;
    return {};
  }
  /// Where a line of the CUDA text comes from; null if that is not known.
  const SpecRange *specOf(uint32_t sourceLine) const {
    for (const SpecRange &range : specLines)
      if (sourceLine >= range.first && sourceLine <= range.last)
        return &range;
    return nullptr;
  }
};
} // namespace detail

/// Generic addresses of shared, local and parameter memory: windows that no
/// host pointer reaches. A shared, local or parameter address is the offset in
/// its window.
inline constexpr uint64_t kWindowBytes = uint64_t{1} << 32;
inline constexpr uint64_t kSharedWindow = 0xff01'0000'0000'0000;
inline constexpr uint64_t kLocalWindow = 0xff02'0000'0000'0000;
inline constexpr uint64_t kParamWindow = 0xff03'0000'0000'0000;

/// Shared memory of another block of the cluster: an address of the same space, with
/// 1 + the block's rank above bit 24 (0 there: of the block itself).
inline constexpr uint32_t kRankShift = 24;
inline constexpr uint32_t kOffsetMask = (1u << kRankShift) - 1;

} // namespace llmopt::sim

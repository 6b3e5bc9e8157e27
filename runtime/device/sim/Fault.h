// A mistake of a kernel that the simulator found, and where.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace llmopt::sim {

enum class FaultKind : uint8_t {
  GlobalOutOfBounds,
  WriteToReadOnly,
  UnorderedResult, ///< a result that depends on the order of blocks and warps
  SharedOutOfBounds,
  LocalOutOfBounds,
  ParamOutOfBounds,
  Misaligned,
  InvalidAddress,        ///< an address of another space than the instruction's
  DivergentSync,         ///< a .sync or barrier that some of its lanes never reach
  InvalidLane,           ///< a collective that reads or names a lane that is not there
  InvalidBarrier,        ///< a barrier number or thread count that is not allowed
  Deadlock,              ///< no warp of a block can go on
  IncompleteBarrier,     ///< threads arrived at a barrier, and the block ended
  UninitialisedShared,   ///< a load of shared memory that was never written
  UninitialisedRegister, ///< a register without a value decides or leaves the thread
  SharedRace,            ///< two threads of a block, one of which writes, without order
  GlobalRace,            ///< two blocks, one of which writes, without order
  UnfinishedCopy,        ///< touches the target of a copy that was not waited for
  UnfinishedProduct,     ///< touches registers of a wgmma that was not waited for
  MissingProxyFence,     ///< a store that the async proxy sees without fence.proxy.async
  MissingWgmmaFence,     ///< registers of a wgmma that were written since the last fence
  TransactionCount,      ///< bytes that an mbarrier expects and that never come
  UnprovenInit,          ///< a copy arrives at an mbarrier whose init no fence follows
  UnprovenRelease,       ///< shared memory freed by one warp for its warpgroup
  StepBudget,            ///< more steps than Options::stepBudget
  Trap,                  ///< trap, or a failed device assertion
  CallFailure,           ///< an indirect branch out of its table
};

/// True for what may be right on hardware and cannot be decided here: a warning,
/// unless Options::unprovenFaults.
bool isUnproven(FaultKind kind);

/// "global-out-of-bounds", ...: stable, for JSON.
std::string_view toString(FaultKind kind);

struct Fault {
  FaultKind kind = FaultKind::Trap;
  std::string kernel;
  std::string module;      ///< the name given to loadPtx
  uint32_t line = 0;       ///< of the PTX text, from 1
  std::string instruction; ///< its text
  std::string sourceFile;  ///< from the line table, if the PTX has one
  uint32_t sourceLine = 0;
  std::string specFile; ///< of kernels made from a spec: see Simulator.h
  uint32_t specLine = 0;
  std::array<uint32_t, 3> block = {0, 0, 0};
  uint32_t warp = 0;
  std::optional<uint32_t> lane;
  std::optional<uint64_t> address;
  std::string buffer; ///< the nearest one, with the distance
  /// What was found and what is allowed.
  std::string detail;

  /// All of it in one sentence.
  std::string message() const;
};

} // namespace llmopt::sim

// What became of each byte of a block's shared memory: whether it was written,
// by whom and when, who has read it since, and whether an asynchronous copy is
// still under way to it. An access that no clock orders after a conflicting one
// is a race, whatever the order in which the simulator happens to run them.
// Bulk copies and wgmma are agents of their own (exec/Clocks.h): what they touch is
// theirs until somebody has waited for them.
#pragma once

#include "runtime/device/sim/exec/Access.h"
#include "runtime/device/sim/exec/Clocks.h"

#include <unordered_map>
#include <vector>

namespace llmopt::sim {

class SharedChecks {
public:
  /// For `bytes` of shared memory of a block of `warps` in a cluster of `blocks`.
  /// `async`: the kernel has agents.
  SharedChecks(uint32_t bytes, Clocks *clocks, uint32_t blocks, uint32_t warps, bool async);

  /// Begins a block anew.
  void start();

  /// An access by the lanes of one instruction, after the data has moved; a
  /// fault of the warp if it conflicts with an earlier one.
  void access(Warp &warp, const LaneAddresses &addresses, uint32_t bytes, AccessKind kind);
  /// Eight rows that all lanes of the warp read or write together.
  void accessRows(Warp &warp, const LaneAddresses &rows, AccessKind kind);
  /// The thread that issued the copy has waited for it.
  void arrive(Warp &warp, const AsyncCopy &copy);
  /// The same, at an earlier time of that warp.
  void arrive(const AsyncCopy &copy, uint32_t time);

  // What agents do for lanes of a warp. False after a fault of the warp.

  /// How a copy, or another asynchronous store, writes.
  struct BulkWrite {
    uint32_t agent, time; ///< of the mbarrier that tells the end
    bool reduces;         ///< may meet others that do
    bool generic;         ///< goes through the generic proxy
  };
  /// One begins.
  bool bulkWrite(Warp &warp, uint32_t lane, uint32_t address, uint32_t bytes,
                 const BulkWrite &write);
  /// The bytes of such a copy are there.
  void delivered(uint32_t address, uint32_t bytes);
  /// Copies of the agent that are under way end at that time.
  void postpone(uint32_t agent, uint32_t time);
  /// An agent that reads (Clocks::productsOf, Clocks::bulkReadsOf) does so.
  bool agentRead(Warp &warp, LaneMask lanes, uint32_t address, uint32_t bytes, uint32_t agent,
                 uint32_t time);

private:
  // Record::state.
  static constexpr uint8_t kWritten = 1;
  static constexpr uint8_t kStrong = 2; ///< by an atomic or a volatile store; an asynchronous one
  static constexpr uint8_t kFlight = 4; ///< an asynchronous copy is under way
  static constexpr uint8_t kAsync = 8;  ///< written by an asynchronous copy
  static constexpr uint8_t kBulk = 16;  ///< by a bulk copy; Record::writer is its agent

  static constexpr uint8_t kAll = 32; ///< Record::lane
  static constexpr uint32_t kLine = 16, kLineShift = 4;

  static LaneMask lanesOf(uint8_t lane) { return lane == kAll ? kAllLanes : 1u << lane; }

  /// Of a reader's reads: the last time, the lanes that read then, and where.
  struct Read {
    uint32_t time;
    LaneMask lanes;
    uint32_t pc;
  };
  /// Of 1 to 16 neighbouring bytes; the reads of each reader follow it.
  struct Record {
    uint32_t time; ///< of the last write
    uint32_t pc;
    uint16_t writer; ///< a warp or agent
    uint8_t lane;    ///< that wrote; kAll: all of the warp
    uint8_t state : 5;
    uint8_t shift : 3; ///< of a line: log2 of the bytes of its records
    uint32_t first;    ///< of a line with shift < 4: its first record
  };
  struct Toucher;

  Record &record(uint32_t index) { return *reinterpret_cast<Record *>(&words[index * stride]); }
  Read *reads(Record &record) { return reinterpret_cast<Read *>(&record + 1); }
  void split(uint32_t line, uint8_t shift);
  /// Calls body(record) for the records of [address, address + bytes) until it
  /// returns false; the result of the last call.
  template <typename F> bool forEachRecord(uint32_t address, uint32_t bytes, F &&body);

  void loads(Warp &warp, const LaneAddresses &addresses, uint32_t bytes);
  /// By lanes that ask for the same bytes.
  bool load(Toucher &by, LaneMask lanes, uint32_t address, uint32_t bytes);
  void wasRead(const Toucher &by, Record &record);
  bool mayRead(const Toucher &by, Record &record, uint32_t address, uint32_t bytes);
  bool mayWrite(const Toucher &by, Record &record, uint32_t address, uint32_t bytes);
  void wasWritten(const Toucher &by, uint32_t address, uint32_t bytes);
  bool reportUnwritten(const Toucher &by, uint32_t address, uint32_t bytes);
  bool reportBulk(const Toucher &by, const Record &record, uint32_t address, uint32_t bytes);
  bool reportFlight(const Toucher &by, const Record &record, uint32_t address, uint32_t bytes);
  bool reportRace(const Toucher &by, uint32_t address, uint32_t bytes, std::string_view what,
                  uint32_t warp, LaneMask lanes, uint32_t pc, std::string_view hint);
  void synchronise(Warp &warp, const LaneAddresses &addresses, AccessKind kind);

  bool reportWriter(const Toucher &by, const Record &record, uint32_t address, uint32_t bytes);
  bool reportReader(const Toucher &by, uint32_t reader, const Read &read, uint32_t address,
                    uint32_t bytes);
  bool ordered(const Toucher &by, const Record &record) const;
  std::string nameOf(uint32_t warp) const;
  /// "bulk copy", "st.async"
  static std::string_view nameOfCopy(const Warp &warp, uint32_t pc);

  Clocks *clocks;
  uint32_t warps;   ///< of the block
  uint32_t all;     ///< of the cluster
  uint32_t readers; ///< warps of the cluster, and their agents
  uint32_t lines;
  uint32_t stride; ///< of records, in words
  std::vector<uint32_t> words;
  uint32_t used = 0; ///< records
  /// What atomics and volatile accesses to an address hand over.
  std::unordered_map<uint32_t, VectorClock> handovers;
};

} // namespace llmopt::sim

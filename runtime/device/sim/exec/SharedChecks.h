// What became of each byte of a block's shared memory: whether it was written,
// by whom and when, who has read it since, and whether an asynchronous copy is
// still under way to it. An access that no clock orders after a conflicting one
// is a race, whatever the order in which the simulator happens to run them.
#pragma once

#include "runtime/device/sim/exec/Access.h"
#include "runtime/device/sim/exec/Clocks.h"

#include <unordered_map>
#include <vector>

namespace llmopt::sim {

class SharedChecks {
public:
  /// For `bytes` of shared memory and blocks of `warps`.
  SharedChecks(uint32_t bytes, uint32_t warps);

  /// Begins a block anew.
  void start();

  Clocks clocks;

  /// An access by the lanes of one instruction, after the data has moved; a
  /// fault of the warp if it conflicts with an earlier one.
  void access(Warp &warp, const LaneAddresses &addresses, uint32_t bytes, AccessKind kind);
  /// Eight rows that all lanes of the warp read or write together.
  void accessRows(Warp &warp, const LaneAddresses &rows, AccessKind kind);
  /// The thread that issued the copy has waited for it.
  void arrive(Warp &warp, const AsyncCopy &copy);

private:
  /// Of a warp's reads: the last time, the lanes that read then, and where.
  struct Read {
    uint32_t time;
    LaneMask lanes;
    uint32_t pc;
  };
  /// Of 1 to 16 neighbouring bytes; the reads of each warp follow it.
  struct Record {
    uint32_t time; ///< of the last write
    uint32_t pc;
    uint8_t warp;
    uint8_t lane;   ///< that wrote; kAll: all of the warp
    uint8_t state;  ///< see SharedChecks.cpp
    uint8_t shift;  ///< of a line: log2 of the bytes of its records
    uint32_t first; ///< of a line with shift < 4: its first record
  };
  struct Toucher;

  Record &record(uint32_t index) { return *reinterpret_cast<Record *>(&words[index * stride]); }
  Read *reads(Record &record) { return reinterpret_cast<Read *>(&record + 1); }
  void split(uint32_t line, uint8_t shift);
  /// Calls body(record) for the records of [address, address + bytes) until it
  /// returns false; the result of the last call.
  template <typename F> bool forEachRecord(uint32_t address, uint32_t bytes, F &&body);

  bool mayRead(const Toucher &by, Record &record, uint32_t address, uint32_t bytes);
  bool mayWrite(const Toucher &by, Record &record, uint32_t address, uint32_t bytes);
  void wasWritten(const Toucher &by, uint32_t address, uint32_t bytes);
  bool reportUnwritten(const Toucher &by, uint32_t address, uint32_t bytes);
  bool reportFlight(const Toucher &by, const Record &record, uint32_t address, uint32_t bytes);
  bool reportRace(const Toucher &by, uint32_t address, uint32_t bytes, std::string_view what,
                  uint32_t warp, LaneMask lanes, uint32_t pc, std::string_view hint);
  void synchronise(Warp &warp, const LaneAddresses &addresses, AccessKind kind);

  uint32_t warps;
  uint32_t lines;
  uint32_t stride; ///< of records, in words
  std::vector<uint32_t> words;
  uint32_t used = 0; ///< records
  /// What atomics and volatile accesses to an address hand over.
  std::unordered_map<uint32_t, VectorClock> handovers;
};

} // namespace llmopt::sim

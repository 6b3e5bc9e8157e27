// The arrays of a plan in device memory, each at a place that does not change while the
// arena lives: parameter blocks and captured graphs point there. A new plan that fits may be
// written over the old one.
#pragma once

#include "runtime/base/AlignedBuffer.h"
#include "runtime/device/Device.h"
#include "runtime/device/ParamBlock.h"
#include "runtime/plan/Plan.h"

#include <span>
#include <vector>

namespace llmopt::runtime {

/// Entries of a plan's arrays: what a plan has, or what an arena has room for.
struct PlanCounts {
  uint32_t workers = 1;
  uint64_t items = 0; ///< of each Attend kernel
  uint64_t rows = 0, sequences = 0, merges = 0, partialRows = 0;

  static PlanCounts of(const Plan &plan);
  /// The most that any batch within the extents of the bound arrays needs.
  static PlanCounts bound(const bundle::Program &program, const PlanOptions &options,
                          uint64_t sequences, const PlanCapacities &capacities);
  /// Why `plan` does not fit, in words; empty when it does.
  std::string lacks(const PlanCounts &plan) const;
};

class PlanArena {
public:
  PlanArena() = default;
  static StatusOr<PlanArena> create(Device &device, const bundle::Program &program,
                                    const PlanCounts &room);

  /// Takes over the arrays of a plan that fits. `shared` are the offsets of Append and
  /// Combine kernels, workers + 1 or none.
  void write(const Plan &plan, std::span<const uint64_t> scalars, std::span<const uint32_t> shared);
  /// Copies what was written to the device, where it is not there already. The arena must
  /// stay until the stream was synchronised.
  Status upload(Stream &stream);

  /// Where the arrays that a kernel reads lie.
  PlanBuffers buffers(const bundle::Program &program, uint32_t kernel) const;
  /// Two numbers for each worker, for each Attend kernel; empty where the program counts
  /// nothing.
  std::span<uint8_t> counters() const { return {memory.data() + countersAt, countersBytes}; }
  const PlanCounts &room() const { return counts; }

private:
  /// A part of the arena.
  struct Part {
    size_t at = 0, bytes = 0;
    uint64_t entries = 0, width = 1;
    size_t written = 0; ///< bytes that the last plan has of it
  };
  struct Attend {
    uint32_t kernel;
    Part offsets, items;
  };

  Part reserve(uint64_t entries, size_t entryBytes, uint64_t width = 1);
  template <typename T> void put(Part &part, std::span<const T> entries);
  PlanBuffers::Entry entryOf(const Part &part) const;
  std::vector<const Part *> writtenParts() const;

  PlanCounts counts;
  std::vector<Attend> attends;
  Part rows, sequences, scalars, shared, mergeOffsets, merges, partialOut, partialLse;
  size_t countersAt = 0, countersBytes = 0, end = 0;
  DeviceMemory memory;
  AlignedBuffer staging;   ///< of parts that a plan writes; empty on a device with host memory
  uint8_t *host = nullptr; ///< where they are written
  bool uploaded = true;
};

} // namespace llmopt::runtime

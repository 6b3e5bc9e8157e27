// The arrays of a plan in device memory, each at a place that does not change while the
// arena lives: parameter blocks and captured graphs point there. A new plan that fits may be
// written over the old one.
//
// Plans are written in host memory, into one of several places in turn (D + 1 for D steps in
// flight), and copied to the device in the order of the stream. A place is used again when the
// copy from it has ended, which an event tells. Where device memory is the host's, there is one
// place, the device's own: earlier work must have ended.
#pragma once

#include "runtime/base/AlignedBuffer.h"
#include "runtime/device/Device.h"
#include "runtime/device/ParamBlock.h"
#include "runtime/plan/Planner.h"

#include <memory>
#include <span>
#include <vector>

namespace llmopt::runtime {

class PlanArena {
public:
  PlanArena() = default;
  /// `places`: of host memory, 1 or more.
  static StatusOr<PlanArena> create(Device &device, const bundle::Program &program,
                                    const PlanCounts &room, uint32_t places = 1);

  /// The next place's arrays, to be filled. Waits for the copy from it, if one is under way.
  StatusOr<Plan *> next();
  /// What was filled in, and is to be uploaded. `shared` are the offsets of Append and Combine
  /// kernels, workers + 1 or none.
  void commit(PlanChange change, std::span<const uint64_t> scalars,
              std::span<const uint32_t> shared);
  /// The same for a plan made elsewhere, that fits.
  Status write(const Plan &plan, std::span<const uint64_t> scalars,
               std::span<const uint32_t> shared);
  /// Copies what was written to the device, where it is not there already. The arena must
  /// stay until the stream was synchronised.
  Status upload(Stream &stream);
  /// The device has, or will have in the order of the stream, the items of the last plan.
  bool itemsAreUp() const { return itemsUp; }

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
    size_t written = 0; ///< bytes of it that are to be uploaded
  };
  struct Attend {
    uint32_t kernel;
    Part offsets, items;
  };
  struct Place {
    AlignedBuffer staging;   ///< empty on a device with host memory
    uint8_t *host = nullptr; ///< where parts are written
    Plan plan;
    std::unique_ptr<Event> copied;
  };

  Part reserve(uint64_t entries, size_t entryBytes, uint64_t width = 1);
  template <typename T> void put(Part &part, std::span<const T> entries);
  void layOut(const bundle::Program &program);
  Plan planAt(uint8_t *host) const;
  std::vector<Part *> parts(); ///< that a plan writes, in their order
  PlanBuffers::Entry entryOf(const Part &part) const;

  PlanCounts counts;
  std::vector<Attend> attends;
  Part rows, sequences, scalars, shared, mergeOffsets, merges, partialOut, partialLse;
  size_t countersAt = 0, countersBytes = 0, stagedBytes = 0, end = 0;
  DeviceMemory memory;
  std::vector<Place> places;
  size_t at = 0; ///< the place in use
  bool uploaded = true, itemsUp = false;
};

} // namespace llmopt::runtime

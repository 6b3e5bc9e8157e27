// One call of a program with given arrays: checked, planned, ready to run any number of
// times on its device.
//
//   StatusOr<BoundCall> call = BoundCall::bind(program, arguments);
//   Status status = call->run(*stream);
//
// The lengths of the batch are read when arguments are bound; the contents of the other
// arrays when the call runs. For a captured graph, bind with `replayable`: then `replan`
// reads new lengths, and a replay of the graph runs the new batch.
#pragma once

#include "runtime/device/Arguments.h"
#include "runtime/device/Device.h"
#include "runtime/device/PlanArena.h"
#include "runtime/plan/Plan.h"

#include <array>
#include <memory>
#include <span>
#include <vector>

namespace llmopt::runtime {

struct BindOptions {
  /// Workers of 0 stand for as many as the device runs at a time; threads of 0
  /// for as many as workers. With cascade levels, pages with which the block tables of all
  /// sequences begin are read once for several rows, where the plan finds that cheaper; the
  /// tables must then stay as they are from `bind` or `replan` to the run.
  PlanOptions plan = {.workers = 0};
  /// Read the whole page table and refuse ids outside the pool.
  bool validatePages = false;
  /// Make room for every batch that the extents of the arrays allow.
  bool replayable = false;
};

class BoundCall {
public:
  /// The arrays' memory must stay valid as long as the call is used. On a device whose
  /// memory is not the host's, arrays that the planner reads (lengths, offsets) need
  /// ArrayRef::host; page ids and slots are checked where they have it.
  static StatusOr<BoundCall> bind(std::shared_ptr<DeviceProgram> program,
                                  const CallArguments &arguments, const BindOptions &options = {});

  BoundCall(BoundCall &&) = default;
  BoundCall &operator=(BoundCall &&) = default;

  /// Appends, attends, merges. Not to be called by two threads at a time.
  Status run(Stream &stream);

  /// Brings the plan to the device; `run` does so where it was not done. Needed before a
  /// capture, and after `replan` before a replay.
  Status prepare(Stream &stream) { return state->arena.upload(stream); }

  /// Reads lengths and numbers anew from arrays that are otherwise those of `bind`: same
  /// memory, shapes and strides. Work with the old plan must have finished. After a failure
  /// the old plan stays. Only for a call that is `replayable`.
  Status replan(const CallArguments &arguments);

  const Plan &plan() const { return state->plan; }
  /// Tiles visited and tiles predicated by the last run: for each Attend kernel (as
  /// `plan().attends`), for each worker. Empty where the program counts nothing.
  /// Synchronises the stream.
  StatusOr<std::vector<uint64_t>> counters(Stream &stream) const;

private:
  struct State {
    std::shared_ptr<DeviceProgram> program;
    BindOptions options;
    BoundArrays arrays;
    Plan plan;
    PlanArena arena;
    std::vector<AlignedBuffer> blocks; ///< one for each kernel
    /// Launches in their order: kernels of one kind do not depend on each other.
    std::array<std::vector<KernelCall>, 4> launches;
  };
  /// What a batch gives, before it is taken over.
  struct Planned {
    BoundArrays arrays;
    ScalarTable scalars;
    Plan plan;
    std::vector<uint32_t> shared;
  };

  explicit BoundCall(std::unique_ptr<State> state) : state(std::move(state)) {}

  static StatusOr<Planned> planOf(const DeviceProgram &program, const CallArguments &arguments,
                                  const BindOptions &options);
  static StatusOr<BoundCall> bindUnguarded(std::shared_ptr<DeviceProgram> program,
                                           const CallArguments &arguments,
                                           const BindOptions &options);
  static void buildBlocks(State &state);
  Status replanUnguarded(const CallArguments &arguments);

  std::unique_ptr<State> state;
};

} // namespace llmopt::runtime

// One call of a program with given arrays: checked, planned, ready to run any
// number of times. The lengths of the batch are read when arguments are bound;
// the contents of the other arrays when the call runs.
#pragma once

#include "runtime/device/Arguments.h"
#include "runtime/device/ParamBlock.h"
#include "runtime/device/cpu/CpuProgram.h"
#include "runtime/device/cpu/ThreadPool.h"
#include "runtime/plan/Plan.h"

#include <memory>
#include <span>
#include <vector>

namespace llmopt::runtime {

struct BindOptions {
  /// workers and threads of 0 stand for the default pool's size, so that a plan
  /// fits the pool that it will most likely run on. Any pool can run it.
  PlanOptions plan = {.workers = 0};
  /// Read the whole page table and refuse ids outside the pool.
  bool validatePages = false;
};

class BoundCall {
public:
  /// The arrays' memory must stay valid as long as the call is used.
  static StatusOr<BoundCall> bind(const CpuProgram &program, const CallArguments &arguments,
                                  const BindOptions &options = {});

  BoundCall(BoundCall &&) = default;
  BoundCall &operator=(BoundCall &&) = default;

  /// Appends, attends, merges. Not to be called by two threads at a time.
  Status run(ThreadPool &pool);

  const Plan &plan() const { return state->plan; }
  /// Tiles visited and tiles predicated by the last run: for each Attend kernel (as
  /// `plan().attends`), for each worker. Empty where the program counts nothing.
  std::span<const uint64_t> counters() const { return state->counters; }

private:
  /// On the heap, because parameter blocks point into it.
  struct State {
    explicit State(CpuProgram program) : program(std::move(program)) {}

    CpuProgram program;
    BoundArrays arrays;
    ScalarTable scalars;
    Plan plan;
    std::vector<uint32_t> sharedOffsets; ///< of Append and Combine kernels
    AlignedBuffer partialOut, partialLse;
    std::vector<uint64_t> counters;
    std::vector<AlignedBuffer> blocks; ///< one for each kernel
    AlignedBuffer scratch;
    uint64_t scratchBytes = 0; ///< of one thread
  };

  explicit BoundCall(std::unique_ptr<State> state) : state(std::move(state)) {}

  static StatusOr<BoundCall> bindUnguarded(const CpuProgram &program,
                                           const CallArguments &arguments,
                                           const BindOptions &options);
  static Status plan(State &state, const BindOptions &options);
  static Status planAttention(State &state, const PlanOptions &plan, const BindOptions &options);
  static Status planAppend(State &state);
  static Status planCombine(State &state);
  static void buildBlocks(State &state);
  Status runKernels(ThreadPool &pool, bundle::KernelKind kind);

  std::unique_ptr<State> state;
};

} // namespace llmopt::runtime

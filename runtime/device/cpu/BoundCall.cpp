#include "runtime/device/cpu/BoundCall.h"

#include "runtime/device/Batch.h"
#include "runtime/device/Dimensions.h"
#include "runtime/plan/Planner.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <new>

namespace llmopt::runtime {

using bundle::BufferRole;
using bundle::Kernel;
using bundle::KernelKind;
using bundle::Program;

namespace {

bool hasKernel(const Program &program, KernelKind kind) {
  return std::any_of(program.kernels.begin(), program.kernels.end(),
                     [&](const Kernel &k) { return k.kind == kind; });
}

bool hasBuffer(const Program &program, BufferRole role) {
  return std::any_of(program.buffers.begin(), program.buffers.end(),
                     [&](const bundle::Buffer &b) { return b.role == role; });
}

/// Worker counts of 0 stand for the default pool.
PlanOptions planOptionsOf(const BindOptions &options) {
  PlanOptions plan = options.plan;
  if (plan.threads == 0)
    plan.threads = plan.workers ? plan.workers : ThreadPool::defaultThreads();
  if (plan.workers == 0)
    plan.workers = plan.threads;
  return plan;
}

/// Offsets that deal `count` things to `workers` in equal shares.
std::vector<uint32_t> equalShares(uint64_t count, uint64_t workers) {
  std::vector<uint32_t> offsets;
  for (uint64_t w = 0; w <= workers; ++w)
    offsets.push_back(static_cast<uint32_t>(count * w / workers));
  return offsets;
}

} // namespace

Status BoundCall::planAttention(State &state, const PlanOptions &plan, const BindOptions &options) {
  const Program &program = state.program.program();
  StatusOr<BatchShape> batch = buildBatch(program, state.arrays);
  if (!batch)
    return batch.status();
  if (options.validatePages)
    LLMOPT_RETURN_IF_ERROR(checkPages(program, state.arrays, *batch, state.scalars.values));
  StatusOr<Plan> made = makePlan(program, *batch, state.scalars.values, plan);
  if (!made)
    return made.status();
  state.plan = *std::move(made);
  if (state.plan.partialRows > 0 && !hasKernel(program, KernelKind::Merge))
    return makeStatus(StatusCode::Internal,
                      "program '{}' has no merge kernel and its plan has splits; ask for "
                      "no splits",
                      program.name);
  state.partialOut = AlignedBuffer(state.plan.partialRows * program.facts.dV * sizeof(float));
  state.partialLse = AlignedBuffer(state.plan.partialRows * sizeof(float));
  return {};
}

/// Tokens to append, in equal shares.
Status BoundCall::planAppend(State &state) {
  const Program &program = state.program.program();
  LLMOPT_RETURN_IF_ERROR(checkSlotMapping(program, state.arrays));
  int64_t tokens = extentOf(program, state.arrays, Dimension::Appended).value_or(0);
  if (tokens > std::numeric_limits<uint32_t>::max())
    return makeStatus(StatusCode::ResourceExhausted,
                      "{} tokens are to be appended; at most {} are allowed", tokens,
                      std::numeric_limits<uint32_t>::max());
  state.sharedOffsets = equalShares(tokens, state.plan.workers);
  return {};
}

/// Equal shares of the (token, head) pairs of an attn.merge.
Status BoundCall::planCombine(State &state) {
  const Program &program = state.program.program();
  int64_t tokens = extentOf(program, state.arrays, Dimension::QueryToken).value_or(0);
  int64_t heads = extentOf(program, state.arrays, Dimension::QueryHead).value_or(0);
  if (tokens * heads > std::numeric_limits<uint32_t>::max())
    return makeStatus(StatusCode::ResourceExhausted,
                      "{} tokens of {} heads are to be merged; at most {} pairs are allowed",
                      tokens, heads, std::numeric_limits<uint32_t>::max());
  state.sharedOffsets = equalShares(tokens * heads, state.plan.workers);
  return {};
}

Status BoundCall::plan(State &state, const BindOptions &options) {
  const Program &program = state.program.program();
  PlanOptions plan = planOptionsOf(options);
  if (hasKernel(program, KernelKind::Attend)) {
    LLMOPT_RETURN_IF_ERROR(planAttention(state, plan, options));
  } else {
    state.plan.workers = plan.workers;
  }
  if (hasKernel(program, KernelKind::Combine))
    LLMOPT_RETURN_IF_ERROR(planCombine(state));
  if (hasKernel(program, KernelKind::Append))
    LLMOPT_RETURN_IF_ERROR(planAppend(state));
  if (hasBuffer(program, BufferRole::Counters))
    state.counters.resize(size_t{2} * state.plan.workers *
                          std::max<size_t>(1, state.plan.attends.size()));
  return {};
}

/// One parameter block for each kernel: they differ in the items.
void BoundCall::buildBlocks(State &state) {
  const Program &program = state.program.program();
  const Plan &plan = state.plan;
  PlanBuffers buffers;
  buffers.set<bundle::RowEntry>(BufferRole::Rows, plan.rows);
  buffers.set<bundle::SequenceRecord>(BufferRole::Sequences, plan.sequences);
  buffers.set<uint64_t>(BufferRole::Scalars, state.scalars.slots);
  buffers.set<uint32_t>(BufferRole::MergeOffsets, plan.mergeOffsets);
  buffers.set<bundle::MergeItem>(BufferRole::Merges, plan.merges);
  auto partialRows = static_cast<int64_t>(plan.partialRows);
  buffers[BufferRole::PartialOut] = {state.partialOut.data(), partialRows, program.facts.dV};
  buffers[BufferRole::PartialLse] = {state.partialLse.data(), partialRows, 1};
  for (size_t kernel = 0; kernel < program.kernels.size(); ++kernel) {
    PlanBuffers own = buffers;
    for (size_t i = 0; i < plan.attends.size(); ++i) {
      const AttendPlan &attend = plan.attends[i];
      if (attend.kernel != kernel)
        continue;
      own.set<uint32_t>(BufferRole::ItemOffsets, attend.itemOffsets);
      own.set<bundle::WorkItem>(BufferRole::Items, attend.items);
      if (size_t each = state.counters.size() / plan.attends.size())
        own.set<uint64_t>(BufferRole::Counters, std::span(state.counters).subspan(i * each, each));
    }
    KernelKind kind = program.kernels[kernel].kind;
    if (kind == KernelKind::Append || kind == KernelKind::Combine)
      own.set<uint32_t>(BufferRole::ItemOffsets, state.sharedOffsets);
    state.blocks.push_back(makeParamBlock(program, state.arrays, own));
    uint64_t scratch = program.kernels[kernel].scratchBytes;
    constexpr uint64_t kLine = AlignedBuffer::kAlignment;
    state.scratchBytes = std::max(state.scratchBytes, (scratch + kLine - 1) / kLine * kLine);
  }
}

StatusOr<BoundCall> BoundCall::bindUnguarded(const CpuProgram &program,
                                             const CallArguments &arguments,
                                             const BindOptions &options) {
  auto state = std::make_unique<State>(program);
  StatusOr<BoundArrays> arrays = matchArrays(program.program(), arguments);
  if (!arrays)
    return arrays.status();
  state->arrays = *std::move(arrays);
  StatusOr<ScalarTable> scalars = resolveScalars(program.program(), arguments, state->arrays);
  if (!scalars)
    return scalars.status();
  state->scalars = *std::move(scalars);
  LLMOPT_RETURN_IF_ERROR(plan(*state, options));
  buildBlocks(*state);
  return BoundCall(std::move(state));
}

StatusOr<BoundCall> BoundCall::bind(const CpuProgram &program, const CallArguments &arguments,
                                    const BindOptions &options) {
  try {
    return bindUnguarded(program, arguments, options);
  } catch (const std::bad_alloc &) {
    return makeStatus(StatusCode::ResourceExhausted,
                      "no memory for the plan of a call of program '{}'", program.program().name);
  }
}

/// All kernels of one kind, in one pass over the workers: the planner has
/// balanced the variants together.
Status BoundCall::runKernels(ThreadPool &pool, KernelKind kind) {
  const Program &program = state->program.program();
  std::vector<size_t> kernels;
  for (size_t i = 0; i < program.kernels.size(); ++i)
    if (program.kernels[i].kind == kind)
      kernels.push_back(i);
  if (kernels.empty())
    return {};
  // First failure: kernel and result, for the message.
  std::atomic<uint64_t> failure{0};
  pool.parallelFor(state->plan.workers, [&](uint32_t worker, uint32_t thread) {
    uint8_t *scratch = state->scratch.data();
    if (scratch)
      scratch += thread * state->scratchBytes;
    for (size_t kernel : kernels) {
      int result = state->program.entry(kernel)(state->blocks[kernel].data(), worker, scratch);
      uint64_t none = 0;
      if (result != 0)
        failure.compare_exchange_strong(none, (uint64_t{kernel} + 1) << 32 |
                                                  static_cast<uint32_t>(result));
    }
  });
  if (uint64_t failed = failure.load())
    return makeStatus(StatusCode::Internal, "kernel '{}' of program '{}' returned {}",
                      program.kernels[(failed >> 32) - 1].entry, program.name,
                      static_cast<int32_t>(failed & 0xffffffff));
  return {};
}

Status BoundCall::run(ThreadPool &pool) {
  uint64_t scratch = state->scratchBytes * pool.size();
  if (state->scratch.size() < scratch) {
    try {
      state->scratch = AlignedBuffer(scratch);
    } catch (const std::bad_alloc &) {
      return makeStatus(StatusCode::ResourceExhausted, "no memory for {} bytes of scratch",
                        scratch);
    }
  }
  std::fill(state->counters.begin(), state->counters.end(), 0);
  LLMOPT_RETURN_IF_ERROR(runKernels(pool, KernelKind::Append));
  LLMOPT_RETURN_IF_ERROR(runKernels(pool, KernelKind::Attend));
  LLMOPT_RETURN_IF_ERROR(runKernels(pool, KernelKind::Combine));
  if (state->plan.merges.empty())
    return {};
  return runKernels(pool, KernelKind::Merge);
}

} // namespace llmopt::runtime

#include "runtime/device/BoundCall.h"

#include "runtime/device/Batch.h"
#include "runtime/device/Dimensions.h"
#include "runtime/plan/Planner.h"

#include <algorithm>
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

/// Worker counts of 0 stand for what the device runs at a time.
PlanOptions planOptionsOf(const DeviceProgram &program, PlanOptions plan) {
  if (plan.threads == 0)
    plan.threads = plan.workers ? plan.workers : program.residentWorkers();
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

/// Arrays that the host reads before anything runs.
bool isPlannerRead(BufferRole role) {
  return role == BufferRole::TableIndptr || role == BufferRole::CuSeqlensQ ||
         role == BufferRole::CuSeqlensKv || role == BufferRole::KvLen ||
         role == BufferRole::PerHead;
}

/// Whether the host can look into the array of a role.
bool isReadable(const DeviceProgram &loaded, const BoundArrays &arrays, BufferRole role) {
  const ArrayRef *array = arrayOf(loaded.program(), arrays, role);
  return array && (array->host || loaded.device()->facts().hostMemory);
}

/// On a device with memory of its own, what the planner reads needs a copy on the host.
Status checkHostCopies(const Program &program, const BoundArrays &arrays) {
  for (size_t i = 0; i < program.buffers.size(); ++i)
    if (arrays[i] && !arrays[i]->host && arrays[i]->data && isPlannerRead(program.buffers[i].role))
      return invalidArgument("array '{}' lies in device memory and the planner reads it; give its "
                             "host copy as well (ArrayRef::host)",
                             program.buffers[i].name);
  return {};
}

StatusOr<Plan> planAttention(const DeviceProgram &loaded, const BoundArrays &arrays,
                             const ScalarValues &scalars, const PlanOptions &options,
                             bool validatePages) {
  const Program &program = loaded.program();
  StatusOr<BatchShape> batch = buildBatch(program, arrays);
  if (!batch)
    return batch.status();
  if (validatePages)
    LLMOPT_RETURN_IF_ERROR(checkPages(program, arrays, *batch, scalars));
  if (options.cascadeLevels > 0 && isReadable(loaded, arrays, BufferRole::BlockTable))
    findCommonPages(program, arrays, *batch);
  StatusOr<Plan> plan = makePlan(program, *batch, scalars, options);
  if (plan && plan->partialRows > 0 && !hasKernel(program, KernelKind::Merge))
    return makeStatus(StatusCode::Internal,
                      "program '{}' has no merge kernel and its plan has splits; ask for "
                      "no splits",
                      program.name);
  return plan;
}

/// Tokens to append, in equal shares.
StatusOr<std::vector<uint32_t>> planAppend(const Program &program, const BoundArrays &arrays,
                                           uint32_t workers) {
  int64_t tokens = extentOf(program, arrays, Dimension::Appended).value_or(0);
  if (tokens > std::numeric_limits<uint32_t>::max())
    return makeStatus(StatusCode::ResourceExhausted,
                      "{} tokens are to be appended; at most {} are allowed", tokens,
                      std::numeric_limits<uint32_t>::max());
  return equalShares(static_cast<uint64_t>(tokens), workers);
}

/// Equal shares of the (token, head) pairs of an attn.merge.
StatusOr<std::vector<uint32_t>> planCombine(const Program &program, const BoundArrays &arrays,
                                            uint32_t workers) {
  int64_t tokens = extentOf(program, arrays, Dimension::QueryToken).value_or(0);
  int64_t heads = extentOf(program, arrays, Dimension::QueryHead).value_or(0);
  if (tokens * heads > std::numeric_limits<uint32_t>::max())
    return makeStatus(StatusCode::ResourceExhausted,
                      "{} tokens of {} heads are to be merged; at most {} pairs are allowed",
                      tokens, heads, std::numeric_limits<uint32_t>::max());
  return equalShares(static_cast<uint64_t>(tokens * heads), workers);
}

/// The arrays' extents as a batch of the largest size.
PlanCounts roomFor(const Program &program, const BoundArrays &arrays, const PlanOptions &options) {
  auto extent = [&](Dimension dimension) {
    return static_cast<uint64_t>(extentOf(program, arrays, dimension).value_or(0));
  };
  bool ragged = program.facts.queryForm == bundle::QueryForm::Ragged;
  uint64_t sequences = extent(Dimension::Batch), tokens = extent(Dimension::QueryToken);
  if (!ragged)
    tokens = sequences * extent(Dimension::Query);
  if (sequences == 0)
    sequences = tokens; // one query for each
  uint64_t keys = std::max(extent(Dimension::Key), extent(Dimension::KeyToken));
  if (const ArrayRef *table = arrayOf(program, arrays, BufferRole::BlockTable))
    keys = static_cast<uint64_t>(table->shape.back()) * program.facts.pageSize;
  return PlanCounts::bound(
      program, options,
      {.rows = sequences, .queryTokens = tokens, .splits = mostSplits(program, options, keys)});
}

} // namespace

StatusOr<BoundCall::Planned> BoundCall::planOf(const DeviceProgram &loaded,
                                               const CallArguments &arguments,
                                               const BindOptions &options) {
  const Program &program = loaded.program();
  Planned planned;
  StatusOr<BoundArrays> arrays = matchArrays(program, arguments);
  if (!arrays)
    return arrays.status();
  planned.arrays = *std::move(arrays);
  if (!loaded.device()->facts().hostMemory)
    LLMOPT_RETURN_IF_ERROR(checkHostCopies(program, planned.arrays));
  StatusOr<ScalarTable> scalars = resolveScalars(program, arguments, planned.arrays);
  if (!scalars)
    return scalars.status();
  planned.scalars = *std::move(scalars);
  planned.plan.workers = options.plan.workers;
  if (hasKernel(program, KernelKind::Attend)) {
    StatusOr<Plan> plan = planAttention(
        loaded, planned.arrays, planned.scalars.values, options.plan,
        options.validatePages && isReadable(loaded, planned.arrays, BufferRole::BlockTable));
    if (!plan)
      return plan.status();
    planned.plan = *std::move(plan);
  }
  if (isReadable(loaded, planned.arrays, BufferRole::SlotMapping))
    LLMOPT_RETURN_IF_ERROR(checkSlotMapping(program, planned.arrays));
  for (KernelKind kind : {KernelKind::Combine, KernelKind::Append}) {
    if (!hasKernel(program, kind))
      continue;
    auto make = kind == KernelKind::Combine ? planCombine : planAppend;
    StatusOr<std::vector<uint32_t>> shares = make(program, planned.arrays, planned.plan.workers);
    if (!shares)
      return shares.status();
    planned.shared = *std::move(shares);
  }
  return planned;
}

/// One parameter block for each kernel: they differ in the items.
void BoundCall::buildBlocks(State &state) {
  const Program &program = state.program->program();
  state.blocks.reserve(program.kernels.size());
  for (uint32_t kernel = 0; kernel < program.kernels.size(); ++kernel) {
    const AlignedBuffer &block = state.blocks.emplace_back(
        makeParamBlock(program, state.arrays, state.arena.buffers(program, kernel)));
    // In the order of the launches.
    constexpr KernelKind kOrder[] = {KernelKind::Append, KernelKind::Attend, KernelKind::Combine,
                                     KernelKind::Merge};
    for (size_t i = 0; i < std::size(kOrder); ++i)
      if (program.kernels[kernel].kind == kOrder[i])
        state.launches[i].push_back({kernel, {block.data(), block.size()}});
  }
  if (state.arena.room().merges == 0)
    state.launches.back().clear();
}

StatusOr<BoundCall> BoundCall::bindUnguarded(std::shared_ptr<DeviceProgram> program,
                                             const CallArguments &arguments,
                                             const BindOptions &options) {
  auto state = std::make_unique<State>();
  state->program = std::move(program);
  state->options = options;
  state->options.plan = planOptionsOf(*state->program, options.plan);
  StatusOr<Planned> planned = planOf(*state->program, arguments, state->options);
  if (!planned)
    return planned.status();
  state->arrays = std::move(planned->arrays);
  state->plan = std::move(planned->plan);
  const Program &bundle = state->program->program();
  PlanCounts room = PlanCounts::of(state->plan);
  if (options.replayable && hasKernel(bundle, KernelKind::Attend))
    room = roomFor(bundle, state->arrays, state->options.plan);
  StatusOr<PlanArena> arena = PlanArena::create(*state->program->device(), bundle, room);
  if (!arena)
    return arena.status();
  state->arena = *std::move(arena);
  LLMOPT_RETURN_IF_ERROR(state->arena.write(state->plan, planned->scalars.slots, planned->shared));
  buildBlocks(*state);
  return BoundCall(std::move(state));
}

StatusOr<BoundCall> BoundCall::bind(std::shared_ptr<DeviceProgram> program,
                                    const CallArguments &arguments, const BindOptions &options) {
  std::string_view name = program->program().name; // stays: the caller holds the program
  try {
    return bindUnguarded(program, arguments, options);
  } catch (const std::bad_alloc &) {
    return makeStatus(StatusCode::ResourceExhausted,
                      "no memory for the plan of a call of program '{}'", name);
  }
}

Status BoundCall::replanUnguarded(const CallArguments &arguments) {
  const Program &program = state->program->program();
  StatusOr<Planned> planned = planOf(*state->program, arguments, state->options);
  if (!planned)
    return planned.status();
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const std::optional<ArrayRef> &was = state->arrays[i], &is = planned->arrays[i];
    bool same =
        was.has_value() == is.has_value() &&
        (!was || (was->data == is->data && was->shape == is->shape && was->strides == is->strides));
    if (!same)
      return invalidArgument("array '{}' has another address, shape or strides than when the call "
                             "was bound; bind a new call",
                             program.buffers[i].name);
  }
  if (std::string reason = state->arena.room().lacks(PlanCounts::of(planned->plan));
      !reason.empty())
    return invalidArgument("{}; bind a call with larger arrays", reason);
  state->plan = std::move(planned->plan);
  state->arrays = std::move(planned->arrays);
  return state->arena.write(state->plan, planned->scalars.slots, planned->shared);
}

Status BoundCall::replan(const CallArguments &arguments) {
  if (!state->options.replayable)
    return invalidArgument("the call was not bound as replayable; set BindOptions::replayable");
  try {
    return replanUnguarded(arguments);
  } catch (const std::bad_alloc &) {
    return makeStatus(StatusCode::ResourceExhausted, "no memory for the plan of a call");
  }
}

Status BoundCall::run(Stream &stream) {
  LLMOPT_RETURN_IF_ERROR(state->arena.upload(stream));
  if (std::span<uint8_t> counters = state->arena.counters(); !counters.empty())
    LLMOPT_RETURN_IF_ERROR(stream.fill(counters.data(), 0, counters.size()));
  for (const std::vector<KernelCall> &kernels : state->launches)
    if (!kernels.empty())
      LLMOPT_RETURN_IF_ERROR(stream.launch(*state->program, kernels, state->plan.workers));
  return {};
}

StatusOr<std::vector<uint64_t>> BoundCall::counters(Stream &stream) const {
  std::span<uint8_t> from = state->arena.counters();
  std::vector<uint64_t> values(from.size() / sizeof(uint64_t));
  LLMOPT_RETURN_IF_ERROR(stream.copyOut(values.data(), from.data(), from.size()));
  LLMOPT_RETURN_IF_ERROR(stream.synchronize());
  return values;
}

} // namespace llmopt::runtime

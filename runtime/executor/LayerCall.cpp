#include "runtime/executor/LayerCall.h"

#include "runtime/device/ParamBlock.h"

#include <algorithm>
#include <limits>
#include <new>

using namespace llmopt::runtime;

namespace bundle = llmopt::bundle;

using llmopt::bundle::KernelKind;
using llmopt::bundle::Program;

namespace {

/// One plan serves all layers: values for each head may differ between them.
void widen(ScalarTable &all, ScalarTable one) {
  std::vector<int64_t> least = all.values.perHeadMin, most = all.values.perHeadMax;
  all = std::move(one);
  for (size_t i = 0; i < least.size(); ++i) {
    all.values.perHeadMin[i] = std::min(all.values.perHeadMin[i], least[i]);
    all.values.perHeadMax[i] = std::max(all.values.perHeadMax[i], most[i]);
  }
}

StatusOr<LayerCall> noMemory(const Program &program) {
  return makeStatus(StatusCode::ResourceExhausted, "no memory for the calls of kernel '{}'",
                    program.name);
}

} // namespace

StatusOr<LayerCall> LayerCall::bind(std::shared_ptr<DeviceProgram> loaded,
                                    std::span<const CallArguments> layers, const Room &room,
                                    PlanOptions options) {
  const Program &program = loaded->program();
  if (options.threads == 0)
    options.threads = options.workers ? options.workers : loaded->residentWorkers();
  if (options.workers == 0)
    options.workers = options.threads;
  LayerCall call;
  call.options = options;
  try {
    PlanCounts counts{.workers = options.workers};
    if (room.sequences)
      counts = PlanCounts::bound(program, options, room.sequences,
                                 {.queryTokens = room.tokens, .keyLen = room.keys});
    StatusOr<PlanArena> arena = PlanArena::create(*loaded->device(), program, counts);
    if (!arena)
      return arena.status();
    call.arena = *std::move(arena);
    for (const CallArguments &arguments : layers) {
      StatusOr<BoundArrays> arrays = matchArrays(program, arguments);
      if (!arrays)
        return arrays.status();
      StatusOr<ScalarTable> scalars = resolveScalars(program, arguments, *arrays);
      if (!scalars)
        return scalars.status();
      widen(call.scalars, *std::move(scalars));
      for (uint32_t k = 0; k < program.kernels.size(); ++k)
        call.blocks.push_back(makeParamBlock(program, *arrays, call.arena.buffers(program, k)));
    }
  } catch (const std::bad_alloc &) {
    return noMemory(program);
  }
  call.loaded = std::move(loaded);
  return call;
}

Status LayerCall::plan(const BatchShape &batch) {
  StatusOr<Plan> plan = makePlan(program(), batch, scalars.values, options);
  if (!plan)
    return plan.status();
  if (std::string reason = arena.room().lacks(PlanCounts::of(*plan)); !reason.empty())
    return makeStatus(StatusCode::Internal, "kernel '{}': {}", program().name, reason);
  arena.write(*plan, scalars.slots, {});
  merges = !plan->merges.empty();
  return {};
}

Status LayerCall::share(uint64_t tokens) {
  Plan nothing;
  nothing.workers = options.workers;
  std::vector<uint32_t> offsets;
  for (uint64_t w = 0; w <= options.workers; ++w)
    offsets.push_back(uint32_t(tokens * w / options.workers));
  arena.write(nothing, scalars.slots, offsets);
  return {};
}

Status LayerCall::run(Stream &stream, uint32_t layer) {
  LLMOPT_RETURN_IF_ERROR(arena.upload(stream));
  if (std::span<uint8_t> counters = arena.counters(); !counters.empty())
    LLMOPT_RETURN_IF_ERROR(stream.fill(counters.data(), 0, counters.size()));
  const std::vector<bundle::Kernel> &kernels = program().kernels;
  std::vector<KernelCall> calls;
  for (KernelKind kind : {KernelKind::Append, KernelKind::Attend, KernelKind::Merge}) {
    if (kind == KernelKind::Merge && !merges)
      continue;
    calls.clear();
    for (uint32_t k = 0; k < kernels.size(); ++k)
      if (kernels[k].kind == kind) {
        const AlignedBuffer &block = blocks[layer * kernels.size() + k];
        calls.push_back({k, {block.data(), block.size()}});
      }
    if (!calls.empty())
      LLMOPT_RETURN_IF_ERROR(stream.launch(*loaded, calls, options.workers));
  }
  return {};
}

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

StatusOr<LayerCall> LayerCall::bind(Device &device, std::shared_ptr<DeviceProgram> loaded,
                                    std::span<const CallArguments> layers, const Room &room,
                                    PlanOptions options) {
  const Program &program = loaded->program();
  if (options.threads == 0)
    options.threads = options.workers ? options.workers : loaded->residentWorkers();
  if (options.workers == 0)
    options.workers = options.threads;
  LayerCall call;
  call.workers = options.workers;
  try {
    PlanCounts counts{.workers = options.workers};
    if (room.sequences) {
      StatusOr<Planner> planner =
          Planner::create(program, options,
                          {.rows = room.sequences,
                           .queryTokens = room.tokens,
                           .splits = mostSplits(program, options, room.keys)});
      if (!planner)
        return planner.status();
      counts = planner->room();
      call.planner.emplace(*std::move(planner));
    }
    StatusOr<PlanArena> arena = PlanArena::create(device, program, counts, room.places);
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
    call.shares.resize(options.workers + 1);
    call.calls.reserve(program.kernels.size());
  } catch (const std::bad_alloc &) {
    return noMemory(program);
  }
  call.loaded = std::move(loaded);
  return call;
}

Status LayerCall::plan(const BatchShape &batch) {
  StatusOr<Plan *> place = arena.next();
  if (!place)
    return place.status();
  StatusOr<PlanChange> change = planner->plan(batch, scalars.values, **place, arena.itemsAreUp());
  if (!change)
    return change.status();
  arena.commit(*change, scalars.slots, {});
  if (*change == PlanChange::All)
    merges = !(*place)->merges.empty();
  return {};
}

Status LayerCall::share(uint64_t tokens) {
  StatusOr<Plan *> place = arena.next();
  if (!place)
    return place.status();
  for (uint64_t w = 0; w <= workers; ++w)
    shares[w] = uint32_t(tokens * w / workers);
  arena.commit(PlanChange::All, scalars.slots, shares);
  return {};
}

Status LayerCall::run(Stream &stream, uint32_t layer, Merging merging) {
  LLMOPT_RETURN_IF_ERROR(arena.upload(stream));
  if (std::span<uint8_t> counters = arena.counters(); !counters.empty())
    LLMOPT_RETURN_IF_ERROR(stream.fill(counters.data(), 0, counters.size()));
  bool merge = merging == Merging::Always ? arena.room().merges > 0 : merges;
  const std::vector<bundle::Kernel> &kernels = program().kernels;
  for (KernelKind kind : {KernelKind::Append, KernelKind::Attend, KernelKind::Merge}) {
    if (kind == KernelKind::Merge && !merge)
      continue;
    calls.clear();
    for (uint32_t k = 0; k < kernels.size(); ++k)
      if (kernels[k].kind == kind) {
        const AlignedBuffer &block = blocks[layer * kernels.size() + k];
        calls.push_back({k, {block.data(), block.size()}});
      }
    if (!calls.empty())
      LLMOPT_RETURN_IF_ERROR(stream.launch(*loaded, calls, workers));
  }
  return {};
}

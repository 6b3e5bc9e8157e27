// What happens before the first step: kernels, memory, arrays, and the calls of all layers.
#include "runtime/executor/KeptKeys.h"
#include "runtime/executor/ModelExecutor.h"
#include "runtime/executor/Mover.h"

#include <algorithm>
#include <utility>

using namespace llmopt::runtime;

namespace bundle = llmopt::bundle;

using llmopt::bundle::BufferRole;
using llmopt::bundle::ElementType;

namespace {

Status checkOptions(const ExecutorOptions &options) {
  if (options.maxTokens < 1 || options.stepsInFlight < 1 ||
      options.stepsInFlight != options.memory.maxStepsInFlight)
    return invalidArgument("{} tokens a step, {} steps in flight and {} for the block manager; at "
                           "least one token and equally many steps are allowed",
                           options.maxTokens, options.stepsInFlight,
                           options.memory.maxStepsInFlight);
  if (options.deviceDrafts > options.memory.maxDraft)
    return invalidArgument("{} drafts of the device; the block manager serves {}",
                           options.deviceDrafts, options.memory.maxDraft);
  if (options.draftTrees && options.memory.maxDraft >= kMostTreeTokens)
    return invalidArgument("trees of {} drafts; at most {} are allowed", options.memory.maxDraft,
                           kMostTreeTokens - 1);
  for (const LayerGroup &group : options.groups)
    if (!group.extraArrays.empty() && group.extraArrays.size() != group.layers.size())
      return invalidArgument("a layer group has further arrays for {} of its {} layers",
                             group.extraArrays.size(), group.layers.size());
  return {};
}

bool takesNumber(const bundle::Program &program, const std::string &name) {
  return std::ranges::any_of(program.scalars,
                             [&](const auto &scalar) { return scalar.name == name; });
}

bool takesArray(const bundle::Program &program, const std::string &name) {
  return std::ranges::any_of(program.buffers, [&](const bundle::Buffer &buffer) {
    return buffer.name == name && buffer.role < BufferRole::ItemOffsets;
  });
}

/// A name that no kernel of the group takes is a mistake.
Status checkExtras(const LayerKernels::Group &loaded, const LayerGroup &group, uint32_t g) {
  auto anyTakes = [&](auto takes, const std::string &name) {
    return takes(loaded.append->program(), name) ||
           std::ranges::any_of(loaded.attend,
                               [&](const auto &attend) { return takes(attend->program(), name); });
  };
  for (const auto &[name, value] : group.numbers)
    if (!anyTakes(takesNumber, name))
      return invalidArgument("layer group {} has a number '{}', which none of its kernels takes", g,
                             name);
  for (const auto &arrays : group.extraArrays)
    for (const auto &[name, array] : arrays)
      if (!anyTakes(takesArray, name))
        return invalidArgument("layer group {} has an array '{}', which none of its kernels takes",
                               g, name);
  return {};
}

/// What a kernel wants beyond what each step has is in its group's numbers and arrays; of the
/// arrays, the planner reads values for each head.
Status checkGiven(const bundle::Program &program, const CallArguments &given, bool hostMemory) {
  for (const bundle::Scalar &scalar : program.scalars)
    if (scalar.required && !given.scalars.contains(scalar.name))
      return invalidArgument("it wants a number '{}', for which its spec has no value; write one "
                             "into the spec, or give one in the group's numbers",
                             scalar.name);
  for (const bundle::Buffer &buffer : program.buffers) {
    auto array = given.arrays.find(buffer.name);
    if (array == given.arrays.end() && !buffer.nullable && buffer.role < BufferRole::ItemOffsets)
      return invalidArgument("it wants an array '{}' ({}), which no step has; give one for each "
                             "layer in the group's extraArrays",
                             buffer.name, toString(buffer.role));
    if (array != given.arrays.end() && buffer.role == BufferRole::PerHead && !hostMemory &&
        !array->second.host)
      return invalidArgument("its array '{}' lies in device memory and the planner reads it; give "
                             "its host copy as well (ArrayRef::host)",
                             buffer.name);
  }
  return {};
}

} // namespace

ModelExecutor::ModelExecutor(std::shared_ptr<Device> device, ExecutorOptions options,
                             ModelLayers &model)
    : device(std::move(device)), options(std::move(options)), model(model),
      pageMover(std::make_unique<Mover>(*this)), ring(this->options.stepsInFlight + 1) {
  size_t most = this->options.memory.maxSequences;
  for (StepRecord &record : ring) {
    record.rows.reserve(most);
    record.drafts.reserve(most * this->options.deviceDrafts);
    record.moves.reserve(this->options.draftTrees ? most * this->options.memory.maxDraft : 0);
    record.result.rows.reserve(most);
    record.result.tokens.reserve(most * (1 + this->options.memory.maxDraft));
  }
}

StatusOr<std::unique_ptr<ModelExecutor>> ModelExecutor::create(std::shared_ptr<Device> device,
                                                               ExecutorOptions options,
                                                               const KernelSource &source,
                                                               ModelLayers &model) {
  if (!options.prefillTokens || options.prefillTokens > options.maxTokens)
    options.prefillTokens = options.maxTokens;
  LLMOPT_RETURN_IF_ERROR(checkOptions(options));
  std::unique_ptr<ModelExecutor> made(
      new ModelExecutor(std::move(device), std::move(options), model));
  const ExecutorOptions &own = made->options;
  // The model's layers, each in one group.
  size_t count = 0;
  for (const LayerGroup &group : own.groups)
    count += group.layers.size();
  made->layers.assign(count, {UINT32_MAX, 0});
  for (uint32_t g = 0; g < own.groups.size(); ++g)
    for (uint32_t i = 0; i < own.groups[g].layers.size(); ++i) {
      uint32_t layer = own.groups[g].layers[i];
      if (layer >= count || made->layers[layer].group != UINT32_MAX)
        return invalidArgument("layer {} is in no or in two of the layer groups; each of 0 to {} "
                               "is in one",
                               layer, count - 1);
      made->layers[layer] = {g, i};
    }
  StatusOr<LayerKernels> kernels =
      LayerKernels::load(*made->device, own.groups, own.rules,
                         {own.prefillTokens, own.memory.maxDraft, own.draftTrees}, source);
  if (!kernels)
    return kernels.status();
  made->kernels = *std::move(kernels);
  LLMOPT_RETURN_IF_ERROR(made->open());
  made->thread = std::thread([executor = made.get()] { executor->loop(); });
  return made;
}

/// Before the memory goes.
void ModelExecutor::detachPages() {
  if (std::exchange(attached, false))
    options.pageUser->detach();
}

Status ModelExecutor::open() {
  detachPages();
  calls.clear();
  memory = KvMemory();
  StatusOr<std::unique_ptr<Stream>> made = device->createStream();
  if (!made)
    return made.status();
  stream = *std::move(made);
  StatusOr<KvMemory> pages =
      KvMemory::create(*device, *stream, options.memory, options.groups, options.checks);
  if (!pages)
    return pages.status();
  memory = *std::move(pages);
  LLMOPT_RETURN_IF_ERROR(allocateArrays());
  calls.resize(options.groups.size());
  for (uint32_t g = 0; g < options.groups.size(); ++g)
    LLMOPT_RETURN_IF_ERROR(bindGroup(g));
  LLMOPT_RETURN_IF_ERROR(captureBuckets());
  count();
  LLMOPT_RETURN_IF_ERROR(stream->synchronize());
  if (!options.pageUser)
    return {};
  Status taken = options.pageUser->attach(memory.describe(device->facts()));
  attached = taken.ok();
  return taken.withContext("the memory of pages could not be attached");
}

/// Plans must be on the device before work is captured: of no rows, to begin with.
Status ModelExecutor::captureBuckets() {
  captures = {};
  std::vector<Captures::GroupCalls> all;
  for (uint32_t g = 0; g < calls.size() && !options.captures.empty(); ++g) {
    GroupCalls &of = calls[g];
    LLMOPT_RETURN_IF_ERROR(of.append.share(0));
    LLMOPT_RETURN_IF_ERROR(of.append.upload(*stream));
    for (LayerCall &call : of.attend) {
      LLMOPT_RETURN_IF_ERROR(call.plan({}));
      LLMOPT_RETURN_IF_ERROR(call.upload(*stream));
    }
    all.push_back({&of.append, of.attend, uint32_t(options.groups[g].layers.size())});
  }
  ModelBatch none;
  none.stream = stream.get();
  Captures::ModelWork work{.layers = layers, .project = {}, .absorb = {}};
  if (model.worksOnStream()) {
    work.project = [&](uint32_t layer) { return model.project(none, layer, layerArrays()); };
    work.absorb = [&](uint32_t layer) { return model.absorb(none, layer, layerArrays()); };
  }
  StatusOr<Captures> made = Captures::capture(*stream, options.captures, kernels, all, work);
  if (!made)
    return made.status();
  captures = *std::move(made);
  return {};
}

std::vector<PlanCounters> ModelExecutor::planCounters(uint32_t group) const {
  std::vector<PlanCounters> counters;
  for (const LayerCall &call : calls[group].attend)
    counters.push_back(*call.counters());
  return counters;
}

/// Q, K, V and output of one layer at a time, as large as any group needs.
Status ModelExecutor::allocateArrays() {
  uint64_t most[4] = {};
  for (const LayerGroup &group : options.groups) {
    uint64_t bytes = bytesOf(group.type);
    most[0] = std::max(most[0], bytes * group.queryHeads * group.keyDim);
    most[1] = std::max(most[1], bytes * group.kvHeads * group.keyDim);
    most[2] = std::max(most[2], bytes * group.kvHeads * group.valueDim);
    most[3] = std::max(most[3], bytes * group.queryHeads * group.valueDim);
  }
  DeviceMemory *arrays[] = {&query, &key, &value, &output};
  for (size_t i = 0; i < std::size(arrays); ++i) {
    StatusOr<DeviceMemory> made = device->allocate(most[i] * options.maxTokens);
    if (!made)
      return made.status();
    *arrays[i] = *std::move(made);
  }
  StatusOr<DeviceMemory> sets = device->allocate(options.maxTokens * sizeof(uint64_t));
  if (!sets)
    return sets.status();
  trees = *std::move(sets);
  // Lengths and offsets go to the kernels in the plan; these only stand for them.
  for (DeviceMemory *each : {&lengths, &offsets}) {
    StatusOr<DeviceMemory> made =
        device->allocate((size_t(options.memory.maxSequences) + 1) * sizeof(int32_t));
    if (!made)
      return made.status();
    *each = *std::move(made);
    LLMOPT_RETURN_IF_ERROR(stream->fill(each->data(), 0, each->size()));
  }
  return {};
}

CallArguments ModelExecutor::argumentsOf(uint32_t g, uint32_t layer,
                                         const bundle::Program &program) const {
  const LayerGroup &group = options.groups[g];
  int64_t tokens = options.maxTokens, sequences = options.memory.maxSequences;
  CallArguments given;
  // Each kernel of the group takes its part of them.
  for (const auto &[name, value] : group.numbers)
    if (takesNumber(program, name))
      given.scalars[name] = value;
  if (!group.extraArrays.empty())
    for (const auto &[name, array] : group.extraArrays[layer])
      if (takesArray(program, name))
        given.arrays[name] = array;
  auto rowsOf = [&](const DeviceMemory &memory, int64_t heads, int64_t dim) {
    return ArrayRef::contiguous(memory.data(), group.type, {tokens, heads, dim});
  };
  for (const bundle::Buffer &buffer : program.buffers) {
    switch (buffer.role) {
    case BufferRole::Query:
      given.arrays[buffer.name] = rowsOf(query, group.queryHeads, group.keyDim);
      break;
    case BufferRole::NewKey:
      given.arrays[buffer.name] = rowsOf(key, group.kvHeads, group.keyDim);
      break;
    case BufferRole::NewValue:
      given.arrays[buffer.name] = rowsOf(value, group.kvHeads, group.valueDim);
      break;
    case BufferRole::Output:
      given.arrays[buffer.name] = rowsOf(output, group.queryHeads, group.valueDim);
      break;
    case BufferRole::KeyPool:
      given.arrays[buffer.name] = memory.keys(g, layer);
      break;
    case BufferRole::ValuePool:
      given.arrays[buffer.name] = memory.values(g, layer);
      break;
    case BufferRole::BlockTable:
      given.arrays[buffer.name] = memory.table(g, buffer.extents.size() == 1);
      break;
    case BufferRole::SlotMapping:
      given.arrays[buffer.name] =
          ArrayRef::contiguous(calls[g].slots.data(), ElementType::I64, {tokens});
      break;
    case BufferRole::KvLen:
      given.arrays[buffer.name] =
          ArrayRef::contiguous(lengths.data(), ElementType::I32, {sequences});
      break;
    case BufferRole::TableIndptr: // the plan says where a sequence's part begins
    case BufferRole::CuSeqlensQ:
      given.arrays[buffer.name] =
          ArrayRef::contiguous(offsets.data(), ElementType::I32, {sequences + 1});
      break;
    case BufferRole::Tree:
      given.arrays[buffer.name] = ArrayRef::contiguous(trees.data(), ElementType::I64, {tokens});
      break;
    default:
      break;
    }
  }
  return given;
}

/// With the calls' own numbers, of which a window may be one. Of the rows that a rule gives a
/// kernel the shortest and the longest.
Status ModelExecutor::checkMasks(uint32_t g) const {
  const LayerKernels::Group &loaded = kernels.group(g);
  uint32_t longest = options.memory.maxTokens;
  for (const std::vector<LayerKernels::Choice> &choices : loaded.choices)
    for (const LayerKernels::Choice &choice : choices) {
      const LayerCall &call = calls[g].attend[choice.kernel];
      for (uint32_t queries : {choice.minQueries, std::min(choice.maxQueries, options.maxTokens)})
        if (Status unkept = checkKeptKeys(call.program().facts, call.numbers(),
                                          options.groups[g].pages, queries, longest);
            !unkept.ok())
          return unkept.withContext(
              fmt::format("kernel '{}' of layer group {}", loaded.attendNames[choice.kernel], g));
    }
  return {};
}

Status ModelExecutor::bindGroup(uint32_t g) {
  GroupCalls &of = calls[g];
  const LayerKernels::Group &loaded = kernels.group(g);
  size_t layerCount = options.groups[g].layers.size();
  LLMOPT_RETURN_IF_ERROR(checkExtras(loaded, options.groups[g], g));
  of.slotStaging.resize(options.maxTokens);
  StatusOr<DeviceMemory> slots = device->allocate(of.slotStaging.size() * sizeof(int64_t));
  if (!slots)
    return slots.status();
  of.slots = *std::move(slots);
  bool hostMemory = device->facts().hostMemory;
  auto bind = [&](const std::shared_ptr<DeviceProgram> &program,
                  const LayerCall::Room &room) -> StatusOr<LayerCall> {
    std::vector<CallArguments> arguments;
    for (uint32_t layer = 0; layer < layerCount; ++layer) {
      arguments.push_back(argumentsOf(g, layer, program->program()));
      LLMOPT_RETURN_IF_ERROR(checkGiven(program->program(), arguments.back(), hostMemory));
    }
    return LayerCall::bind(*device, program, arguments, room, options.plan);
  };
  auto named = [&](const Status &failed, const std::string &kernel) {
    return failed.withContext(fmt::format("kernel '{}' of layer group {}", kernel, g));
  };
  uint32_t places = options.stepsInFlight + 1;
  StatusOr<LayerCall> append = bind(loaded.append, {.places = places});
  if (!append)
    return named(append.status(), options.groups[g].appendKernel);
  of.append = *std::move(append);
  LayerCall::Room room{options.memory.maxSequences, options.maxTokens, options.memory.maxTokens,
                       places};
  for (size_t k = 0; k < loaded.attend.size(); ++k) {
    StatusOr<LayerCall> attend = bind(loaded.attend[k], room);
    if (!attend)
      return named(attend.status(), loaded.attendNames[k]);
    of.attend.push_back(*std::move(attend));
  }
  LLMOPT_RETURN_IF_ERROR(checkMasks(g));
  of.batches.resize(of.attend.size());
  return {};
}

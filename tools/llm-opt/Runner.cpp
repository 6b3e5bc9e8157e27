// See Runner.h.
#include "tools/llm-opt/Runner.h"
#include "runtime/device/BoundCall.h"
#include "runtime/device/Devices.h"

#include <fmt/format.h>

#include <chrono>
#include <set>

namespace llmopt::cli {
namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

llvm::Error errorOf(const runtime::Status &status) {
  return llvm::createStringError(status.message());
}

bundle::ElementType elementTypeOf(reference::ElementType type) {
  switch (type) {
  case reference::ElementType::F32:
    return bundle::ElementType::F32;
  case reference::ElementType::F16:
    return bundle::ElementType::F16;
  case reference::ElementType::BF16:
    return bundle::ElementType::BF16;
  case reference::ElementType::Bool:
    return bundle::ElementType::Bool;
  case reference::ElementType::I8:
    return bundle::ElementType::I8;
  case reference::ElementType::I32:
    return bundle::ElementType::I32;
  default:
    return bundle::ElementType::I64;
  }
}

} // namespace

reference::Boundaries boundariesOf(const bundle::Program &program, const runtime::Plan &plan) {
  reference::Boundaries boundaries;
  const bundle::AttentionFacts &facts = program.facts;
  if (facts.kvHeads == 0)
    return boundaries;
  uint32_t group = facts.queryHeads / facts.kvHeads;
  boundaries.page = facts.pageSize;
  std::vector<std::set<int64_t>> tiles(plan.sequences.size()), splits(plan.sequences.size());
  for (const runtime::AttendPlan &attend : plan.attends) {
    for (const bundle::WorkItem &item : attend.items) {
      if (item.rowCount == 0)
        continue;
      tiles[item.sequence].insert(plan.rows[item.firstRow / group].query);
      if (item.partialSlot >= 0)
        splits[item.sequence].insert(item.keyBegin);
    }
    if (!attend.items.empty()) // the same in all kernels
      boundaries.keyTile = program.kernels[attend.kernel].tileKeys;
  }
  for (size_t s = 0; s < tiles.size(); ++s) {
    boundaries.tileQueries.emplace_back(tiles[s].begin(), tiles[s].end());
    boundaries.splitKeys.emplace_back(splits[s].begin(), splits[s].end());
  }
  return boundaries;
}

llvm::Expected<std::unique_ptr<Runner>> Runner::compile(mlir::func::FuncOp spec,
                                                        const CompileOptions &options) {
  auto start = Clock::now();
  llvm::Expected<bundle::Program> program = compileSpec(spec, options);
  if (!program)
    return program.takeError();
  llvm::Expected<std::unique_ptr<Runner>> runner = load(std::move(*program));
  if (runner)
    (*runner)->compileTime = secondsSince(start);
  return runner;
}

llvm::Expected<std::unique_ptr<Runner>> Runner::compile(mlir::func::FuncOp spec,
                                                        const Place &place) {
  llvm::Expected<CompileOptions> options = optionsFor(place.device.get());
  if (!options)
    return options.takeError();
  auto start = Clock::now();
  bool compiled = false;
  auto compile = [&]() -> runtime::StatusOr<bundle::Program> {
    compiled = true;
    llvm::Expected<bundle::Program> made = compileSpec(spec, *options);
    if (!made)
      return runtime::Status(runtime::StatusCode::InvalidArgument,
                             llvm::toString(made.takeError()));
    return std::move(*made);
  };
  std::vector<bundle::Program> family;
  if (place.cache) {
    llvm::Expected<std::string> key = specKey(spec, *options);
    if (!key)
      return key.takeError();
    runtime::StatusOr<runtime::CachedProgram> program = place.cache->get(*key, compile);
    if (!program)
      return errorOf(program.status());
    family.push_back(**program);
  } else {
    runtime::StatusOr<bundle::Program> program = compile();
    if (!program)
      return errorOf(program.status());
    family.push_back(*std::move(program));
  }
  llvm::Expected<std::unique_ptr<Runner>> runner = load(std::move(family), place);
  if (runner) {
    (*runner)->compileTime = secondsSince(start);
    (*runner)->wasCached = !compiled;
  }
  return runner;
}

std::string Runner::compileText() const {
  return fmt::format("{} in {:.0f} ms", wasCached ? "from the cache" : "compiled",
                     compileTime * 1e3);
}

llvm::Expected<std::unique_ptr<Runner>> Runner::load(bundle::Program program) {
  std::vector<bundle::Program> family;
  family.push_back(std::move(program));
  return load(std::move(family), {});
}

llvm::Expected<std::unique_ptr<Runner>> Runner::load(std::vector<bundle::Program> family,
                                                     const Place &place) {
  std::shared_ptr<runtime::Device> device = place.device;
  if (!device) {
    runtime::StatusOr<std::shared_ptr<runtime::Device>> cpu = runtime::openDevice("cpu");
    if (!cpu)
      return errorOf(cpu.status());
    device = *std::move(cpu);
  }
  runtime::StatusOr<std::shared_ptr<runtime::DeviceProgram>> loaded =
      family.size() == 1 ? device->load(std::move(family.front()))
                         : runtime::loadBest(*device, std::move(family));
  if (!loaded)
    return errorOf(loaded.status());
  runtime::StatusOr<std::unique_ptr<runtime::Stream>> stream = device->createStream();
  if (!stream)
    return errorOf(stream.status());
  return std::unique_ptr<Runner>(new Runner(*std::move(loaded), *std::move(stream)));
}

/// A rank-0 array is a scalar operand.
runtime::CallArguments Runner::argumentsOf(harness::Call &call) const {
  runtime::CallArguments arguments;
  for (harness::HostArray &array : call.arrays) {
    if (array.shape.empty()) {
      double value = array.get({});
      if (array.type == reference::ElementType::F32)
        arguments.scalars[array.name] = value;
      else
        arguments.scalars[array.name] = int64_t(value);
      continue;
    }
    arguments.arrays[array.name] = {array.data(),
                                    elementTypeOf(array.type),
                                    {array.shape.begin(), array.shape.end()},
                                    {array.strides.begin(), array.strides.end()}};
  }
  for (const auto &[name, value] : call.numbers) {
    for (const bundle::Scalar &scalar : program().scalars) {
      if (scalar.name != name)
        continue;
      if (scalar.type == bundle::ScalarType::I64)
        arguments.scalars[name] = int64_t(value);
      else
        arguments.scalars[name] = value;
    }
  }
  return arguments;
}

runtime::ArrayStorage Runner::storageOf(harness::Call &call) const {
  runtime::ArrayStorage storage;
  // The simulator watches the ends of the arrays itself, if they are those of its allocations.
  if (loaded->device()->facts().kind == runtime::DeviceKind::Sim)
    return storage;
  for (harness::HostArray &array : call.arrays)
    storage[array.name] = array.storage();
  return storage;
}

runtime::BindOptions Runner::bindOptions() const {
  runtime::BindOptions options;
  options.plan.threads = loaded->residentWorkers();
  bool lists = loaded->device()->facts().kind == runtime::DeviceKind::Cpu;
  options.plan.workers = options.plan.threads * (lists ? kListsPerThread : 1);
  return options;
}

llvm::Error Runner::run(harness::Call &call, RunFigures *figures, unsigned repeats) {
  RunFigures local;
  RunFigures &counted = figures ? *figures : local;
  if (llvm::Error error = run(argumentsOf(call), storageOf(call), &counted, repeats, false))
    return error;
  call.boundaries = boundariesOf(program(), counted.plan);
  return llvm::Error::success();
}

llvm::Error Runner::run(const runtime::CallArguments &arguments, RunFigures *figures,
                        unsigned repeats, bool validatePages) {
  return run(arguments, {}, figures, repeats, validatePages);
}

llvm::Error Runner::run(const runtime::CallArguments &arguments,
                        const runtime::ArrayStorage &storage, RunFigures *figures, unsigned repeats,
                        bool validatePages) {
  runtime::StatusOr<runtime::StagedArrays> staged =
      runtime::StagedArrays::upload(*stream, program(), arguments, storage);
  if (!staged)
    return errorOf(staged.status());
  runtime::Settle copies(*stream);
  auto start = Clock::now();
  runtime::BindOptions options = bindOptions();
  options.validatePages = validatePages;
  options.plan.cascadeLevels = 1;
  runtime::StatusOr<runtime::BoundCall> bound =
      runtime::BoundCall::bind(loaded, staged->arguments(), options);
  if (!bound)
    return errorOf(bound.status());
  runtime::Settle kernels(*stream);
  RunFigures local;
  local.bind = secondsSince(start);
  local.run = 1e30;
  for (unsigned r = 0; r < repeats; ++r) {
    start = Clock::now();
    runtime::Status status = bound->run(*stream);
    if (status.ok())
      status = stream->synchronize();
    local.run = std::min(local.run, secondsSince(start));
    if (!status.ok())
      return errorOf(status);
  }
  using Which = runtime::StagedArrays::Which;
  Which which = storage.empty() ? Which::Written : Which::All;
  if (runtime::Status status = staged->download(*stream, which); !status.ok())
    return errorOf(status);
  if (!figures)
    return llvm::Error::success();
  local.plan = bound->plan();
  runtime::StatusOr<std::vector<uint64_t>> all = bound->counters(*stream);
  if (!all)
    return errorOf(all.status());
  std::span<const uint64_t> counters = *all;
  for (const runtime::AttendPlan &attend : local.plan.attends) {
    TileCount count{attend.kernel};
    for (uint32_t worker = 0; worker < local.plan.workers && !counters.empty(); ++worker) {
      count.visited += counters[0];
      count.predicated += counters[1];
      counters = counters.subspan(2);
    }
    local.tilesVisited += count.visited;
    local.tilesPredicated += count.predicated;
    local.kernels.push_back(count);
  }
  *figures = std::move(local);
  return llvm::Error::success();
}

} // namespace llmopt::cli

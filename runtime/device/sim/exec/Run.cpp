// A launch: checks, and clusters of blocks over host threads.
#include "runtime/device/cpu/ThreadPool.h"
#include "runtime/device/sim/exec/Cluster.h"
#include "runtime/device/sim/exec/GlobalChecks.h"
#include "runtime/device/sim/exec/Orders.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <numeric>

namespace llmopt::sim {

using runtime::invalidArgument;
using runtime::Status;

namespace {

/// The most shared memory a block can have on any GPU up to sm_120 (227 KiB).
constexpr uint32_t kMaxSharedBytes = 232448;
constexpr uint32_t kMaxThreads = 1024;

/// Blocks of an ordered grid that are under way at the same time, and the
/// instructions after which the next one gets its turn: enough for a grid-wide
/// barrier of a persistent kernel.
constexpr size_t kResident = 256;
constexpr uint64_t kOrderedTurn = 1 << 16;

Status checkShape(const KernelInfo &info, const Launch &launch) {
  constexpr uint32_t kGridLimit[3] = {0x7fffffff, 65535, 65535};
  constexpr uint32_t kBlockLimit[3] = {1024, 1024, 64};
  uint64_t threads = 1;
  for (int axis = 0; axis < 3; ++axis) {
    if (launch.grid[axis] == 0 || launch.grid[axis] > kGridLimit[axis])
      return invalidArgument("grid[{}] is {}; 1 to {} are allowed", axis, launch.grid[axis],
                             kGridLimit[axis]);
    if (launch.block[axis] == 0 || launch.block[axis] > kBlockLimit[axis])
      return invalidArgument("block[{}] is {}; 1 to {} are allowed", axis, launch.block[axis],
                             kBlockLimit[axis]);
    threads *= launch.block[axis];
  }
  uint64_t most = kMaxThreads;
  if (info.maxThreads[0] != 0)
    most = uint64_t{info.maxThreads[0]} * info.maxThreads[1] * info.maxThreads[2];
  if (threads > std::min<uint64_t>(most, kMaxThreads))
    return invalidArgument("a block of {} threads; kernel '{}' allows {}", threads, info.name,
                           std::min<uint64_t>(most, kMaxThreads));
  if (info.requiredThreads[0] != 0 && info.requiredThreads != launch.block)
    return invalidArgument("a block of {}x{}x{} threads; kernel '{}' requires {}x{}x{}",
                           launch.block[0], launch.block[1], launch.block[2], info.name,
                           info.requiredThreads[0], info.requiredThreads[1],
                           info.requiredThreads[2]);
  return {};
}

/// The blocks of a cluster that the launch and the kernel ask for.
runtime::StatusOr<std::array<uint32_t, 3>> clusterOf(const KernelInfo &info, const Launch &launch) {
  constexpr uint32_t kMostBlocks = 16;
  bool asks = launch.cluster[0] != 0, needs = info.requiredCluster[0] != 0;
  if (asks && needs && launch.cluster != info.requiredCluster)
    return invalidArgument("a cluster of {}x{}x{} blocks; kernel '{}' requires {}x{}x{}",
                           launch.cluster[0], launch.cluster[1], launch.cluster[2], info.name,
                           info.requiredCluster[0], info.requiredCluster[1],
                           info.requiredCluster[2]);
  std::array<uint32_t, 3> cluster = {1, 1, 1};
  if (asks || needs)
    cluster = asks ? launch.cluster : info.requiredCluster;
  uint64_t blocks = 1;
  for (int axis = 0; axis < 3; ++axis) {
    blocks *= cluster[axis];
    if (blocks < 1 || blocks > kMostBlocks)
      return invalidArgument("a cluster of {}x{}x{} blocks; 1 to {} are allowed", cluster[0],
                             cluster[1], cluster[2], kMostBlocks);
    if (launch.grid[axis] % cluster[axis])
      return invalidArgument("grid[{}] is {}; it must be a multiple of the cluster's {} blocks",
                             axis, launch.grid[axis], cluster[axis]);
  }
  return cluster;
}

Status checkLaunch(const Kernel &kernel, const Launch &launch) {
  LLMOPT_RETURN_IF_ERROR(checkShape(kernel.info, launch));
  if (launch.params.size() != kernel.info.paramBytes)
    return invalidArgument("{} bytes of parameters; kernel '{}' has {}", launch.params.size(),
                           kernel.info.name, kernel.info.paramBytes);
  uint64_t shared = uint64_t{kernel.dynamicSharedOffset} + launch.dynamicShared;
  if (shared > kMaxSharedBytes)
    return invalidArgument("{} bytes of static and {} of dynamic shared memory; a block has at "
                           "most {}",
                           kernel.info.staticShared, launch.dynamicShared, kMaxSharedBytes);
  return {};
}

Tally makeTally(const Grid &grid) {
  Tally tally;
  tally.at.resize(grid.kernel->code.size());
  if (grid.profiled)
    tally.buffers.resize(grid.memory->buffers().size());
  return tally;
}

/// Hands out the clusters of a grid, in order or (with a seed) permuted.
class ClusterOrder {
public:
  explicit ClusterOrder(const Grid &grid)
      : count(uint64_t{grid.grid[0]} * grid.grid[1] * grid.grid[2] /
              (grid.cluster[0] * grid.cluster[1] * grid.cluster[2])) {
    if (!grid.seed)
      return;
    // Of seeds in a row each has another cluster come first.
    offset = grid.seed % count;
    factor = (grid.seed * 0x9e3779b97f4a7c15u >> 32) % count | 1;
    while (std::gcd(factor, count) != 1)
      ++factor;
  }

  uint64_t size() const { return count; }
  uint64_t at(uint64_t position) const {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(position) * factor + offset) %
                                 count);
  }

private:
  uint64_t count;
  uint64_t factor = 1;
  uint64_t offset = 0;
};

/// Collects what the threads report. The fault of the cluster that comes first
/// wins, so that it does not depend on which thread was faster.
struct Outcome {
  std::mutex mutex;
  Tally tally;
  std::atomic<uint64_t> faultAt{~uint64_t{0}};
  Fault fault;
  /// By instruction, the one of the first cluster.
  std::map<std::pair<uint32_t, FaultKind>, std::pair<uint64_t, Fault>> warnings;

  void warn(uint64_t position, Cluster &cluster) {
    for (auto &[pc, warning] : cluster.takeWarnings()) {
      std::lock_guard lock(mutex);
      auto [it, added] = warnings.try_emplace({pc, warning.kind}, position, warning);
      if (!added && position < it->second.first)
        it->second = {position, warning};
    }
  }
  void report(uint64_t position, const Fault &other) {
    std::lock_guard lock(mutex);
    if (position >= faultAt)
      return;
    faultAt = position;
    fault = other;
  }
  void add(const Tally &other) {
    std::lock_guard lock(mutex);
    tally += other;
  }
};

void runIndependent(const Grid &grid, uint32_t threads, Outcome &outcome) {
  ClusterOrder order(grid);
  std::atomic<uint64_t> next{0};
  auto work = [&](uint32_t, uint32_t) {
    Tally tally = makeTally(grid);
    Cluster cluster(grid, tally);
    for (uint64_t position; (position = next++) < order.size() && position < outcome.faultAt;) {
      cluster.start(order.at(position));
      if (cluster.advance(~uint64_t{0}) == Cluster::Progress::Faulted)
        outcome.report(position, cluster.fault());
      outcome.warn(position, cluster);
    }
    outcome.add(tally);
  };
  threads = static_cast<uint32_t>(std::min<uint64_t>(threads, order.size()));
  if (threads <= 1)
    return work(0, 0);
  runtime::ThreadPool pool(threads);
  pool.parallelFor(threads, work);
}

void runOrdered(const Grid &grid, Outcome &outcome) {
  struct Resident {
    std::unique_ptr<Cluster> cluster;
    uint64_t position = 0;
  };
  ClusterOrder order(grid);
  Tally tally = makeTally(grid);
  std::vector<Resident> residents;
  std::vector<std::unique_ptr<Cluster>> idle;
  uint64_t next = 0;
  bool faulted = false;
  while (!faulted && (next < order.size() || !residents.empty())) {
    if (next < order.size() && residents.size() < kResident) {
      if (idle.empty())
        idle.push_back(std::make_unique<Cluster>(grid, tally));
      idle.back()->start(order.at(next));
      residents.push_back({std::move(idle.back()), next++});
      idle.pop_back();
    }
    for (size_t i = 0; i < residents.size() && !faulted;) {
      Resident &resident = residents[i];
      Cluster::Progress progress = resident.cluster->advance(kOrderedTurn);
      outcome.warn(resident.position, *resident.cluster);
      switch (progress) {
      case Cluster::Progress::Running:
        ++i;
        break;
      case Cluster::Progress::Faulted:
        outcome.report(resident.position, resident.cluster->fault());
        faulted = true;
        break;
      case Cluster::Progress::Done:
        idle.push_back(std::move(resident.cluster));
        residents.erase(residents.begin() + static_cast<ptrdiff_t>(i));
        break;
      }
    }
  }
  outcome.add(tally);
}

} // namespace

runtime::StatusOr<Counters> run(const Module &module, GlobalMemory &memory, const Launch &launch,
                                const Options &options, Fault *fault, Profile *profile,
                                std::vector<Fault> *warnings) {
  if (options.orders > 1)
    return runOrders(module, memory, launch, options, fault, profile, warnings);
  const detail::Program &program = module.program();
  auto kernel = std::find_if(program.kernels.begin(), program.kernels.end(),
                             [&](const Kernel &k) { return k.info.name == launch.kernel; });
  if (kernel == program.kernels.end()) {
    std::string names;
    for (const Kernel &k : program.kernels)
      names += (names.empty() ? "" : ", ") + k.info.name;
    return runtime::makeStatus(runtime::StatusCode::NotFound, "no kernel '{}' in '{}'; it has: {}",
                               launch.kernel, program.name, names);
  }
  LLMOPT_RETURN_IF_ERROR(checkLaunch(*kernel, launch));
  runtime::StatusOr<std::array<uint32_t, 3>> cluster = clusterOf(kernel->info, launch);
  if (!cluster)
    return cluster.status();
  runtime::StatusOr<const std::vector<uint64_t> *> variables = memory.variables(module);
  if (!variables)
    return variables.status();

  Grid grid;
  grid.program = &program;
  grid.kernel = &*kernel;
  grid.memory = &memory;
  grid.variables = *variables;
  grid.params = launch.params;
  grid.grid = launch.grid;
  grid.block = launch.block;
  grid.cluster = *cluster;
  grid.threads = launch.block[0] * launch.block[1] * launch.block[2];
  grid.dynamicShared = launch.dynamicShared;
  grid.sharedBytes = kernel->dynamicSharedOffset + launch.dynamicShared;
  grid.stepBudget = options.stepBudget;
  grid.seed = options.seed;
  grid.profiled = profile != nullptr;
  grid.strict = options.strict;
  grid.unprovenFaults = options.unprovenFaults;
  std::optional<GlobalChecks> checks;
  if (options.strict && uint64_t{grid.grid[0]} * grid.grid[1] * grid.grid[2] > 1)
    grid.checks = &checks.emplace(memory, grid.grid, kernel->ordered);

  Outcome outcome;
  outcome.tally = makeTally(grid);
  uint32_t threads = options.threads ? options.threads : runtime::ThreadPool::defaultThreads();
  if (kernel->ordered)
    runOrdered(grid, outcome);
  else
    runIndependent(grid, threads, outcome);
  for (auto &[where, warning] : outcome.warnings)
    if (warnings)
      warnings->push_back(std::move(warning.second));
  if (outcome.faultAt != ~uint64_t{0}) {
    if (fault)
      *fault = outcome.fault;
    return runtime::Status(runtime::StatusCode::InvalidArgument, outcome.fault.message());
  }
  if (profile)
    *profile = profileOf(grid, outcome.tally);
  return countersOf(*kernel, outcome.tally);
}

} // namespace llmopt::sim

#include "runtime/device/sim/exec/Block.h"

#include "runtime/device/sim/exec/Cluster.h"
#include "runtime/device/sim/exec/SharedChecks.h"
#include "runtime/device/sim/exec/Transfers.h"
#include "runtime/device/sim/ops/Modes.h"

#include <algorithm>

namespace llmopt::sim {

namespace {

/// What memory and registers hold before they are written: NaN in every
/// floating-point format.
constexpr int kPoison = 0xff;

/// Instructions of a warp in one turn.
constexpr uint64_t kTurn = 4096;

/// Whether the address of such a fault is one of shared memory, unless it names a buffer.
bool isOfShared(FaultKind kind) {
  switch (kind) {
  case FaultKind::SharedOutOfBounds:
  case FaultKind::UninitialisedShared:
  case FaultKind::SharedRace:
  case FaultKind::UnfinishedCopy:
  case FaultKind::MissingProxyFence:
  case FaultKind::TransactionCount:
  case FaultKind::UnprovenInit:
  case FaultKind::UnprovenRelease:
    return true;
  default:
    return false;
  }
}

/// The .shared variable at an address, or the last before it; empty if the kernel has none there.
std::string describeShared(const Kernel &kernel, uint64_t address, uint32_t sharedBytes) {
  address &= kOffsetMask; // of another block of the cluster, too
  const SharedArray *last = nullptr;
  for (const SharedArray &array : kernel.sharedArrays)
    if (array.begin <= address && (!last || array.begin > last->begin))
      last = &array;
  if (!last)
    return "";
  uint32_t bytes = last->dynamic ? sharedBytes - last->begin : last->bytes;
  uint64_t offset = address - last->begin;
  return offset < bytes ? fmt::format("byte {} of '{}' ({} bytes)", offset, last->name, bytes)
                        : fmt::format("{} bytes after the end of '{}' ({} bytes)", offset - bytes,
                                      last->name, bytes);
}

} // namespace

void Warp::fault(FaultKind kind, std::optional<uint32_t> lane, std::optional<uint64_t> address,
                 std::string detail, std::string buffer) {
  if (faulted || block->faulted())
    return;
  faulted = true;
  block->setFault(describe(kind, lane, address, std::move(detail), std::move(buffer)));
}

bool Warp::warned(FaultKind kind) const { return block->hasWarning(pc, kind); }

void Warp::warn(FaultKind kind, std::optional<uint32_t> lane, std::optional<uint64_t> address,
                std::string detail) {
  if (block->launch().unprovenFaults)
    return fault(kind, lane, address, std::move(detail));
  block->addWarning(pc, describe(kind, lane, address, std::move(detail), {}));
}

std::string Warp::lineOf(uint32_t otherPc) const {
  const detail::Program &program = *block->launch().program;
  const Place &place = kernel->places[otherPc];
  std::string text = fmt::format("line {}", place.line), file = program.file(place.sourceFile);
  if (file.empty())
    return text;
  text += fmt::format(" ({}:{}", file, place.sourceLine);
  if (const SpecRange *range = program.specOf(place.sourceLine))
    text += fmt::format(" of {}:{}", range->file, range->line);
  return text + ")";
}

Fault Warp::describe(FaultKind kind, std::optional<uint32_t> lane, std::optional<uint64_t> address,
                     std::string detail, std::string buffer) const {
  const detail::Program &program = *block->launch().program;
  const Place &place = kernel->places[pc];
  Fault fault;
  fault.kind = kind;
  fault.kernel = kernel->info.name;
  fault.module = program.name;
  fault.line = place.line;
  fault.instruction = place.text;
  fault.sourceFile = program.file(place.sourceFile);
  fault.sourceLine = place.sourceLine;
  if (const SpecRange *range = program.specOf(place.sourceLine)) {
    fault.specFile = range->file;
    fault.specLine = range->line;
  }
  fault.block = block->position();
  fault.warp = index;
  fault.lane = lane;
  fault.address = address;
  fault.buffer = std::move(buffer);
  if (fault.buffer.empty() && address && *address < kWindowBytes && isOfShared(kind))
    fault.buffer = describeShared(*kernel, *address, block->launch().sharedBytes);
  fault.detail = std::move(detail);
  return fault;
}

Block::Block(const Grid &grid, Tally &tally, Cluster &cluster, uint32_t rank)
    : mbarriers(*this), grid(grid), tally(tally), owner(cluster), ownRank(rank) {
  uint32_t count = (grid.threads + kLanes - 1) / kLanes;
  warps.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    Warp &warp = warps[i];
    warp.block = this;
    warp.kernel = grid.kernel;
    warp.tally = &tally;
    warp.index = i;
    warp.agent = rank * count + i;
    warp.registers = runtime::AlignedBuffer(grid.kernel->registerBytes);
    warp.predicates.resize(grid.kernel->predicates);
    warp.local.resize(size_t{grid.kernel->info.localBytes} * kLanes);
  }
  sharedMemory.resize(grid.sharedBytes);
  for (Barrier &barrier : barriers)
    barrier.arrived.resize(count);
  if (grid.strict)
    sharedChecks = std::make_unique<SharedChecks>(
        grid.sharedBytes, cluster.clocks(), grid.cluster[0] * grid.cluster[1] * grid.cluster[2],
        count, grid.kernel->async);
}

Block::~Block() = default;

void Block::start(uint64_t index) {
  linear = index;
  coordinates = {static_cast<uint32_t>(index % grid.grid[0]),
                 static_cast<uint32_t>(index / grid.grid[0] % grid.grid[1]),
                 static_cast<uint32_t>(index / grid.grid[0] / grid.grid[1])};
  found.reset();
  steps = ticks = 0;
  random = grid.seed ? (grid.seed * 0x9e3779b97f4a7c15u + index) | 1 : 0;
  std::fill(sharedMemory.begin(), sharedMemory.end(), std::byte{kPoison});
  for (Barrier &barrier : barriers) {
    barrier.active = false;
    std::fill(barrier.arrived.begin(), barrier.arrived.end(), 0);
  }
  if (sharedChecks)
    sharedChecks->start();
  mbarriers.start();
  warnings.clear();
  for (Warp &warp : warps)
    startWarp(warp);
}

void Block::startWarp(Warp &warp) {
  uint32_t lanes = std::min(kLanes, grid.threads - warp.index * kLanes);
  warp.alive = lanes == kLanes ? kAllLanes : (1u << lanes) - 1;
  warp.pc = 0;
  warp.faulted = false;
  warp.turnedOver = false;
  warp.dividedTurns = 0;
  warp.paths.assign(1, {0, warp.alive, Path::State::Ready, 0});
  warp.yielded = false;
  warp.copies.clear();
  warp.copiesBegun = 0;
  warp.committed.fill(0);
  warp.bulkStores.clear();
  warp.bulkCommitted.fill(0);
  warp.bulkTime = 0;
  warp.wgmma = {};
  warp.wgmmaRegisters.assign(grid.strict ? grid.kernel->wgmmaRegisters.size() : 0, {});
  warp.clusterArrived = 0;
  warp.clusterPhase = 0;
  if (warp.registers.size())
    std::memset(warp.registers.data(), kPoison, warp.registers.size());
  std::fill(warp.predicates.begin(), warp.predicates.end(), 0);
  warp.undefined.assign(grid.strict ? grid.kernel->tracked.size() : 0, kAllLanes);
  warp.carry = 0;
  std::fill(warp.local.begin(), warp.local.end(), std::byte{kPoison});
  for (const Constant &constant : grid.kernel->constants)
    fillConstant(warp, constant);
}

void Block::fillConstant(Warp &warp, const Constant &constant) {
  if (constant.cls == RegClass::Predicate) {
    warp.predicates[constant.row] = constant.value ? kAllLanes : 0;
    return;
  }
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    uint64_t value = constant.value;
    if (constant.kind == Constant::Kind::Special)
      value = specialValue(warp, lane, static_cast<Special>(constant.value));
    else if (constant.kind == Constant::Kind::Variable)
      value = (*grid.variables)[constant.value] + static_cast<uint64_t>(constant.offset);
    if (constant.cls == RegClass::Wide)
      warp.wide(constant.row)[lane] = value;
    else
      warp.narrow(constant.row)[lane] = static_cast<uint32_t>(value);
  }
}

uint64_t Block::specialValue(const Warp &warp, uint32_t lane, Special special) const {
  uint32_t thread = warp.index * kLanes + lane;
  switch (special) {
  case Special::TidX:
    return thread % grid.block[0];
  case Special::TidY:
    return thread / grid.block[0] % grid.block[1];
  case Special::TidZ:
    return thread / grid.block[0] / grid.block[1];
  case Special::NtidX:
  case Special::NtidY:
  case Special::NtidZ:
    return grid.block[static_cast<size_t>(special) - static_cast<size_t>(Special::NtidX)];
  case Special::CtaidX:
  case Special::CtaidY:
  case Special::CtaidZ:
    return coordinates[static_cast<size_t>(special) - static_cast<size_t>(Special::CtaidX)];
  case Special::NctaidX:
  case Special::NctaidY:
  case Special::NctaidZ:
    return grid.grid[static_cast<size_t>(special) - static_cast<size_t>(Special::NctaidX)];
  case Special::LaneId:
    return lane;
  case Special::WarpId:
    return warp.index;
  case Special::NwarpId:
    return warps.size();
  case Special::LanemaskEq:
    return 1u << lane;
  case Special::LanemaskLe:
    return (2u << lane) - 1;
  case Special::LanemaskLt:
    return (1u << lane) - 1;
  case Special::LanemaskGe:
    return ~((1u << lane) - 1);
  case Special::LanemaskGt:
    return ~((2u << lane) - 1);
  case Special::DynamicSmemSize:
    return grid.dynamicShared;
  case Special::TotalSmemSize:
    return grid.sharedBytes;
  case Special::Zero:
    return 0;
  case Special::One:
    return 1;
  case Special::ClusterIdX:
  case Special::ClusterIdY:
  case Special::ClusterIdZ: {
    size_t axis = static_cast<size_t>(special) - static_cast<size_t>(Special::ClusterIdX);
    return coordinates[axis] / grid.cluster[axis];
  }
  case Special::NclusterIdX:
  case Special::NclusterIdY:
  case Special::NclusterIdZ: {
    size_t axis = static_cast<size_t>(special) - static_cast<size_t>(Special::NclusterIdX);
    return grid.grid[axis] / grid.cluster[axis];
  }
  case Special::ClusterCtaidX:
  case Special::ClusterCtaidY:
  case Special::ClusterCtaidZ: {
    size_t axis = static_cast<size_t>(special) - static_cast<size_t>(Special::ClusterCtaidX);
    return coordinates[axis] % grid.cluster[axis];
  }
  case Special::ClusterNctaidX:
  case Special::ClusterNctaidY:
  case Special::ClusterNctaidZ:
    return grid
        .cluster[static_cast<size_t>(special) - static_cast<size_t>(Special::ClusterNctaidX)];
  case Special::ClusterCtarank:
    return ownRank;
  case Special::ClusterNctarank:
    return owner.size();
  case Special::IsExplicitCluster:
    return grid.kernel->info.explicitCluster;
  }
  return 0;
}

uint64_t Block::nextRandom() {
  random ^= random << 13; // xorshift64
  random ^= random >> 7;
  random ^= random << 17;
  return random;
}

Block::Round Block::round() {
  Round result;
  size_t first = grid.seed ? nextRandom() % warps.size() : 0;
  for (size_t i = 0; i < warps.size(); ++i) {
    Warp &warp = warps[(first + i) % warps.size()];
    if (warp.paths.empty())
      continue;
    uint64_t turn = grid.seed ? 16 + nextRandom() % kTurn : kTurn;
    uint64_t events = owner.events();
    uint64_t issued = runWarp(warp, turn);
    result.issued += issued;
    steps += issued;
    // Who polls in vain does not get on.
    result.progress |= issued != 0 && !(warp.yielded && events == owner.events());
    result.running = true;
    if (faulted())
      return result;
    if (steps > grid.stepBudget) {
      warp.fault(FaultKind::StepBudget, std::nullopt, std::nullopt,
                 fmt::format("the block has issued {} warp instructions; the budget is {}", steps,
                             grid.stepBudget));
      return result;
    }
  }
  result.progress |= releaseBarriers();
  return result;
}

size_t Block::bufferAt(uint64_t address) {
  const std::vector<GlobalMemory::Buffer> &buffers = grid.memory->buffers();
  if (lastBuffer < buffers.size() && address >= buffers[lastBuffer].begin &&
      address < buffers[lastBuffer].end)
    return lastBuffer;
  const GlobalMemory::Buffer *buffer = grid.memory->find(address, 1);
  return buffer ? lastBuffer = static_cast<size_t>(buffer - buffers.data()) : kNoBuffer;
}

Clocks *Block::clocks() { return owner.clocks(); }

Block *Block::resolve(Warp &warp, uint32_t lane, uint64_t &address) {
  uint64_t rank = address >> kRankShift;
  if (rank == 0)
    return this;
  if (rank > owner.size() || owner.size() == 1) {
    warp.fault(FaultKind::SharedOutOfBounds, lane, address,
               fmt::format("an address of shared memory of block {} of a cluster of {}; it has {} "
                           "bytes",
                           rank - 1, owner.size(), grid.sharedBytes));
    return nullptr;
  }
  address &= kOffsetMask;
  return &owner.block(static_cast<uint32_t>(rank) - 1);
}

bool Block::hasWarning(uint32_t pc, FaultKind kind) const {
  return std::any_of(warnings.begin(), warnings.end(), [&](const auto &warning) {
    return warning.first == pc && warning.second.kind == kind;
  });
}

void Block::finish() {
  finishBarriers();
  for (Warp &warp : warps)
    finishBulkStores(warp);
  const MBarrier *barrier = grid.strict && !faulted() ? mbarriers.unfinished() : nullptr;
  if (!barrier)
    return;
  Warp &warp = warps.front();
  warp.pc = barrier->pc;
  warp.fault(FaultKind::UnfinishedCopy, std::nullopt, barrier->address,
             fmt::format("the block has ended while {} copies that arrive at this mbarrier are "
                         "under way: nobody waited for them",
                         barrier->underWay.size()));
}

void Block::finishBarriers() {
  for (uint32_t number = 0; number < kBarriers && !faulted(); ++number) {
    const Barrier &barrier = barriers[number];
    if (!barrier.active || complete(barrier))
      continue;
    for (Warp &warp : warps) {
      if (!barrier.arrived[warp.index])
        continue;
      warp.pc = barrier.lastArrival;
      warp.fault(FaultKind::IncompleteBarrier, std::nullopt, std::nullopt,
                 fmt::format("the block has ended while barrier {} has {} of {} threads", number,
                             barrier.threads, barrier.expected));
    }
  }
}

} // namespace llmopt::sim

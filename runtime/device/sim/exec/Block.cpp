#include "runtime/device/sim/exec/Block.h"

#include "runtime/device/sim/exec/SharedChecks.h"
#include "runtime/device/sim/ops/Modes.h"

#include <algorithm>

namespace llmopt::sim {

namespace {

/// What memory and registers hold before they are written: NaN in every
/// floating-point format.
constexpr int kPoison = 0xff;

/// Instructions of a warp in one turn.
constexpr uint64_t kTurn = 4096;

} // namespace

void Warp::fault(FaultKind kind, std::optional<uint32_t> lane, std::optional<uint64_t> address,
                 std::string detail, std::string buffer) {
  if (faulted || block->faulted())
    return;
  faulted = true;
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
  fault.detail = std::move(detail);
  block->setFault(std::move(fault));
}

Block::Block(const Grid &grid, Tally &tally) : grid(grid), tally(tally) {
  uint32_t count = (grid.threads + kLanes - 1) / kLanes;
  warps.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    Warp &warp = warps[i];
    warp.block = this;
    warp.kernel = grid.kernel;
    warp.tally = &tally;
    warp.index = i;
    warp.registers = runtime::AlignedBuffer(grid.kernel->registerBytes);
    warp.predicates.resize(grid.kernel->predicates);
    warp.local.resize(size_t{grid.kernel->info.localBytes} * kLanes);
  }
  sharedMemory.resize(grid.sharedBytes);
  for (Barrier &barrier : barriers)
    barrier.arrived.resize(count);
  if (grid.strict)
    sharedChecks = std::make_unique<SharedChecks>(grid.sharedBytes, count);
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
  warp.copies.clear();
  warp.committed.fill(0);
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
  }
  return 0;
}

uint64_t Block::nextRandom() {
  random ^= random << 13; // xorshift64
  random ^= random >> 7;
  random ^= random << 17;
  return random;
}

Block::Progress Block::advance(uint64_t limit) {
  for (uint64_t used = 0; used < limit;) {
    bool progress = false, running = false;
    size_t first = grid.seed ? nextRandom() % warps.size() : 0;
    for (size_t i = 0; i < warps.size(); ++i) {
      Warp &warp = warps[(first + i) % warps.size()];
      if (warp.paths.empty())
        continue;
      uint64_t turn = grid.seed ? 16 + nextRandom() % kTurn : kTurn;
      uint64_t issued = runWarp(warp, turn);
      used += issued;
      steps += issued;
      progress |= issued != 0;
      running = true;
      if (faulted())
        return Progress::Faulted;
      if (steps > grid.stepBudget) {
        warp.fault(FaultKind::StepBudget, std::nullopt, std::nullopt,
                   fmt::format("the block has issued {} warp instructions; the budget is {}", steps,
                               grid.stepBudget));
        return Progress::Faulted;
      }
    }
    if (!running) {
      finish();
      return faulted() ? Progress::Faulted : Progress::Done;
    }
    progress |= releaseBarriers();
    if (!progress) {
      reportDeadlock();
      return Progress::Faulted;
    }
  }
  return Progress::Running;
}

size_t Block::bufferAt(uint64_t address) {
  const std::vector<GlobalMemory::Buffer> &buffers = grid.memory->buffers();
  if (lastBuffer < buffers.size() && address >= buffers[lastBuffer].begin &&
      address < buffers[lastBuffer].end)
    return lastBuffer;
  const GlobalMemory::Buffer *buffer = grid.memory->find(address, 1);
  return buffer ? lastBuffer = static_cast<size_t>(buffer - buffers.data()) : kNoBuffer;
}

/// All threads have ended.
void Block::finish() {
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

void Block::reportDeadlock() {
  std::string who;
  Warp *first = nullptr;
  for (Warp &warp : warps) {
    for (const Path &path : warp.paths) {
      if (!first) {
        first = &warp;
        warp.pc = path.pc;
      }
      who +=
          fmt::format("{}warp {} lanes {:#010x} at line {} ({})", who.empty() ? "" : ", ",
                      warp.index, path.lanes, grid.kernel->places[path.pc].line,
                      path.state == Path::State::AtBarrier ? fmt::format("barrier {}", path.barrier)
                                                           : "for lanes of its warp");
    }
  }
  first->fault(FaultKind::Deadlock, std::nullopt, std::nullopt,
               fmt::format("no warp of the block can go on; waiting: {}", who));
}

} // namespace llmopt::sim

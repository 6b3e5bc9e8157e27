#include "runtime/device/sim/exec/Cluster.h"

#include "runtime/device/sim/exec/SharedChecks.h"

namespace llmopt::sim {

namespace {

/// Waits of try_wait may end without success, so that one ends when nothing else goes
/// on. After that many rounds in which nothing came of it nothing ever will.
constexpr uint32_t kIdleRounds = 64;

} // namespace

Cluster::Cluster(const Grid &grid, Tally &tally) : grid(grid) {
  if (grid.strict)
    strictClocks = std::make_unique<Clocks>();
  uint32_t count = grid.cluster[0] * grid.cluster[1] * grid.cluster[2];
  for (uint32_t rank = 0; rank < count; ++rank)
    blocks.push_back(std::make_unique<Block>(grid, tally, *this, rank));
}

Cluster::~Cluster() = default;

void Cluster::start(uint64_t index) {
  uint64_t inRow = grid.grid[0] / grid.cluster[0], inColumn = grid.grid[1] / grid.cluster[1];
  uint64_t first[3] = {index % inRow, index / inRow % inColumn, index / inRow / inColumn};
  if (strictClocks)
    strictClocks->start(size() * ((grid.threads + kLanes - 1) / kLanes), grid.kernel->async);
  phase = 0;
  idle = 0;
  eventCount = 1;
  eventsAtTimeOut = 0;
  arriving.clear();
  completed.clear();
  for (uint32_t rank = 0; rank < size(); ++rank) {
    uint64_t x = first[0] * grid.cluster[0] + rank % grid.cluster[0];
    uint64_t y = first[1] * grid.cluster[1] + rank / grid.cluster[0] % grid.cluster[1];
    uint64_t z = first[2] * grid.cluster[2] + rank / grid.cluster[0] / grid.cluster[1];
    blocks[rank]->start(x + grid.grid[0] * (y + grid.grid[1] * z));
  }
}

Cluster::Progress Cluster::advance(uint64_t limit) {
  for (uint64_t used = 0; used < limit;) {
    bool running = false, progress = false;
    for (auto &block : blocks) {
      Block::Round round = block->round();
      if (block->faulted())
        return Progress::Faulted;
      running |= round.running;
      progress |= round.progress;
      used += round.issued;
    }
    if (!running) {
      for (auto &block : blocks) {
        block->finish();
        if (block->faulted())
          return Progress::Faulted;
      }
      return Progress::Done;
    }
    if (!progress && !letTimePass()) {
      reportDeadlock();
      return Progress::Faulted;
    }
  }
  return Progress::Running;
}

bool Cluster::letTimePass() {
  idle = eventsAtTimeOut == eventCount ? idle + 1 : 0;
  eventsAtTimeOut = eventCount;
  bool any = false;
  for (auto &block : blocks)
    any |= block->timeOut();
  return any && idle < kIdleRounds;
}

void Cluster::reportDeadlock() {
  std::string who;
  Warp *first = nullptr;
  FaultKind kind = FaultKind::Deadlock;
  for (auto &block : blocks)
    block->describeWaits(who, first, kind);
  first->fault(kind, std::nullopt, std::nullopt,
               fmt::format("no warp of the {} can go on; waiting: {}",
                           size() > 1 ? "cluster" : "block", who));
}

const Fault &Cluster::fault() const {
  for (const auto &block : blocks)
    if (block->faulted())
      return block->fault();
  return blocks.front()->fault();
}

std::vector<std::pair<uint32_t, Fault>> Cluster::takeWarnings() {
  std::vector<std::pair<uint32_t, Fault>> all;
  for (auto &block : blocks)
    for (auto &warning : block->takeWarnings())
      all.push_back(std::move(warning));
  return all;
}

void Cluster::postpone(uint32_t agent, uint32_t time) {
  for (auto &block : blocks)
    if (SharedChecks *checks = block->checks())
      checks->postpone(agent, time);
}

void Cluster::arrive(Warp &warp, LaneMask lanes) {
  if (warp.clusterArrived & lanes)
    return warp.fault(FaultKind::InvalidBarrier, std::nullopt, std::nullopt,
                      fmt::format("lanes {:#010x} arrive a second time at the barrier of the "
                                  "cluster, which is not complete",
                                  warp.clusterArrived & lanes));
  warp.clusterArrived |= lanes;
  warp.clusterPhase = phase;
  if (strictClocks)
    strictClocks->release(warp.agent, arriving);
  noteEvent();
  settleBarrier();
}

void Cluster::settleBarrier() {
  bool someone = false;
  for (auto &block : blocks)
    for (Warp &warp : block->allWarps()) {
      if (warp.alive & ~warp.clusterArrived)
        return;
      someone |= warp.clusterArrived != 0;
    }
  if (!someone)
    return;
  ++phase;
  completed = arriving;
  for (auto &block : blocks)
    for (Warp &warp : block->allWarps())
      warp.clusterArrived = 0;
}

LaneMask Cluster::waiting(Warp &warp, LaneMask lanes) {
  settleBarrier(); // threads may have ended
  if (warp.clusterPhase == phase) {
    if (lanes & ~warp.clusterArrived)
      warp.fault(FaultKind::InvalidBarrier, std::nullopt, std::nullopt,
                 fmt::format("lanes {:#010x} wait at the barrier of the cluster and have not "
                             "arrived",
                             lanes & ~warp.clusterArrived));
    return lanes;
  }
  if (strictClocks)
    strictClocks->acquire(warp.agent, completed);
  return 0;
}

std::string Cluster::missing() const {
  uint32_t threads = 0;
  for (const auto &block : blocks)
    for (const Warp &warp : block->allWarps())
      threads += static_cast<uint32_t>(std::popcount(warp.alive & ~warp.clusterArrived));
  return fmt::format("barrier of the cluster, {} threads are missing", threads);
}

} // namespace llmopt::sim

// Who waits for what in a block, and waits that end in vain.
#include "runtime/device/sim/exec/Cluster.h"
#include "runtime/device/sim/ops/Modes.h"

namespace llmopt::sim {

bool Block::timeOut() {
  bool any = false;
  for (Warp &warp : warps) {
    any |= warp.yielded;
    for (Path &path : warp.paths) {
      if (path.state != Path::State::Waiting)
        continue;
      path.state = Path::State::Ready;
      path.timedOut = true;
      any = true;
    }
  }
  return any;
}

std::string Block::describeWait(Warp &warp, const Path &path, FaultKind &kind) {
  const Inst &inst = grid.kernel->code[path.pc];
  switch (path.state) {
  case Path::State::AtBarrier:
    return fmt::format("barrier {}", path.barrier);
  case Path::State::AtGroup:
    return "for the other warps of its warpgroup";
  case Path::State::Waiting:
  case Path::State::Ready:
    if (inst.flow == Flow::Wait && waitsForCluster(inst))
      return owner.missing();
    break;
  case Path::State::Converging:
    return "for lanes of its warp";
  }
  const MBarrier *polled = path.mbarrier ? path.mbarrier : warp.yielded ? warp.polled : nullptr;
  if (!polled)
    return "under way";
  const MBarrier &barrier = *polled;
  if (barrier.pending == 0 && barrier.bytes != 0)
    kind = FaultKind::TransactionCount;
  return fmt::format("mbarrier at {:#x}, phase {}: {}", barrier.address, barrier.phase,
                     barrier.missing());
}

void Block::describeWaits(std::string &who, Warp *&first, FaultKind &kind) {
  for (Warp &warp : warps) {
    for (const Path &path : warp.paths) {
      FaultKind before = kind;
      std::string what = describeWait(warp, path, kind);
      // The one that waits for bytes which never come names the instruction.
      if (!first || kind != before) {
        first = &warp;
        warp.pc = path.pc;
      }
      who += fmt::format("{}warp {}{} lanes {:#010x} at {} ({})", who.empty() ? "" : ", ",
                         warp.index, owner.size() > 1 ? fmt::format(" of block {}", ownRank) : "",
                         path.lanes, warp.lineOf(path.pc), what);
    }
  }
}

} // namespace llmopt::sim

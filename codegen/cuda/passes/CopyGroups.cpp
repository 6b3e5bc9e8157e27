// See CopyGroups.h.
#include "codegen/cuda/passes/CopyGroups.h"

#include "dialect/tile/TileDialect.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace llmopt;

namespace {

/// What waits for a copy: so many turns of the loop later.
struct Wait {
  tile::GetOp get;
  size_t turns = 0;
};

Wait waitFor(tile::CopyAsyncOp copy) {
  Wait wait;
  Value token = copy.getToken();
  while (token.hasOneUse()) {
    OpOperand &use = *token.use_begin();
    if ((wait.get = dyn_cast<tile::GetOp>(use.getOwner())))
      return wait;
    auto loop = dyn_cast<scf::ForOp>(use.getOwner()->getParentOp());
    if (!loop || !isa<scf::YieldOp>(use.getOwner()) ||
        ++wait.turns > loop.getNumRegionIterArgs()) // a token that goes round for ever
      return {};
    token = loop.getRegionIterArg(use.getOperandNumber());
  }
  return {};
}

/// Whether nothing but gets stands from one to the other.
bool standInARow(tile::GetOp a, tile::GetOp b) {
  if (a->getBlock() != b->getBlock())
    return false;
  if (b->isBeforeInBlock(a))
    std::swap(a, b);
  Operation *op = a;
  while (op != b && isa<tile::GetOp>(op))
    op = op->getNextNode();
  return op == b;
}

/// The copy that follows after arithmetic and addresses alone.
tile::CopyAsyncOp nextCopy(tile::CopyAsyncOp copy) {
  for (Operation *op = copy->getNextNode(); op; op = op->getNextNode()) {
    if (auto next = dyn_cast<tile::CopyAsyncOp>(op))
      return next;
    if (!isPure(op) && !isa<tile::PagedRowsOp, tile::MapOp, memref::LoadOp>(op))
      break;
  }
  return {};
}

} // namespace

void cuda::groupCopies(func::FuncOp function) {
  function.walk([](tile::CopyAsyncOp copy) {
    tile::CopyAsyncOp next = nextCopy(copy);
    if (!next)
      return;
    Wait wait = waitFor(copy), nextWait = waitFor(next);
    if (wait.get && nextWait.get && wait.turns == nextWait.turns &&
        standInARow(wait.get, nextWait.get))
      copy->setAttr(kJoinsNextAttr, UnitAttr::get(copy.getContext()));
  });
}

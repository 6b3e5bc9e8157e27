// tile-cpu-fetch-ahead: prefetches of the next trip's rows, beside the product of this one.
#include "codegen/cpu/Passes.h"

#include "dialect/tile/TileDialect.h"

#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace llmopt;

namespace llmopt::cpu {
#define GEN_PASS_DEF_TILECPUFETCHAHEAD
#include "codegen/cpu/Passes.h.inc"
} // namespace llmopt::cpu

namespace {

/// Fewer rows of B, or shorter ones, are not worth the requests.
constexpr int64_t kLeastExtent = 16;

bool readsAtMost(Operation *op) {
  return isMemoryEffectFree(op) || hasSingleEffect<MemoryEffects::Read>(op);
}

/// The ops of the loop's body that `rows` follows from, in order; empty when they need
/// anything of a trip but its counter.
SetVector<Operation *> addressesOf(Value rows, scf::ForOp loop) {
  SetVector<Operation *> slice;
  BackwardSliceOptions options;
  options.inclusive = true;
  options.omitUsesFromAbove = false;
  options.filter = [&](Operation *op) { return op->getBlock() == loop.getBody(); };
  if (failed(getBackwardSlice(rows, &slice, options)))
    return {};
  bool follows = false;
  for (Operation *op : slice) {
    if (!readsAtMost(op))
      return {};
    WalkResult result = op->walk([&](Operation *inner) {
      for (Value operand : inner->getOperands()) {
        auto argument = dyn_cast<BlockArgument>(operand);
        if (!argument || argument.getOwner() != loop.getBody())
          continue;
        if (argument != loop.getInductionVar())
          return WalkResult::interrupt();
        follows = true;
      }
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      return {};
  }
  return follows ? slice : SetVector<Operation *>();
}

/// True for `for i = low to (condition ? low + step : low)`: there is no next trip.
bool runsOnceAtMost(scf::ForOp loop) {
  auto high = loop.getUpperBound().getDefiningOp<arith::SelectOp>();
  auto next = high ? high.getTrueValue().getDefiningOp<arith::AddIOp>() : arith::AddIOp();
  return next && high.getFalseValue() == loop.getLowerBound() &&
         next.getLhs() == loop.getLowerBound() &&
         getConstantIntValue(next.getRhs()) == getConstantIntValue(loop.getStep());
}

Value nextTrip(OpBuilder &builder, scf::ForOp loop) {
  Location loc = loop.getLoc();
  Value now = loop.getInductionVar(),
        next = arith::AddIOp::create(builder, loc, now, loop.getStep());
  Value more =
      arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::slt, next, loop.getUpperBound());
  return arith::SelectOp::create(builder, loc, more, next, now);
}

/// The rows to ask for: where a branch takes some away, those of before it. A row too many
/// costs a request, the branch would cost its condition and a map.
Value requestedRows(tile::LoadOp load) {
  Value rows = load.getRows();
  auto branch = rows.getDefiningOp<scf::IfOp>();
  if (!branch)
    return rows;
  Value all = branch.elseYield().getOperand(cast<OpResult>(rows).getResultNumber());
  return all.getParentBlock() == branch->getBlock() ? all : rows;
}

void fetchAhead(tile::MmaOp product, scf::ForOp loop) {
  auto load = product.getB().getDefiningOp<tile::LoadOp>();
  if (!load || load->getBlock() != loop.getBody() || runsOnceAtMost(loop) || load.getFirst())
    return;
  auto tile = cast<RankedTensorType>(load.getType());
  if (tile.getDimSize(0) < kLeastExtent || tile.getDimSize(1) < kLeastExtent ||
      load.getBase().getParentBlock() == loop.getBody())
    return;
  Value rows = requestedRows(load);
  SetVector<Operation *> addresses = addressesOf(rows, loop);
  if (addresses.empty())
    return;
  OpBuilder builder(product);
  IRMapping mapping;
  mapping.map(loop.getInductionVar(), nextTrip(builder, loop));
  for (Operation *op : addresses)
    builder.clone(*op, mapping);
  tile::PrefetchOp::create(builder, load.getLoc(), load.getBase(), mapping.lookup(rows),
                           tile.getDimSize(1), load.getApart(), load.getSlices());
}

struct TileCpuFetchAhead : llmopt::cpu::impl::TileCpuFetchAheadBase<TileCpuFetchAhead> {
  void runOnOperation() override {
    SmallVector<tile::MmaOp> products;
    getOperation().walk([&](tile::MmaOp mma) { products.push_back(mma); });
    for (tile::MmaOp mma : products)
      if (auto loop = dyn_cast<scf::ForOp>(mma->getParentOp()))
        fetchAhead(mma, loop);
  }
};

} // namespace

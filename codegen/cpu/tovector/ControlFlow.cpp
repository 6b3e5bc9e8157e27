// Edges of scf loops and branches that carry tiles.
#include "codegen/cpu/tovector/ControlFlow.h"

#include "dialect/tile/TileDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace llmopt;
using namespace llmopt::cpu;

bool llmopt::cpu::isControlFlow(Operation *op) {
  return isa<scf::ForOp, scf::WhileOp, scf::IfOp, scf::YieldOp, scf::ConditionOp>(op);
}

bool llmopt::cpu::isSplat(Value value) {
  DenseElementsAttr elements;
  return matchPattern(value, m_Constant(&elements)) && elements.isSplat();
}

bool llmopt::cpu::needsMemory(Value splat) {
  return llvm::any_of(splat.getUses(), [](OpOperand &use) {
    Operation *op = use.getOwner();
    if (auto mma = dyn_cast<tile::MmaOp>(op))
      return use.getOperandNumber() != mma.getCMutable().getOperandNumber();
    return !isControlFlow(op);
  });
}

namespace {

void add(EdgeSet &set, ValueRange sources, ValueRange targets, ValueRange aliases = {}) {
  for (auto [i, source] : llvm::enumerate(sources))
    if (tile::isTile(source.getType()))
      set.edges.push_back({source, targets[i], aliases.empty() ? Value() : aliases[i]});
}

void addYield(EdgeSet &set, scf::YieldOp yield) {
  Operation *parent = yield->getParentOp();
  if (auto loop = dyn_cast<scf::ForOp>(parent)) {
    add(set, yield.getResults(), loop.getRegionIterArgs());
  } else if (auto loop = dyn_cast<scf::WhileOp>(parent)) {
    add(set, yield.getResults(), loop.getBeforeArguments());
  } else if (auto branch = dyn_cast<scf::IfOp>(parent)) {
    add(set, yield.getResults(), branch.getResults());
  }
}

} // namespace

EdgeSet llmopt::cpu::edgesAt(Operation *op) {
  EdgeSet set;
  set.op = op;
  if (auto loop = dyn_cast<scf::ForOp>(op))
    add(set, loop.getInitArgs(), loop.getRegionIterArgs(), loop.getResults());
  else if (auto loop = dyn_cast<scf::WhileOp>(op))
    add(set, loop.getInits(), loop.getBeforeArguments());
  else if (auto condition = dyn_cast<scf::ConditionOp>(op)) {
    auto loop = cast<scf::WhileOp>(op->getParentOp());
    add(set, condition.getArgs(), loop.getAfterArguments(), loop.getResults());
  } else if (auto yield = dyn_cast<scf::YieldOp>(op))
    addYield(set, yield);
  return set;
}

SmallVector<EdgeSet> llmopt::cpu::collectEdges(func::FuncOp function) {
  SmallVector<EdgeSet> all;
  function.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (!isControlFlow(op))
      return;
    EdgeSet set = edgesAt(op);
    if (!set.edges.empty())
      all.push_back(std::move(set));
  });
  return all;
}

tile::MmaOp llmopt::cpu::absorbingProduct(tile::MapOp map) {
  if (map.getNumResults() != 1 || !map.getResult(0).hasOneUse() || map.getInputs().size() != 2 ||
      map.getCombiner(0) != tile::Combiner::None)
    return {};
  auto mma = dyn_cast<tile::MmaOp>(*map.getResult(0).user_begin());
  if (!mma || mma.getC() != map.getResult(0) || mma->getBlock() != map->getBlock())
    return {};
  auto full = map.getInputs()[0].getType();
  auto column = cast<RankedTensorType>(map.getInputs()[1].getType());
  auto [rows, columns] = map.getSpace();
  if (full != mma.getType() || columns == 1 || rows != column.getDimSize(0) ||
      column.getDimSize(1) != 1)
    return {};
  Block &body = map.getBody().front();
  auto product = dyn_cast<arith::MulFOp>(body.front());
  bool scales =
      product && product->getNextNode() == body.getTerminator() &&
      body.getTerminator()->getOperand(0) == product.getResult() &&
      ((product.getLhs() == body.getArgument(0) && product.getRhs() == body.getArgument(1)) ||
       (product.getLhs() == body.getArgument(1) && product.getRhs() == body.getArgument(0)));
  return scales ? mma : tile::MmaOp();
}

tile::MapOp llmopt::cpu::rowScaleOf(tile::MmaOp mma) {
  auto map = mma.getC().getDefiningOp<tile::MapOp>();
  return map && absorbingProduct(map) == mma ? map : tile::MapOp();
}

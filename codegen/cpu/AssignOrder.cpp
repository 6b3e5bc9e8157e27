// tile-cpu-assign-order: by rows or by columns, one choice for each group of tiles.
#include "codegen/cpu/Passes.h"

#include "codegen/cpu/tovector/ControlFlow.h"
#include "codegen/cpu/tovector/InPlaceRows.h"
#include "dialect/tile/TileDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/EquivalenceClasses.h"

using namespace mlir;
using namespace llmopt;
using namespace llmopt::cpu;

namespace llmopt::cpu {
#define GEN_PASS_DEF_TILECPUASSIGNORDER
#include "codegen/cpu/Passes.h.inc"
} // namespace llmopt::cpu

namespace {

class Groups {
public:
  explicit Groups(func::FuncOp function) {
    separateConstants(function);
    function.walk([&](Operation *op) {
      if (auto mma = dyn_cast<tile::MmaOp>(op)) {
        tie(mma.getResult(), mma.getC());
        tie(mma.getResult(), mma.getA());
      } else if (auto map = dyn_cast<tile::MapOp>(op)) {
        tieMap(map);
      }
    });
    for (EdgeSet &set : collectEdges(function))
      for (Edge &edge : set.edges) {
        tie(edge.source, edge.target);
        if (edge.alias)
          tie(edge.target, edge.alias);
      }
  }

  /// Tiles of the group of `value`, itself included.
  SmallVector<Value> members(Value value) {
    classes.insert(value.getAsOpaquePointer());
    SmallVector<Value> all;
    for (void *member : classes.members(value.getAsOpaquePointer()))
      all.push_back(Value::getFromOpaquePointer(member));
    return all;
  }

private:
  /// A tile of one column lies the same way in either order and ties nothing.
  void tie(Value a, Value b) {
    auto free = [](Value tile) {
      return cast<RankedTensorType>(tile.getType()).getDimSize(1) == 1;
    };
    if (!free(a) && !free(b))
      classes.unionSets(a.getAsOpaquePointer(), b.getAsOpaquePointer());
  }

  void tieMap(tile::MapOp map) {
    auto [rows, columns] = map.getSpace();
    Value first;
    auto visit = [&, rows = rows, columns = columns](Value tile) {
      auto type = cast<RankedTensorType>(tile.getType());
      if (type.getDimSize(0) != rows || type.getDimSize(1) != columns)
        return;
      if (first)
        tie(first, tile);
      first = tile;
    };
    llvm::for_each(map.getInputs(), visit);
    llvm::for_each(map.getResults(), visit);
  }

  /// A zero shared by two groups must not tie them.
  void separateConstants(func::FuncOp function) {
    SmallVector<arith::ConstantOp> constants;
    function.walk([&](arith::ConstantOp op) {
      if (tile::isTile(op.getType()))
        constants.push_back(op);
    });
    for (arith::ConstantOp op : constants) {
      OpBuilder builder(op);
      for (OpOperand &use : llvm::make_early_inc_range(op->getUses()))
        use.set(cast<arith::ConstantOp>(builder.clone(*op)));
      op.erase();
    }
  }

  llvm::EquivalenceClasses<void *> classes;
};

void setColumns(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getDimSize(1) == 1)
    return;
  auto order = tile::OrderAttr::get(value.getContext(), tile::Order::Columns);
  auto now = RankedTensorType::get(type.getShape(), type.getElementType(), order);
  value.setType(now);
  DenseElementsAttr elements;
  if (auto constant = value.getDefiningOp<arith::ConstantOp>())
    if (matchPattern(value, m_Constant(&elements)) && elements.isSplat())
      constant.setValueAttr(DenseElementsAttr::get(now, elements.getSplatValue<Attribute>()));
}

struct TileCpuAssignOrder : llmopt::cpu::impl::TileCpuAssignOrderBase<TileCpuAssignOrder> {
  using TileCpuAssignOrderBase::TileCpuAssignOrderBase;

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    bool always = function->hasAttr(kBatchInvariantAttr);
    CpuIsa isa = CpuIsa::fromFeatures(features);
    SmallVector<tile::MmaOp> products;
    function.walk([&](tile::MmaOp mma) { products.push_back(mma); });
    if (products.empty())
      return markAllAnalysesPreserved();
    Groups groups(function);
    for (tile::MmaOp mma : products) {
      if (mma.getSlices() > 1)
        continue; // slices of few rows each
      int64_t rows = cast<RankedTensorType>(mma.getType()).getDimSize(0);
      // Fewer rows would leave lanes idle; 16 is where a broadcast pays for itself. A
      // product that is still bf16 here is one that this layout serves, or one for few rows.
      bool narrow = !cast<RankedTensorType>(mma.getA().getType()).getElementType().isF32();
      if (!always && (narrow ? takesRowPairs(mma, isa) : rows < 16 || rows % isa.lanes != 0))
        continue;
      for (Value tile : groups.members(mma.getResult()))
        setColumns(tile);
      for (Value tile : groups.members(mma.getA()))
        setColumns(tile);
    }
  }
};

} // namespace

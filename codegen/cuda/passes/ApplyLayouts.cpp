// Second half of tile-gpu-assign-layouts: layouts into types, conversions where needed.
#include "codegen/cuda/passes/LayoutGroups.h"
#include "codegen/cuda/passes/Products.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;
using namespace llmopt;
using namespace llmopt::cuda;
using tile::Layout;

namespace {

RankedTensorType withLayout(Type type, const Layout &layout) {
  auto tensor = cast<RankedTensorType>(type);
  return RankedTensorType::get(tensor.getShape(), tensor.getElementType(),
                               tile::FragmentAttr::get(type.getContext(), layout));
}

class Applier {
public:
  Applier(LayoutGroups &groups) : groups(groups) {}

  void setTypes(func::FuncOp function) {
    SmallVector<Value> tiles;
    auto note = [&](Value value) {
      if (tile::isTile(value.getType()) && !tile::sharedOf(value))
        tiles.push_back(value);
    };
    function.walk([&](Operation *op) {
      llvm::for_each(op->getResults(), note);
      for (Region &region : op->getRegions())
        for (Block &block : region)
          llvm::for_each(block.getArguments(), note);
    });
    for (Value value : tiles)
      value.setType(withLayout(value.getType(), groups.layoutOf(value)));
    function.walk([&](arith::ConstantOp constant) {
      auto elements = dyn_cast<SplatElementsAttr>(constant.getValue());
      if (elements && tile::isTile(constant.getType()))
        constant.setValueAttr(SplatElementsAttr::get(cast<ShapedType>(constant.getType()),
                                                     elements.getSplatValue<Attribute>()));
    });
  }

  /// Operands that have another layout than the operation reads them in.
  void convertOperands(Operation *op) {
    if (auto map = dyn_cast<tile::MapOp>(op)) {
      auto [rows, columns] = map.getSpace();
      Layout space = groups.spaceOf(map);
      for (OpOperand &input : map.getInputsMutable())
        want(input, sliceOf(input.get(), space, rows, columns));
      for (Value result : map.getResults())
        give(result, sliceOf(result, space, rows, columns));
    } else if (auto reduce = dyn_cast<tile::ReduceOp>(op)) {
      auto type = cast<RankedTensorType>(reduce.getTile().getType());
      give(reduce.getResult(), sliceOf(reduce.getResult(), layoutIn(reduce.getTile()),
                                       type.getDimSize(0), type.getDimSize(1)));
    } else if (auto load = dyn_cast<tile::LoadOp>(op)) {
      if (!tile::sharedOf(load.getTile()))
        wantRows(load.getRowsMutable(), load.getTile());
    } else if (auto store = dyn_cast<tile::StoreOp>(op)) {
      if (!tile::sharedOf(store.getTile()))
        wantRows(store.getRowsMutable(), store.getTile());
    } else if (auto mma = dyn_cast<tile::MmaOp>(op)) {
      if (onTensorCores(mma) && !tile::sharedOf(mma.getA()))
        want(mma.getAMutable(), firstOperandOf(mma, groups.getWarps()));
      want(mma.getCMutable(), accumulatorOf(mma, groups.getWarps()));
      give(mma.getResult(), accumulatorOf(mma, groups.getWarps()));
    }
  }

private:
  static Layout layoutIn(Value value) { return tile::fragmentOf(value).getLayout(); }

  static Layout sliceOf(Value value, const Layout &space, int64_t rows, int64_t columns) {
    auto type = cast<RankedTensorType>(value.getType());
    return sliceFor(space, type.getDimSize(0), type.getDimSize(1), rows, columns);
  }

  void wantRows(OpOperand &rows, Value tile) {
    auto type = cast<RankedTensorType>(tile.getType());
    want(rows, sliceOf(rows.get(), layoutIn(tile), type.getDimSize(0), type.getDimSize(1)));
  }

  void want(OpOperand &operand, const Layout &layout) {
    if (layoutIn(operand.get()) == layout.normalised())
      return;
    OpBuilder b(operand.getOwner());
    Value value = operand.get();
    operand.set(
        tile::ConvertOp::create(b, value.getLoc(), withLayout(value.getType(), layout), value));
  }

  void give(Value result, const Layout &layout) {
    Layout wanted = layoutIn(result);
    if (wanted == layout.normalised())
      return;
    OpBuilder b(result.getContext());
    b.setInsertionPointAfter(result.getDefiningOp());
    Type type = result.getType();
    result.setType(withLayout(type, layout));
    auto convert = tile::ConvertOp::create(b, result.getLoc(), type, result);
    result.replaceAllUsesExcept(convert.getResult(), convert);
  }

  LayoutGroups &groups;
};

} // namespace

void cuda::applyLayouts(func::FuncOp function, LayoutGroups &groups) {
  Applier applier(groups);
  applier.setTypes(function);
  SmallVector<Operation *> ops;
  function.walk([&](Operation *op) { ops.push_back(op); });
  for (Operation *op : ops)
    applier.convertOperands(op);
}

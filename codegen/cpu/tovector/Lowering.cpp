// The frame of convert-tile-to-vector: blocks, loops, edges; and the pass.
#include "codegen/cpu/tovector/Lowering.h"

#include "codegen/cpu/Passes.h"
#include "codegen/cpu/tovector/ControlFlow.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace llmopt;
using namespace llmopt::cpu;

namespace llmopt::cpu {
#define GEN_PASS_DEF_CONVERTTILETOVECTOR
#include "codegen/cpu/Passes.h.inc"
} // namespace llmopt::cpu

Lowering::Lowering(func::FuncOp function, const CpuIsa &isa)
    : function(function), target(isa), plan(function, isa) {}

Emit Lowering::emitAt(Operation *op) {
  OpBuilder builder(op);
  return Emit(op->getLoc(), builder, target);
}

/// Scratch memory at an offset; one view for each type and offset.
Value Lowering::memoryAt(MemRefType type, int64_t offset) {
  Value &view = views[{type, offset}];
  if (!view) {
    OpBuilder builder = OpBuilder::atBlockBegin(&function.getBody().front());
    Emit emit(function.getLoc(), builder, target);
    view = memref::ViewOp::create(emit, type, scratch, emit.idx(offset), ValueRange{});
  }
  return view;
}

Buffer Lowering::view(RankedTensorType type, int64_t offset) {
  TileShape shape = TileShape::get(type, target);
  Buffer made{memoryAt(MemRefType::get({shape.outer, shape.inner}, shape.element), offset), shape};
  if (shape.lanesOverRows && shape.rows == usedRows.rows)
    made.firstRow = usedRows.first, made.endRow = usedRows.end;
  return made;
}

Buffer Lowering::buffer(Value tile) {
  return view(cast<RankedTensorType>(tile.getType()), plan.offset(tile));
}

namespace {

Value splatScalar(Emit &emit, Value tile) {
  DenseElementsAttr elements;
  matchPattern(tile, m_Constant(&elements));
  return arith::ConstantOp::create(emit, cast<TypedAttr>(elements.getSplatValue<Attribute>()));
}

bool hasTiles(Operation *op) {
  auto isTile = [](Type type) { return isa<TensorType>(type); };
  return llvm::any_of(op->getOperandTypes(), isTile) || llvm::any_of(op->getResultTypes(), isTile);
}

} // namespace

/// Everything that carries tiles must be an op that this pass knows.
LogicalResult Lowering::check() {
  auto result = function.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (op == function)
      return WalkResult::advance();
    for (Type type : llvm::concat<const Type>(llvm::to_vector(op->getOperandTypes()),
                                              llvm::to_vector(op->getResultTypes())))
      if (isa<TensorType>(type) && !tile::isTile(type)) {
        op->emitOpError() << "has a value of type " << type
                          << "; the CPU target lowers 2-D tiles of static shape only";
        return WalkResult::interrupt();
      }
    if (isa<tile::TileDialect>(op->getDialect()))
      return isa<tile::MapOp>(op) ? WalkResult::skip() : WalkResult::advance();
    if (!hasTiles(op) || isControlFlow(op) ||
        (op->getNumResults() == 1 && isSplat(op->getResult(0))))
      return WalkResult::advance();
    op->emitOpError("works on tiles, which the CPU target does not lower; use tile ops, scf "
                    "loops and splat constants");
    return WalkResult::interrupt();
  });
  return failure(result.wasInterrupted());
}

LogicalResult Lowering::run() {
  if (failed(check()))
    return failure();
  auto scratchType =
      MemRefType::get({ShapedType::kDynamic}, IntegerType::get(function.getContext(), 8));
  unsigned position = function.getNumArguments();
  NamedAttribute mark(StringAttr::get(function.getContext(), kScratchArgumentAttr),
                      UnitAttr::get(function.getContext()));
  if (failed(function.insertArgument(position, scratchType,
                                     DictionaryAttr::get(function.getContext(), {mark}),
                                     function.getLoc())))
    return failure();
  scratch = function.getArgument(position);
  function->setAttr(
      tile::kScratchAttr,
      IntegerAttr::get(IntegerType::get(function.getContext(), 64), plan.scratchBytes()));
  return lowerBlock(function.getBody().front());
}

LogicalResult Lowering::lowerBlock(Block &block) {
  llvm::SaveAndRestore restore(usedRows);
  SmallVector<Operation *> done;
  for (Operation &op : llvm::make_early_inc_range(block)) {
    if (isControlFlow(&op)) {
      lowerEdges(&op);
      for (Region &region : op.getRegions())
        for (Block &inner : region)
          if (failed(lowerBlock(inner)))
            return failure();
      if (hasTiles(&op))
        done.push_back(&op);
    } else if (isa<tile::TileDialect>(op.getDialect()) || hasTiles(&op)) {
      if (failed(lowerOp(&op)))
        return failure();
      done.push_back(&op);
    } else {
      for (Region &region : op.getRegions())
        for (Block &inner : region)
          if (failed(lowerBlock(inner)))
            return failure();
    }
  }
  // Backwards, so that every tile has lost its users before it goes.
  for (Operation *op : llvm::reverse(done)) {
    if (isControlFlow(op))
      dropTiles(op);
    else
      op->erase();
  }
  return success();
}

LogicalResult Lowering::lowerOp(Operation *op) {
  auto apart = [&](auto load) { return bool(load.getApart()); };
  auto ownRows = [](tile::MmaOp mma) {
    return mma.getA().getType().getDimSize(0) == mma.getC().getType().getDimSize(0);
  };
  bool sliced = TypeSwitch<Operation *, bool>(op)
                    .Case<tile::LoadOp, tile::PrefetchOp>(apart)
                    .Case(ownRows)
                    .Default([](Operation *) { return false; });
  if (auto slices = op->getAttrOfType<IntegerAttr>("slices");
      slices && slices.getInt() > 1 && !sliced)
    return op->emitOpError() << "has " << slices.getInt()
                             << " slices; the CPU target has no use for them, use 1";
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](tile::LoadOp load) { return lowerLoad(load), success(); })
      .Case([&](tile::PrefetchOp prefetch) { return lowerPrefetch(prefetch), success(); })
      .Case([&](tile::UsedRowsOp rows) { return lowerUsedRows(rows), success(); })
      .Case([&](tile::StoreOp store) { return lowerStore(store), success(); })
      .Case([&](tile::StridedRowsOp rows) { return lowerStridedRows(rows), success(); })
      .Case([&](tile::PagedRowsOp rows) { return lowerPagedRows(rows), success(); })
      .Case([&](tile::MmaOp mma) { return lowerMma(mma); })
      .Case([&](tile::MapOp map) { return absorbingProduct(map) ? success() : lowerMap(map); })
      .Case([&](tile::ReduceColumnsOp reduce) { return lowerReduceColumns(reduce), success(); })
      .Case([&](arith::ConstantOp constant) { return materialise(constant), success(); })
      .Default([&](Operation *other) { return other->emitOpError("has no lowering to the CPU"); });
}

void Lowering::materialise(Operation *constant) {
  Value tile = constant->getResult(0);
  if (!plan.hasPlace(tile))
    return;
  Emit emit = emitAt(constant);
  emit.fill(buffer(tile), splatScalar(emit, tile));
}

/// Copies at a loop's entry or a terminator. Several at once go through temporaries:
/// a target may be the source of another.
void Lowering::lowerEdges(Operation *op) {
  EdgeSet set = edgesAt(op);
  Emit emit = emitAt(op);
  SmallVector<Edge> copies;
  for (Edge &edge : set.edges)
    if (plan.hasPlace(edge.source) && !plan.samePlace(edge.source, edge.target))
      copies.push_back(edge);
  if (copies.size() == 1)
    emit.copy(buffer(copies[0].source), buffer(copies[0].target));
  if (copies.size() > 1) {
    auto temporary = [&](unsigned i) {
      return view(cast<RankedTensorType>(copies[i].source.getType()), plan.temporary(op, i));
    };
    for (auto [i, edge] : llvm::enumerate(copies))
      emit.copy(buffer(edge.source), temporary(i));
    for (auto [i, edge] : llvm::enumerate(copies))
      emit.copy(temporary(i), buffer(edge.target));
  }
  for (Edge &edge : set.edges)
    if (!plan.hasPlace(edge.source))
      emit.fill(buffer(edge.target), splatScalar(emit, edge.source));
}

namespace {

SmallVector<Value> withoutTiles(ValueRange values) {
  return llvm::filter_to_vector(values,
                                [](Value value) { return !isa<TensorType>(value.getType()); });
}

void eraseTileArguments(Block &block) {
  block.eraseArguments([](BlockArgument argument) { return isa<TensorType>(argument.getType()); });
}

} // namespace

/// Rewrites a loop, branch or terminator without its tile operands and results.
void Lowering::dropTiles(Operation *op) {
  if (op->hasTrait<OpTrait::IsTerminator>()) {
    SmallVector<Value> kept = withoutTiles(op->getOperands());
    op->setOperands(kept);
    return;
  }
  OperationState state(op->getLoc(), op->getName(), withoutTiles(op->getOperands()), TypeRange{},
                       llvm::to_vector(op->getDiscardableAttrs()));
  state.propertiesAttr = op->getPropertiesAsAttribute();
  for (Value result : withoutTiles(op->getResults()))
    state.addTypes(result.getType());
  for (Region &region : op->getRegions()) {
    for (Block &block : region)
      eraseTileArguments(block);
    state.addRegion()->takeBody(region);
  }
  OpBuilder builder(op);
  Operation *lean = builder.create(state);
  unsigned next = 0;
  for (Value result : op->getResults())
    if (!isa<TensorType>(result.getType()))
      result.replaceAllUsesWith(lean->getResult(next++));
  op->erase();
}

namespace {

/// A row reduction that no map absorbed is a map that yields its element.
void reduceToMap(tile::ReduceOp reduce) {
  OpBuilder builder(reduce);
  auto combiner = tile::CombinerAttr::get(reduce.getContext(), reduce.getCombiner());
  auto map = tile::MapOp::create(builder, reduce.getLoc(), TypeRange{reduce.getResult().getType()},
                                 ValueRange{reduce.getTile()}, builder.getArrayAttr({combiner}));
  Block &body = map.getBody().emplaceBlock();
  Type element = cast<RankedTensorType>(reduce.getTile().getType()).getElementType();
  body.addArgument(element, reduce.getLoc());
  body.addArguments({builder.getI32Type(), builder.getI32Type()},
                    {reduce.getLoc(), reduce.getLoc()});
  builder.setInsertionPointToStart(&body);
  tile::YieldOp::create(builder, reduce.getLoc(), ValueRange{body.getArgument(0)});
  reduce.replaceAllUsesWith(map.getResult(0));
  reduce.erase();
}

struct ConvertTileToVector : llmopt::cpu::impl::ConvertTileToVectorBase<ConvertTileToVector> {
  using ConvertTileToVectorBase::ConvertTileToVectorBase;

  void runOnOperation() override {
    func::FuncOp function = getOperation();
    bool any = false;
    function.walk(
        [&](Operation *op) { any |= isa_and_nonnull<tile::TileDialect>(op->getDialect()); });
    if (!any || function.isExternal())
      return;
    if (!function.getBody().hasOneBlock()) {
      function.emitOpError("has several blocks; a tile program is structured (scf)");
      return signalPassFailure();
    }
    function.walk([](tile::ReduceOp reduce) { reduceToMap(reduce); });
    CpuIsa isa = CpuIsa::fromFeatures(features);
    if (failed(Lowering(function, isa).run()))
      signalPassFailure();
  }
};

} // namespace

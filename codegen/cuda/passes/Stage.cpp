// tile-gpu-stage; see Passes.td.
#include "codegen/cuda/Passes.h"
#include "codegen/cuda/passes/Products.h"
#include "codegen/cuda/passes/RowTurns.h"
#include "codegen/cuda/passes/SharedAccess.h"
#include "codegen/cuda/passes/Slices.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/Support/MathExtras.h"

namespace llmopt::cuda {
#define GEN_PASS_DEF_TILEGPUSTAGE
#include "codegen/cuda/Passes.h.inc"
} // namespace llmopt::cuda

using namespace mlir;
using namespace llmopt;
using tile::Layout;

namespace {

/// Of the f32 parts of a fold: written in pairs from an accumulator, four rows of four lanes at a
/// time, so that rows 32 bytes apart (mod 128) are in banks of their own without any turning; read
/// row by row.
tile::SharedLayout foldLayout(int64_t columns) {
  tile::SharedLayout layout = tile::SharedLayout::of(columns, sizeof(float));
  constexpr int64_t kBanks = 128, kApart = 32;
  if (columns * int64_t(sizeof(float)) < kBanks)
    return layout;
  return {int64_t(llvm::alignTo(layout.pitch - kApart, kBanks)) + kApart, 1};
}

class Stager {
public:
  explicit Stager(func::FuncOp function) : function(function) {
    OpBuilder b = OpBuilder::atBlockBegin(&function.front());
    zero = arith::ConstantIndexOp::create(b, function.getLoc(), 0);
  }

  void run() {
    SmallVector<Operation *> ops;
    function.walk([&](Operation *op) { ops.push_back(op); });
    for (Operation *op : ops) {
      if (auto load = dyn_cast<tile::LoadOp>(op))
        stage(load);
      else if (auto convert = dyn_cast<tile::ConvertOp>(op))
        stage(convert);
      else if (auto columns = dyn_cast<tile::ReduceColumnsOp>(op))
        addScratch(columns);
      else if (auto fold = dyn_cast<tile::FoldOp>(op))
        stage(fold);
    }
    function.walk([&](Operation *op) { bound(op); });
    function.walk([&](Block *block) { beginEarly(block); });
  }

private:
  RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

  /// A buffer of one slot for a tile of `rows` x `columns`.
  Value buffer(int64_t rows, int64_t columns, Type element, StringRef name) {
    return buffer(rows, columns, element, name,
                  tile::SharedLayout::of(columns, element.getIntOrFloatBitWidth() / 8));
  }
  Value buffer(int64_t rows, int64_t columns, Type element, StringRef name,
               tile::SharedLayout layout) {
    OpBuilder b = OpBuilder::atBlockBegin(&function.front());
    auto space = tile::SharedAttr::get(b.getContext(), layout.pitch, layout.span);
    auto type = MemRefType::get({1, rows, columns}, element, MemRefLayoutAttrInterface(), space);
    Location loc = NameLoc::get(b.getStringAttr(name), function.getLoc());
    return memref::AllocaOp::create(b, loc, type);
  }
  Value buffer(Value tile, StringRef name) {
    RankedTensorType type = typeOf(tile);
    return buffer(type.getDimSize(0), type.getDimSize(1), type.getElementType(), name);
  }

  static StringRef nameOf(Value value, StringRef otherwise) {
    if (auto name = dyn_cast<NameLoc>(value.getLoc()))
      return name.getName().getValue();
    return otherwise;
  }

  void stage(tile::LoadOp load) {
    if (!tile::sharedOf(load.getTile()))
      return;
    OpBuilder b(load);
    Value memory = buffer(load.getTile(), nameOf(load.getTile(), "tile"));
    auto copy = tile::CopyAsyncOp::create(b, load.getLoc(), tile::TokenType::get(b.getContext()),
                                          load.getBase(), load.getRows(), load.getFirst(),
                                          load.getStride(), load.getLimit(), memory, zero, Value());
    if (Attribute note = load->getAttr(tile::kNoteAttr))
      copy->setAttr(tile::kNoteAttr, note);
    auto get = tile::GetOp::create(b, load.getLoc(), load.getType(), memory, zero, copy.getToken(),
                                   IntegerAttr());
    load.getTile().replaceAllUsesWith(get.getTile());
    load.erase();
  }

  void stage(tile::ConvertOp convert) {
    if (tile::sharedOf(convert.getTile()) || cuda::isFromLanes(convert))
      return; // ldmatrix, or element by element; or an exchange of lanes
    OpBuilder b(convert);
    Value memory = buffer(convert.getTile(), nameOf(convert.getTile(), "exchange"));
    tile::PutOp::create(b, convert.getLoc(), convert.getTile(), memory);
    auto type = convert.getType();
    if (!tile::sharedOf(convert.getResult())) {
      auto space = cast<tile::SharedAttr>(cast<MemRefType>(memory.getType()).getMemorySpace());
      type = RankedTensorType::get(typeOf(convert.getTile()).getShape(),
                                   typeOf(convert.getTile()).getElementType(), space);
    }
    Value shared =
        tile::GetOp::create(b, convert.getLoc(), type, memory, zero, Value(), IntegerAttr());
    if (tile::sharedOf(convert.getResult())) {
      convert.getResult().replaceAllUsesWith(shared);
      convert.erase();
      return;
    }
    convert.getTileMutable().assign(shared);
  }

  void addScratch(tile::ReduceColumnsOp reduce) {
    Layout layout = tile::fragmentOf(reduce.getTile()).getLayout();
    reduce.getScratchMutable().assign(
        buffer(layout.warpCount(), typeOf(reduce.getTile()).getDimSize(1),
               typeOf(reduce.getTile()).getElementType(), "column_parts"));
  }

  /// The parts are written where they are made, and read from there by all folds of them, also in
  /// loops that follow.
  void stage(tile::FoldOp fold) {
    Value tile = fold.getTile();
    Value &parts = folded[tile];
    if (!parts) {
      RankedTensorType type = typeOf(tile);
      tile::SharedLayout layout = foldLayout(type.getDimSize(1));
      Value memory = buffer(type.getDimSize(0), type.getDimSize(1), type.getElementType(),
                            (nameOf(fold.getResult(), "fold") + "_parts").str(), layout);
      OpBuilder b(fold.getContext());
      b.setInsertionPointAfterValue(tile);
      auto put = tile::PutOp::create(b, fold.getLoc(), tile, memory);
      put->setAttr(cuda::kUnpaddedAttr, b.getUnitAttr());
      b.setInsertionPoint(tile.getParentBlock()->findAncestorOpInBlock(*fold));
      auto space = tile::SharedAttr::get(b.getContext(), layout.pitch, layout.span);
      parts = tile::GetOp::create(
          b, memory.getLoc(), RankedTensorType::get(type.getShape(), type.getElementType(), space),
          memory, zero, Value(), IntegerAttr());
    }
    fold.getTileMutable().assign(parts);
  }

  /// Warps read no rows that a tile does not have: another tile may lie there.
  void bound(Operation *op) {
    auto warps = function->getAttrOfType<IntegerAttr>(tile::kWarpsAttr);
    if (auto read = cuda::matrixRead(op, warps ? warps.getInt() : 1);
        read && read->covered > read->rows)
      op->setAttr(cuda::kBoundedAttr, UnitAttr::get(op->getContext()));
  }

  /// Moves copies, with their addresses, before the first wait of the block.
  void beginEarly(Block *block) {
    Operation *firstWait = nullptr;
    SmallVector<tile::CopyAsyncOp> copies;
    for (Operation &op : *block) {
      if (!firstWait && isa<tile::GetOp>(op))
        firstWait = &op;
      if (auto copy = dyn_cast<tile::CopyAsyncOp>(op))
        copies.push_back(copy);
    }
    for (tile::CopyAsyncOp copy : copies) {
      if (!firstWait || copy->isBeforeInBlock(firstWait))
        continue;
      FailureOr<SmallVector<Operation *>> slice = cuda::addressSlice(copy);
      if (failed(slice))
        continue;
      for (Operation *op : *slice)
        if (firstWait->isBeforeInBlock(op))
          op->moveBefore(firstWait);
      copy->moveBefore(firstWait);
    }
  }

  func::FuncOp function;
  Value zero;
  DenseMap<Value, Value> folded; ///< the shared tiles of tiles that are folded
};

class StagePass : public llmopt::cuda::impl::TileGpuStageBase<StagePass> {
public:
  void runOnOperation() override {
    if (getOperation()->hasAttr(tile::kKernelAttr))
      Stager(getOperation()).run();
  }
};

} // namespace

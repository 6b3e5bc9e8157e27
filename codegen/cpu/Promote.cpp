// tile-cpu-promote: products of bf16 and f16 become products of f32.
#include "codegen/cpu/Passes.h"

#include "codegen/cpu/tovector/InPlaceRows.h"
#include "dialect/tile/TileDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace llmopt;
using namespace llmopt::cpu;

namespace llmopt::cpu {
#define GEN_PASS_DEF_TILECPUPROMOTE
#include "codegen/cpu/Passes.h.inc"
} // namespace llmopt::cpu

namespace {

RankedTensorType inF32(Value tile) {
  auto type = cast<RankedTensorType>(tile.getType());
  return RankedTensorType::get(type.getShape(), Float32Type::get(tile.getContext()),
                               type.getEncoding());
}

/// A load of the same rows that widens on the way.
Value widenLoad(tile::LoadOp load) {
  OpBuilder builder(load);
  builder.setInsertionPointAfter(load);
  return tile::LoadOp::create(builder, load.getLoc(), inF32(load), load.getBase(), load.getRows(),
                              load.getFirst(), load.getStride(), load.getLimit(), load.getApart(),
                              load.getSlices());
}

/// The map once more, with result `index` before its rounding. The other results move
/// along; the narrow one stays behind with whoever else uses it.
Value widenMap(tile::MapOp map, unsigned index) {
  Operation *yield = map.getBody().front().getTerminator();
  auto round = yield->getOperand(index).getDefiningOp<arith::TruncFOp>();
  if (!round || !round.getIn().getType().isF32() ||
      map.getCombiner(index) != tile::Combiner::None || !map.getResult(index).hasOneUse())
    return {};
  OpBuilder builder(map);
  SmallVector<Type> types(map.getResultTypes());
  types[index] = inF32(map.getResult(index));
  auto wide =
      tile::MapOp::create(builder, map.getLoc(), types, map.getInputs(), map.getCombinersAttr());
  wide.getBody().takeBody(map.getBody());
  yield->setOperand(index, round.getIn());
  if (round->use_empty())
    round->erase();
  for (auto [i, result] : llvm::enumerate(map.getResults()))
    if (i != index)
      result.replaceAllUsesWith(wide.getResult(i));
  return wide.getResult(index);
}

/// Any tile, element by element.
Value widenAnyhow(OpBuilder &builder, Location loc, Value tile) {
  auto map =
      tile::MapOp::create(builder, loc, TypeRange{inF32(tile)}, ValueRange{tile}, ArrayAttr());
  Block &body = map.getBody().emplaceBlock();
  Type i32 = builder.getI32Type();
  Value x = body.addArgument(cast<RankedTensorType>(tile.getType()).getElementType(), loc);
  body.addArguments({i32, i32}, {loc, loc});
  OpBuilder inside = OpBuilder::atBlockBegin(&body);
  Value wide = arith::ExtFOp::create(inside, loc, builder.getF32Type(), x);
  tile::YieldOp::create(inside, loc, ValueRange{wide});
  return map.getResult(0);
}

/// Measured on Emerald Rapids (docs/results/cpu.md): 4 rows 3 to 5 % faster by FMA, 8 rows 10 %.
constexpr int64_t kFastRows = 4;

/// Products that AVX512-BF16 does as they are: rows enough for lanes over rows, B loaded
/// by rows, pairs along k. Where FMA does more products a second, that is few rows alone, which
/// wait for memory; from kFastRows on, a register of B that is widened serves enough of them.
bool staysNarrow(tile::MmaOp mma, const CpuIsa &isa, bool invariant) {
  auto a = cast<RankedTensorType>(mma.getA().getType()),
       b = cast<RankedTensorType>(mma.getB().getType());
  int64_t rows = rowsOfSlice(mma);
  // With few rows lanes over rows would be idle: those products keep tiles by rows.
  bool few = !invariant && rows <= kMostInPlaceRows;
  if (few && isa.slowBf16Dot && rows >= kFastRows)
    return false;
  if (!isa.bf16Dot || (few || mma.getSlices() > 1 ? !takesRowPairs(mma, isa) : isa.slowBf16Dot) ||
      !a.getElementType().isBF16() || a.getDimSize(1) % 2 != 0 || b.getDimSize(0) == 1 ||
      b.getDimSize(1) == 1)
    return false;
  return mma.getB().getDefiningOp<tile::LoadOp>() &&
         llvm::all_of(mma.getB().getUses(), [](OpOperand &use) {
           auto user = dyn_cast<tile::MmaOp>(use.getOwner());
           return user && use.getOperandNumber() == user.getBMutable().getOperandNumber();
         });
}

struct TileCpuPromote : llmopt::cpu::impl::TileCpuPromoteBase<TileCpuPromote> {
  using TileCpuPromoteBase::TileCpuPromoteBase;

  void promote(OpOperand &operand) {
    Value tile = operand.get();
    if (cast<RankedTensorType>(tile.getType()).getElementType().isF32())
      return;
    Operation *source = tile.getDefiningOp();
    Value wide;
    if (auto load = dyn_cast_or_null<tile::LoadOp>(source)) {
      wide = widened.lookup(tile);
      if (!wide)
        wide = widened[tile] = widenLoad(load);
    } else if (auto map = dyn_cast_or_null<tile::MapOp>(source)) {
      wide = widenMap(map, cast<OpResult>(tile).getResultNumber());
    }
    if (!wide) {
      OpBuilder builder(operand.getOwner());
      wide = widenAnyhow(builder, operand.getOwner()->getLoc(), tile);
      source = nullptr;
    }
    operand.set(wide);
    if (source && source->use_empty())
      source->erase();
  }

  void runOnOperation() override {
    widened.clear();
    SmallVector<tile::MmaOp> products;
    getOperation().walk([&](tile::MmaOp mma) { products.push_back(mma); });
    CpuIsa isa = CpuIsa::fromFeatures(features);
    bool invariant = getOperation()->hasAttr(kBatchInvariantAttr);
    for (tile::MmaOp mma : products) {
      if (staysNarrow(mma, isa, invariant))
        continue;
      promote(mma.getAMutable());
      promote(mma.getBMutable());
    }
  }

  /// Loads that were widened already: Q is an operand in several places.
  DenseMap<Value, Value> widened;
};

} // namespace

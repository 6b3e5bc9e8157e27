// See Products.h.
#include "codegen/cuda/passes/Products.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>

using namespace mlir;
using namespace llmopt;
using tile::Layout;

namespace {

/// A first operand that takes more registers of a thread than this is read from shared
/// memory again for each product: 64 x 128 bf16 over 4 warps takes 32.
constexpr int64_t kResidentRegisters = 32;

RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

/// Whether tensor cores take a tile as first operand: 16-bit floats, whole steps of rows.
bool isFirstOperand(RankedTensorType type) {
  bool narrow = type.getElementType().isF16() || type.getElementType().isBF16();
  return narrow && type.getDimSize(0) % 16 == 0;
}

RankedTensorType sharedType(RankedTensorType type) {
  tile::SharedLayout layout =
      tile::SharedLayout::of(type.getDimSize(1), type.getElementType().getIntOrFloatBitWidth() / 8);
  auto encoding = tile::SharedAttr::get(type.getContext(), layout.pitch, layout.span);
  return RankedTensorType::get(type.getShape(), type.getElementType(), encoding);
}

bool loadsWithoutConversion(tile::LoadOp load) {
  return cast<MemRefType>(load.getBase().getType()).getElementType() ==
             typeOf(load.getTile()).getElementType() &&
         load.getSlices() == 1;
}

/// `value` in shared memory. A load brings it there itself; its other users then read it
/// from there.
Value toShared(OpBuilder &b, Value value) {
  if (tile::sharedOf(value))
    return value;
  RankedTensorType plain = typeOf(value), shared = sharedType(plain);
  auto load = value.getDefiningOp<tile::LoadOp>();
  if (!load || !loadsWithoutConversion(load))
    return tile::ConvertOp::create(b, value.getLoc(), shared, value);
  value.setType(shared);
  SmallVector<OpOperand *> others;
  for (OpOperand &use : value.getUses())
    if (!isa<tile::MmaOp>(use.getOwner()) || use.getOperandNumber() == 2)
      others.push_back(&use);
  for (OpOperand *use : others) {
    OpBuilder at(use->getOwner());
    use->set(tile::ConvertOp::create(at, value.getLoc(), plain, value));
  }
  return value;
}

/// First operand of a product on tensor cores: registers, if it is not from memory.
Value placeFirst(OpBuilder &b, tile::MmaOp mma, int64_t warps) {
  Value a = mma.getA();
  auto load = a.getDefiningOp<tile::LoadOp>();
  if (auto convert = a.getDefiningOp<tile::ConvertOp>())
    load = convert.getTile().getDefiningOp<tile::LoadOp>();
  if (!load)
    return a;
  Layout layout = cuda::firstOperandOf(mma, warps);
  Value shared = toShared(b, load.getTile());
  if (layout.registerCount() / 2 > kResidentRegisters)
    return shared;
  RankedTensorType type = typeOf(shared);
  auto encoded = RankedTensorType::get(type.getShape(), type.getElementType(),
                                       tile::FragmentAttr::get(type.getContext(), layout));
  OpBuilder after(load->getContext());
  after.setInsertionPointAfter(load);
  return tile::ConvertOp::create(after, load.getLoc(), encoded, shared);
}

} // namespace

bool cuda::onTensorCores(tile::MmaOp mma) { return isFirstOperand(typeOf(mma.getA())); }

bool cuda::loadsByMatrix(tile::ConvertOp convert) {
  RankedTensorType type = typeOf(convert.getResult());
  if (!tile::sharedOf(convert.getTile()) || !isFirstOperand(type))
    return false;
  // Which rows a warp has is its own affair; within it they lie as one warp's would.
  Layout layout = tile::fragmentOf(convert.getResult()).getLayout();
  int64_t steps = llvm::divideCeil(type.getDimSize(1), 16);
  Layout own = tile::firstOperandLayout(layout.registerCount() / (8 * steps) * 16,
                                        type.getDimSize(1), /*warps=*/1);
  return layout.registers == own.registers && layout.lanes == own.lanes;
}

std::optional<cuda::MatrixRead> cuda::matrixRead(Operation *op, int64_t warps) {
  auto of = [](Value tile, const Layout &layout) {
    return MatrixRead{tile, typeOf(tile).getDimSize(0), layout.cover().first};
  };
  if (auto convert = dyn_cast<tile::ConvertOp>(op); convert && loadsByMatrix(convert))
    return of(convert.getTile(), tile::fragmentOf(convert.getResult()).getLayout());
  if (auto mma = dyn_cast<tile::MmaOp>(op); mma && onTensorCores(mma) && tile::sharedOf(mma.getA()))
    return of(mma.getA(), firstOperandOf(mma, warps));
  return std::nullopt;
}

int64_t cuda::lanesOfRow(const Layout &rows) {
  bool shared = !rows.lanes.empty() && rows.lanes[0].dim == tile::LayoutDim::Replica;
  return shared ? rows.lanes[0].extent : 1;
}

Layout cuda::accumulatorOf(tile::MmaOp mma, int64_t warps) {
  RankedTensorType c = typeOf(mma.getC());
  if (onTensorCores(mma))
    return tile::accumulatorLayout(c.getDimSize(0), c.getDimSize(1), warps);
  // Columns are rows of B in shared memory with transpose_b: one each for 8 lanes keeps
  // banks apart; else they are neighbours there, and four are read at once.
  return tile::plainProductLayout(c.getDimSize(0), c.getDimSize(1), warps,
                                  mma.getTransposeB() ? 1 : 4);
}

Layout cuda::firstOperandOf(tile::MmaOp mma, int64_t warps) {
  int64_t rows = typeOf(mma.getC()).getDimSize(0), own = typeOf(mma.getA()).getDimSize(0);
  Layout layout = tile::firstOperandLayout(rows, typeOf(mma.getA()).getDimSize(1), warps);
  if (own == rows)
    return layout;
  // All slices have the same rows: a warp's are those of its place in its slice.
  tile::LayoutAxes axes;
  for (const tile::LayoutAxis &axis : layout.warps) {
    int64_t within = axis.dim == tile::LayoutDim::Row
                         ? std::clamp<int64_t>(own / axis.stride, 1, axis.extent)
                         : 1;
    if (within > 1)
      axes.push_back({within, axis.dim, axis.stride});
    if (axis.extent > within)
      axes.push_back({axis.extent / within, tile::LayoutDim::Replica, 0});
  }
  layout.warps = axes;
  return layout.normalised();
}

LogicalResult cuda::placeOperands(func::FuncOp function, int64_t warps) {
  SmallVector<tile::MmaOp> products;
  function.walk([&](tile::MmaOp mma) { products.push_back(mma); });
  for (tile::MmaOp mma : products) {
    OpBuilder b(mma);
    Value second = toShared(b, mma.getB());
    Value first = onTensorCores(mma) ? placeFirst(b, mma, warps) : toShared(b, mma.getA());
    mma.getAMutable().assign(first);
    mma.getBMutable().assign(second);
  }
  return success();
}

void cuda::placeStores(func::FuncOp function) {
  llvm::SmallDenseSet<Type> results;
  function.walk([&](tile::MmaOp mma) {
    if (onTensorCores(mma))
      results.insert(mma.getType());
  });
  DenseMap<std::pair<Value, Block *>, Value> shared;
  function.walk([&](tile::StoreOp store) {
    Value tile = store.getTile();
    constexpr int64_t kMostBytes = 64 << 10; // what K and V need anyway
    if (typeOf(tile).getNumElements() * 4 > kMostBytes)
      return;
    Type memory = cast<MemRefType>(store.getBase().getType()).getElementType();
    if (store.getFirst() || store.getLimit() || !isa<FloatType>(memory) ||
        !results.contains(tile.getType()))
      return;
    // One exchange serves stores of any format.
    OpBuilder b(store);
    Value &there = shared[{tile, store->getBlock()}];
    if (!there)
      there = tile::ConvertOp::create(b, tile.getLoc(), sharedType(typeOf(tile)), tile);
    store.getTileMutable().assign(there);
  });
}

LogicalResult cuda::verifyProduct(tile::MmaOp mma, int64_t warps) {
  if (mma.getSlices() == 1)
    return success();
  int64_t slice = typeOf(mma.getC()).getDimSize(0) / mma.getSlices();
  Layout layout = accumulatorOf(mma, warps);
  int64_t perWarp = layout.cover().first;
  for (const tile::LayoutAxis &axis : layout.warps)
    if (axis.dim == tile::LayoutDim::Row)
      perWarp /= axis.extent;
  if (slice % perWarp)
    return mma.emitOpError() << "has slices of " << slice << " rows, and a warp holds " << perWarp
                             << "; a slice must be a multiple";
  return success();
}

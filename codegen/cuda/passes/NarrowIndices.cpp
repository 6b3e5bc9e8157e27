// tile-gpu-narrow-indices; see Passes.td.
#include "codegen/cuda/Passes.h"

#include "dialect/tile/RangeAttr.h"
#include "dialect/tile/TileDialect.h"

#include "mlir/Analysis/DataFlow/IntegerRangeAnalysis.h"
#include "mlir/Analysis/DataFlow/Utils.h"
#include "mlir/Analysis/DataFlowFramework.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Matchers.h"

#include <limits>

namespace llmopt::cuda {
#define GEN_PASS_DEF_TILEGPUNARROWINDICES
#include "codegen/cuda/Passes.h.inc"
} // namespace llmopt::cuda

using namespace mlir;
using namespace llmopt;

namespace {

using Lattice = dataflow::IntegerValueRangeLattice;

ConstantIntRanges rangeOf(Type type, int64_t least, int64_t most) {
  unsigned bits = ConstantIntRanges::getStorageBitwidth(type);
  return ConstantIntRanges::fromSigned(APInt(bits, least, /*isSigned=*/true),
                                       APInt(bits, most, /*isSigned=*/true));
}

/// Says what is wrong with a range, if anything is.
LogicalResult checkRange(Operation *op) {
  Attribute attribute = op->getAttr(tile::kRangeAttr);
  if (!attribute)
    return success();
  auto range = dyn_cast<DenseI64ArrayAttr>(attribute);
  if (op->getNumResults() == 1 && op->getResult(0).getType().isIntOrIndex() && range &&
      range.size() == 2 && range[0] <= range[1]) {
    unsigned bits = ConstantIntRanges::getStorageBitwidth(op->getResult(0).getType());
    if (bits <= 64 && llvm::isIntN(bits, range[0]) && llvm::isIntN(bits, range[1]))
      return success();
  }
  return op->emitOpError() << "has " << tile::kRangeAttr << " = " << attribute
                           << "; array<i64: least, most> of its one integer result is wanted";
}

/// Ranges of numbers, with those that memory keeps to and those of a tile's elements.
class RangeAnalysis : public dataflow::IntegerRangeAnalysis {
public:
  using IntegerRangeAnalysis::IntegerRangeAnalysis;

  LogicalResult visitOperation(Operation *op, ArrayRef<const Lattice *> operands,
                               ArrayRef<Lattice *> results) override {
    if (auto range = op->getAttrOfType<DenseI64ArrayAttr>(tile::kRangeAttr)) {
      join(results[0], rangeOf(op->getResult(0).getType(), range[0], range[1]));
      return success();
    }
    if (auto map = dyn_cast<tile::MapOp>(op)) {
      Operation *yield = map.getBody().front().getTerminator();
      for (auto [result, value] : llvm::zip_equal(results, yield->getOperands()))
        propagateIfChanged(result,
                           result->join(*getLatticeElementFor(getProgramPointAfter(op), value)));
      return success();
    }
    // Where a loop carries them, the analysis gives up on every number at once. The least and the
    // greatest of several come to rest; so does a choice, unless it is between a number and more.
    auto inferrable = dyn_cast<InferIntRangeInterface>(op);
    if (!isa<arith::MinSIOp, arith::MaxSIOp, arith::SelectOp>(op) || !inferrable ||
        ++visits[op] > kMostVisits)
      return IntegerRangeAnalysis::visitOperation(op, operands, results);
    SmallVector<IntegerValueRange> known;
    for (const Lattice *operand : operands)
      known.push_back(operand->getValue());
    inferrable.inferResultRangesFromOptional(known, [&](Value, const IntegerValueRange &range) {
      propagateIfChanged(results[0], results[0]->join(range));
    });
    return success();
  }

  void visitNonControlFlowArguments(Operation *op, const RegionSuccessor &successor,
                                    ArrayRef<Lattice *> arguments, unsigned firstIndex) override {
    auto map = dyn_cast<tile::MapOp>(op);
    if (!map)
      return IntegerRangeAnalysis::visitNonControlFlowArguments(op, successor, arguments,
                                                                firstIndex);
    Block *body = &map.getBody().front();
    for (auto [i, input] : llvm::enumerate(map.getInputs()))
      propagateIfChanged(arguments[i], arguments[i]->join(*getLatticeElementFor(
                                           getProgramPointBefore(body), input)));
    // A thread may be given a row or column beyond the tile, whose element nobody reads.
    for (Lattice *place : arguments.drop_front(map.getInputs().size()))
      join(place, rangeOf(place->getAnchor().getType(), 0, kMostPlaces - 1));
  }

private:
  /// Rows or columns that a layout covers.
  static constexpr int64_t kMostPlaces = 1 << 16;
  /// Of an operation whose range still grows.
  static constexpr unsigned kMostVisits = 16;
  DenseMap<Operation *, unsigned> visits;

  void join(Lattice *lattice, const ConstantIntRanges &range) {
    propagateIfChanged(lattice, lattice->join(IntegerValueRange(range)));
  }
};

class Narrower {
public:
  Narrower(func::FuncOp kernel, DataFlowSolver &solver) : kernel(kernel), solver(solver) {}

  void run() {
    SmallVector<Operation *> all;
    kernel.walk<WalkOrder::PreOrder>([&](Operation *op) { all.push_back(op); });
    for (Operation *op : all) // ranges of all, while the values are what was looked at
      for (Value value : valuesOf(op))
        if (std::optional<Fit> fit = fitOf(value))
          known[value] = *fit;
    for (Operation *op : all)
      if (auto loop = dyn_cast<scf::ForOp>(op))
        narrow(loop);
      else
        narrow(op);
    for (auto [yield, index] : yields) {
      OpBuilder b(yield);
      yield->setOperand(index, narrowed(b, yield->getOperand(index)));
    }
    nameAddresses();
    for (Operation *op : llvm::reverse(casts))
      if (op->use_empty())
        op->erase();
  }

private:
  static SmallVector<Value> valuesOf(Operation *op) {
    SmallVector<Value> values(op->getResults());
    for (Region &region : op->getRegions())
      for (Block &block : region)
        llvm::append_range(values, block.getArguments());
    return values;
  }

  /// A number that fits 32 bits with its sign.
  struct Fit {
    bool isNatural = false; ///< never negative
    bool hasRoom = false;   ///< and so does what is printed as a sum with it
  };
  /// What a tile's rows and columns add to addresses and places.
  static constexpr int64_t kRoom = 1 << 24;

  /// None if the number may not fit.
  std::optional<Fit> fitOf(Value value) {
    if (!value.getType().isIntOrIndex() || value.getType().isInteger(1))
      return std::nullopt;
    const Lattice *lattice = solver.lookupState<Lattice>(value);
    if (!lattice || lattice->getValue().isUninitialized())
      return std::nullopt;
    const ConstantIntRanges &range = lattice->getValue().getValue();
    if (!range.smin().isSignedIntN(32) || !range.smax().isSignedIntN(32))
      return std::nullopt;
    constexpr int64_t least = std::numeric_limits<int32_t>::min() + kRoom,
                      most = std::numeric_limits<int32_t>::max() - kRoom;
    return Fit{range.smin().isNonNegative(),
               range.smin().getSExtValue() >= least && range.smax().getSExtValue() <= most};
  }

  bool isNarrow(Value value) { return known.contains(value); }
  bool isNatural(Value value) { return known.lookup(value).isNatural; }

  /// The number of 32 bits that became `value`.
  static Value sourceOf(Value value) {
    auto cast = value.getDefiningOp<arith::IndexCastOp>();
    return cast && cast.getIn().getType().isInteger(32) ? cast.getIn() : Value();
  }

  /// `value`, which fits, as 32 bits, at the builder's place.
  Value narrowed(OpBuilder &b, Value value) {
    if (Value source = sourceOf(value))
      return source;
    APInt constant;
    if (matchPattern(value, m_ConstantInt(&constant)))
      return arith::ConstantOp::create(b, value.getLoc(),
                                       b.getI32IntegerAttr(constant.getSExtValue()));
    Value &made = cut[value];
    if (!made) {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointAfterValue(value);
      auto cast = value.getDefiningOp<arith::IndexCastOp>();
      if (cast)
        casts.push_back(cast);
      made =
          cast
              ? arith::TruncIOp::create(b, value.getLoc(), b.getI32Type(), cast.getIn()).getResult()
              : arith::IndexCastOp::create(b, value.getLoc(), b.getI32Type(), value);
    }
    return made;
  }

  /// `narrow` as the index `old` that it stands for, for who wants one.
  Value widened(OpBuilder &b, Value old, Value narrow) {
    auto cast = arith::IndexCastOp::create(b, kernel.getLoc(), b.getIndexType(), narrow);
    casts.push_back(cast);
    known[cast.getResult()] = known.lookup(old);
    return cast;
  }

  /// Whether a tile's operation is printed with this number as it is, or with the place of an
  /// element added or compared: a slot, a first row, a count of rows, a page's key.
  static bool isPrintedAlone(OpOperand &use) {
    Operation *user = use.getOwner();
    SmallVector<Value, 2> alone;
    if (auto rows = dyn_cast<tile::PagedRowsOp>(user))
      alone = {rows.getKey(), rows.getCount()};
    else if (auto rows = dyn_cast<tile::StridedRowsOp>(user))
      alone = {rows.getCount()};
    else if (auto copy = dyn_cast<tile::CopyAsyncOp>(user))
      alone = {copy.getSlot()};
    else
      return !isa<tile::TileDialect>(user->getDialect()) || isa<tile::GetOp, tile::FoldOp>(user);
    return llvm::is_contained(alone, use.get()) && llvm::count(user->getOperands(), use.get()) == 1;
  }

  /// Without a name an index is printed as the number of 32 bits that it is made of, except where
  /// arithmetic wants 64. Addresses are arithmetic, too.
  void nameAddresses() {
    for (Operation *cast : casts)
      if (sourceOf(cast->getResult(0)) && !llvm::all_of(cast->getUses(), [&](OpOperand &use) {
            return isPrintedAlone(use) && (known.lookup(cast->getResult(0)).hasRoom ||
                                           !isa<tile::TileDialect>(use.getOwner()->getDialect()));
          })) {
        auto named = dyn_cast<NameLoc>(cast->getOperand(0).getLoc());
        StringRef name = named ? named.getName().getValue() : "number";
        cast->setLoc(
            NameLoc::get(StringAttr::get(cast->getContext(), "wide_" + name), cast->getLoc()));
      }
  }

  void replace(Value old, Value narrow) {
    OpBuilder b(old.getDefiningOp());
    b.setInsertionPointAfter(old.getDefiningOp());
    old.replaceAllUsesWith(widened(b, old, narrow));
  }

  void narrow(Operation *op) {
    bool isCast = isa<arith::IndexCastOp, arith::IndexCastUIOp>(op);
    if (isCast && op->getResult(0).getType().isInteger(32)) {
      if (Value source = isNarrow(op->getOperand(0)) ? sourceOf(op->getOperand(0)) : Value())
        op->getResult(0).replaceAllUsesWith(source), op->erase();
      return;
    }
    if (isCast && op->getOperand(0).getType().isInteger(32) && isNarrow(op->getResult(0))) {
      if (isa<arith::IndexCastUIOp>(op) && !isNatural(op->getResult(0)))
        return;
      Value word = op->getOperand(0); // goes by its own name
      if (isa<NameLoc>(op->getLoc()) && word.hasOneUse())
        word.setLoc(op->getLoc());
      replace(op->getResult(0), word);
      op->erase();
      return;
    }
    if (isCandidate(op))
      rebuild(op);
  }

  /// An operation on indices that can as well be done in 32 bits.
  bool isCandidate(Operation *op) {
    auto compare = dyn_cast<arith::CmpIOp>(op);
    if (!compare && !isa<arith::AddIOp, arith::SubIOp, arith::MulIOp, arith::DivUIOp,
                         arith::RemUIOp, arith::DivSIOp, arith::RemSIOp, arith::FloorDivSIOp,
                         arith::MinSIOp, arith::MaxSIOp, arith::SelectOp>(op))
      return false;
    if (!op->getOperands().back().getType().isIndex() || (!compare && !isNarrow(op->getResult(0))))
      return false;
    bool isUnsigned = isa<arith::DivUIOp, arith::RemUIOp>(op) ||
                      (compare && compare.getPredicate() >= arith::CmpIPredicate::ult);
    bool gains = false;
    for (Value operand : op->getOperands()) {
      if (!operand.getType().isIndex())
        continue; // a condition
      if (!isNarrow(operand) || (isUnsigned && !isNatural(operand)))
        return false;
      gains |= !matchPattern(operand, m_Constant());
    }
    return gains;
  }

  void rebuild(Operation *op) {
    OpBuilder b(op);
    OperationState state(op->getLoc(), op->getName());
    for (Value operand : op->getOperands())
      state.operands.push_back(operand.getType().isIndex() ? narrowed(b, operand) : operand);
    state.addAttributes(op->getAttrs());
    bool compares = isa<arith::CmpIOp>(op);
    state.addTypes(compares ? op->getResult(0).getType() : Type(b.getI32Type()));
    Operation *made = b.create(state);
    if (compares)
      op->getResult(0).replaceAllUsesWith(made->getResult(0));
    else
      replace(op->getResult(0), made->getResult(0));
    op->erase();
  }

  /// A loop's number becomes one of 32 bits; its uses, at the builder's place and behind, take it
  /// as an index.
  void retype(OpBuilder &b, Value value) {
    Value wide = widened(b, value, value);
    value.replaceAllUsesExcept(wide, wide.getDefiningOp());
    value.setType(b.getI32Type());
  }

  bool areNarrow(ArrayRef<Value> values) {
    return llvm::all_of(values,
                        [&](Value value) { return value.getType().isIndex() && isNarrow(value); });
  }

  void narrow(scf::ForOp loop) {
    OpBuilder b(loop);
    Value lower = loop.getLowerBound(), upper = loop.getUpperBound(), step = loop.getStep();
    if (areNarrow({lower, upper, step, loop.getInductionVar()})) {
      for (auto [i, bound] : llvm::enumerate(ArrayRef({lower, upper, step})))
        loop->setOperand(i, narrowed(b, bound));
      b.setInsertionPointToStart(loop.getBody());
      retype(b, loop.getInductionVar());
    }
    auto yield = cast<scf::YieldOp>(loop.getBody()->getTerminator());
    for (unsigned i = 0; i < loop.getNumRegionIterArgs(); ++i) {
      BlockArgument argument = loop.getRegionIterArg(i);
      Value init = loop.getInitArgs()[i], result = loop->getResult(i);
      if (!areNarrow({init, argument, yield.getOperand(i), result}))
        continue;
      b.setInsertionPoint(loop);
      loop->setOperand(loop.getNumControlOperands() + i, narrowed(b, init));
      b.setInsertionPointToStart(loop.getBody());
      retype(b, argument);
      b.setInsertionPointAfter(loop);
      retype(b, result);
      yields.push_back({yield, i});
    }
  }

  struct Yielded {
    Operation *yield;
    unsigned index;
  };

  func::FuncOp kernel;
  DataFlowSolver &solver;
  DenseMap<Value, Fit> known; ///< values that fit 32 bits
  DenseMap<Value, Value> cut; ///< what was 64 bits wide and fits
  SmallVector<Operation *> casts;
  SmallVector<Yielded> yields;
};

class NarrowIndicesPass : public llmopt::cuda::impl::TileGpuNarrowIndicesBase<NarrowIndicesPass> {
public:
  using TileGpuNarrowIndicesBase::TileGpuNarrowIndicesBase;

  void runOnOperation() override {
    if (!getOperation()->hasAttr(tile::kKernelAttr))
      return;
    if (getOperation()
            .walk([](Operation *op) {
              return failed(checkRange(op)) ? WalkResult::interrupt() : WalkResult::advance();
            })
            .wasInterrupted())
      return signalPassFailure();
    DataFlowSolver solver;
    dataflow::loadBaselineAnalyses(solver);
    solver.load<RangeAnalysis>();
    if (failed(solver.initializeAndRun(getOperation())))
      return signalPassFailure();
    Narrower(getOperation(), solver).run();
  }
};

} // namespace

// tile.map as loops over vectors.
//
// Laid out by columns (or with one column), a vector holds rows of one column: the outer
// loop goes over vectors of rows, the inner one over columns, and a combined result is a
// vector carried by the inner loop. By rows, a vector holds columns of one row, and the
// combined result is reduced across lanes at the end of the row.
#include "codegen/cpu/tovector/Lowering.h"
#include "codegen/cpu/tovector/Vectorizer.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <limits>

using namespace mlir;
using namespace llmopt;
using namespace llmopt::cpu;

namespace {

struct MapEmitter {
  Emit &emit;
  tile::MapOp map;
  SmallVector<Buffer> inputs, results;
  int64_t rows, columns;
  bool lanesOverRows;
  int64_t width = 0;                ///< lanes of a vector here
  SmallVector<Value> unpaired = {}; ///< results of one column that wait for the next

  SmallVector<unsigned> combined() {
    SmallVector<unsigned> found;
    for (unsigned i = 0; i < results.size(); ++i)
      if (map.getCombiner(i) != tile::Combiner::None)
        found.push_back(i);
    return found;
  }
  int64_t laneExtent() const { return lanesOverRows ? rows : columns; }

  void run();
  void chooseWidth();
  Type elementOf(unsigned result) {
    return cast<RankedTensorType>(map.getResult(result).getType()).getElementType();
  }
  Value load(unsigned input, Value row, Value column);
  Value identity(unsigned result, Type type);
  Value combine(unsigned result, Value a, Value b);
  SmallVector<Value> element(Value row, Value column, ValueRange carried);
  SmallVector<Value> twoColumns(Value row, Value column, bool both, ValueRange carried);
  void overRows(Emit::Body body);
  void runByColumns(llvm::function_ref<SmallVector<Value>()> start,
                    llvm::function_ref<void(ValueRange, Value)> finish);
  void storeCombined(Value vector, unsigned result, Value lane);
};

void MapEmitter::chooseWidth() {
  // Several registers at once hide latencies: two in an exponential, which would spill
  // with four, and four where there are only a few cheap ops (a running maximum).
  int64_t padded = llvm::alignTo(laneExtent(), emit.target.lanes);
  bool heavy = llvm::any_of(map.getBody().front(), [](Operation &op) {
    return llvm::isa<math::MathDialect>(op.getDialect());
  });
  // Addresses fill two registers a vector already, and LLVM is slow at wider ones.
  bool addresses = llvm::any_of(map.getBody().front(), [](Operation &op) {
    return llvm::any_of(op.getResultTypes(),
                        [](Type type) { return type.isIndex() || type.isInteger(64); });
  });
  int64_t most = emit.target.registers < 32 || addresses ? 1 : heavy ? 2 : 4;
  width = emit.target.lanes;
  while (width < most * emit.target.lanes && padded % (2 * width) == 0)
    width *= 2;
}

/// The operand's elements at (row, column): a vector along the lanes, or a scalar when it
/// is the same for all of them.
Value MapEmitter::load(unsigned input, Value row, Value column) {
  const Buffer &buffer = inputs[input];
  bool oneRow = buffer.shape.rows == 1 && rows != 1;
  bool oneColumn = buffer.shape.columns == 1 && columns != 1;
  if (oneRow)
    row = emit.idx(0);
  if (oneColumn)
    column = emit.idx(0);
  bool uniform = lanesOverRows ? buffer.shape.rows == 1 : buffer.shape.columns == 1;
  if (uniform)
    return emit.loadElement(buffer, row, column);
  if (buffer.shape.lanesOverRows == lanesOverRows && !buffer.shape.pairs)
    return lanesOverRows ? emit.loadVector(buffer, column, row, width)
                         : emit.loadVector(buffer, row, column, width);
  // The other order, or pairs: element by element, inside the tile's padding along its own run.
  Type stored = buffer.shape.isBool ? emit.getI1Type() : buffer.shape.element;
  Value vector = emit.zero(emit.vec(width, stored));
  int64_t last = laneExtent() - 1;
  for (int64_t i = 0; i < width; ++i) {
    Value lane = emit.minIndex(emit.add(lanesOverRows ? row : column, i), emit.idx(last));
    Value one = lanesOverRows ? emit.loadElement(buffer, lane, column)
                              : emit.loadElement(buffer, row, lane);
    vector = vector::InsertOp::create(emit, one, vector, i);
  }
  return vector;
}

Value MapEmitter::identity(unsigned result, Type type) {
  if (map.getCombiner(result) == tile::Combiner::Sum)
    return emit.zero(type);
  Type element = elementOf(result);
  if (isa<FloatType>(element))
    return emit.constant(type, -std::numeric_limits<double>::infinity());
  return emit.constant(
      type, element.isInteger(1) ? 0 : double(llvm::minIntN(element.getIntOrFloatBitWidth())));
}

Value MapEmitter::combine(unsigned result, Value a, Value b) {
  bool sum = map.getCombiner(result) == tile::Combiner::Sum;
  if (isa<FloatType>(elementOf(result))) {
    if (sum)
      return arith::AddFOp::create(emit, a, b);
    // Propagates NaN; -0 and +0 are one maximum, which saves half the instructions.
    return arith::MaximumFOp::create(emit, a, b, arith::FastMathFlags::nsz);
  }
  if (sum)
    return arith::AddIOp::create(emit, a, b);
  return arith::MaxSIOp::create(emit, a, b);
}

/// Runs the region for the vector at (row, column); stores full results and returns the
/// combined ones, folded into `carried`.
SmallVector<Value> MapEmitter::element(Value row, Value column, ValueRange carried) {
  RegionVectorizer vectorizer(emit, width);
  Block &block = map.getBody().front();
  for (unsigned i = 0; i < inputs.size(); ++i)
    if (!block.getArgument(i).use_empty())
      vectorizer.bind(block.getArgument(i), load(i, row, column));
  Value lane = lanesOverRows ? row : column, other = lanesOverRows ? column : row;
  Value laneIndex, mask;
  bool padded = laneExtent() % width != 0;
  Value laneArgument = lanesOverRows ? map.getRowIndex() : map.getColumnIndex();
  Value otherArgument = lanesOverRows ? map.getColumnIndex() : map.getRowIndex();
  auto toI32 = [&](Value value) {
    return arith::IndexCastOp::create(emit, emit.getI32Type(), value).getResult();
  };
  if (padded || !laneArgument.use_empty())
    laneIndex = emit.iota(width, toI32(lane));
  if (padded) {
    Value bound = emit.constant(laneIndex.getType(), laneExtent());
    mask = arith::CmpIOp::create(emit, arith::CmpIPredicate::slt, laneIndex, bound);
    vectorizer.setMask(mask);
  }
  if (!laneArgument.use_empty())
    vectorizer.bind(laneArgument, laneIndex);
  if (!otherArgument.use_empty())
    vectorizer.bind(otherArgument, toI32(other));
  SmallVector<Value> values = vectorizer.run(map), next;
  emit.setLoc(map.getLoc());
  for (unsigned i = 0; i < results.size(); ++i) {
    if (results[i].shape.pairs) {
      unpaired.push_back(values[i]);
      continue;
    }
    if (map.getCombiner(i) == tile::Combiner::None) {
      lanesOverRows ? emit.storeVector(values[i], results[i], column, row)
                    : emit.storeVector(values[i], results[i], row, column);
      continue;
    }
    Value value = values[i];
    if (mask && !lanesOverRows) // padding must not enter a sum across lanes
      value = arith::SelectOp::create(emit, mask, value, identity(i, value.getType()));
    next.push_back(combine(i, carried[next.size()], value));
  }
  return next;
}

void MapEmitter::storeCombined(Value vector, unsigned result, Value lane) {
  if (lanesOverRows)
    return emit.storeVector(vector, results[result], emit.idx(0), lane);
  bool sum = map.getCombiner(result) == tile::Combiner::Sum;
  bool real = isa<FloatType>(elementOf(result));
  auto kind = sum ? vector::CombiningKind::ADD
                  : (real ? vector::CombiningKind::MAXIMUMF : vector::CombiningKind::MAXSI);
  // A tree over the lanes: the order is fixed by the width, not by the data.
  auto flags = sum ? arith::FastMathFlags::reassoc : arith::FastMathFlags::nsz;
  Value total =
      vector::ReductionOp::create(emit, kind, vector, real ? flags : arith::FastMathFlags::none);
  emit.storeElement(total, results[result], lane, emit.idx(0));
}

/// Columns `column` and, if `both`, the next; the pairs that they make are stored.
SmallVector<Value> MapEmitter::twoColumns(Value row, Value column, bool both, ValueRange carried) {
  unpaired.clear();
  SmallVector<Value> totals = element(row, column, carried);
  SmallVector<Value> first = std::exchange(unpaired, {});
  if (both)
    totals = element(row, emit.add(column, 1), totals);
  SmallVector<Value> second = std::exchange(unpaired, {});
  unsigned next = 0;
  for (const Buffer &result : results)
    if (result.shape.pairs) {
      Value other = both ? second[next] : emit.zero(first[next].getType());
      emit.storePair(first[next++], other, result, column, row);
    }
  return totals;
}

void MapEmitter::overRows(Emit::Body body) {
  for (const Buffer &buffer : llvm::concat<const Buffer>(results, inputs))
    if (buffer.firstRow)
      return emit.loop(buffer.firstRow, buffer.endRow, width, body);
  emit.loop(0, llvm::alignTo(rows, emit.target.lanes), width, body);
}

void MapEmitter::runByColumns(llvm::function_ref<SmallVector<Value>()> start,
                              llvm::function_ref<void(ValueRange, Value)> finish) {
  bool pairs = llvm::any_of(results, [](const Buffer &result) { return result.shape.pairs; });
  overRows([&](Value row) {
    if (!pairs)
      return finish(emit.loop(0, columns, 1, start(),
                              [&](Value column, ValueRange carried) {
                                return element(row, column, carried);
                              }),
                    row);
    int64_t even = columns / 2 * 2;
    SmallVector<Value> totals =
        emit.loop(0, even, 2, start(), [&](Value column, ValueRange carried) {
          return twoColumns(row, column, /*both=*/true, carried);
        });
    if (even < columns)
      totals = twoColumns(row, emit.idx(even), /*both=*/false, totals);
    finish(totals, row);
  });
}

void MapEmitter::run() {
  chooseWidth();
  SmallVector<unsigned> folds = combined();
  auto start = [&] {
    SmallVector<Value> inits;
    for (unsigned i : folds)
      inits.push_back(identity(i, emit.vec(width, elementOf(i))));
    return inits;
  };
  auto finish = [&](ValueRange totals, Value at) {
    for (auto [i, total] : llvm::enumerate(totals))
      storeCombined(total, folds[i], at);
  };
  if (lanesOverRows)
    return runByColumns(start, finish);
  emit.loop(0, rows, 1, [&](Value row) {
    finish(
        emit.loop(0, llvm::alignTo(columns, emit.target.lanes), width, start(),
                  [&](Value column, ValueRange carried) { return element(row, column, carried); }),
        row);
  });
}

} // namespace

LogicalResult Lowering::lowerMap(tile::MapOp op) {
  if (failed(checkVectorisable(op)))
    return failure();
  Emit emit = emitAt(op);
  auto [rows, columns] = op.getSpace();
  MapEmitter emitter{emit, op, {}, {}, rows, columns, columns == 1};
  bool decided = columns == 1;
  auto decide = [&](Value value) {
    auto type = cast<RankedTensorType>(value.getType());
    if (decided || type.getDimSize(0) != rows || type.getDimSize(1) != columns)
      return;
    decided = true;
    emitter.lanesOverRows = hasColumnOrder(type);
  };
  llvm::for_each(op.getResults(), decide);
  llvm::for_each(op.getInputs(), decide);
  for (Value result : op.getResults()) {
    auto type = cast<RankedTensorType>(result.getType());
    if (type.getDimSize(1) != 1 && hasColumnOrder(type) != emitter.lanesOverRows)
      return op.emitOpError("has full results of both orders; run tile-cpu-assign-order");
    emitter.results.push_back(buffer(result));
  }
  for (Value input : op.getInputs())
    emitter.inputs.push_back(buffer(input));
  emitter.run();
  return success();
}

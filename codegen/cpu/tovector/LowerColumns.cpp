// tile.reduce_columns. By rows it is a vector maximum or sum down the rows; by columns
// each column is one run of memory, reduced across lanes.
#include "codegen/cpu/tovector/Lowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace llmopt;
using namespace llmopt::cpu;

namespace {

Value combine(Emit &emit, tile::Combiner combiner, Value a, Value b) {
  bool isFloat = isa<FloatType>(getElementTypeOrSelf(a.getType()));
  if (combiner == tile::Combiner::Sum)
    return isFloat ? Value(arith::AddFOp::create(emit, a, b))
                   : Value(arith::AddIOp::create(emit, a, b));
  return isFloat ? Value(arith::MaximumFOp::create(emit, a, b, arith::FastMathFlags::nsz))
                 : Value(arith::MaxSIOp::create(emit, a, b));
}

} // namespace

void Lowering::lowerReduceColumns(tile::ReduceColumnsOp op) {
  Emit emit = emitAt(op);
  Buffer source = buffer(op.getTile()), result = buffer(op.getResult());
  int64_t rows = source.shape.rows, columns = source.shape.columns;
  tile::Combiner combiner = op.getCombiner();
  if (!source.shape.lanesOverRows) {
    // Padding columns are combined too and never read.
    int64_t width = target.lanes;
    emit.loop(0, columns, width, [&](Value column) {
      Value start = emit.loadVector(source, emit.idx(0), column, width);
      Value all =
          emit.loop(1, rows, 1, {start}, [&](Value row, ValueRange carried) -> SmallVector<Value> {
            return {
                combine(emit, combiner, carried[0], emit.loadVector(source, row, column, width))};
          })[0];
      emit.storeVector(all, result, emit.idx(0), column);
    });
    return;
  }
  int64_t whole = rows / target.lanes * target.lanes;
  emit.loop(0, columns, 1, [&](Value column) {
    Value all;
    if (whole > 0) {
      Value start = emit.loadVector(source, column, emit.idx(0), target.lanes);
      Value vector = emit.loop(target.lanes, whole, target.lanes, {start},
                               [&](Value row, ValueRange carried) -> SmallVector<Value> {
                                 Value next = emit.loadVector(source, column, row, target.lanes);
                                 return {combine(emit, combiner, carried[0], next)};
                               })[0];
      bool isFloat = isa<FloatType>(getElementTypeOrSelf(vector.getType()));
      auto kind = combiner == tile::Combiner::Sum ? vector::CombiningKind::ADD
                  : isFloat                       ? vector::CombiningKind::MAXIMUMF
                                                  : vector::CombiningKind::MAXSI;
      all = vector::ReductionOp::create(emit, kind, vector, arith::FastMathFlags::reassoc);
    }
    for (int64_t row = whole; row < rows; ++row) {
      Value one = emit.loadElement(source, emit.idx(row), column);
      all = all ? combine(emit, combiner, all, one) : one;
    }
    emit.storeElement(all, result, column, emit.idx(0));
  });
}

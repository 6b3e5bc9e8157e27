// Scalar region to vector ops.
#include "codegen/cpu/tovector/Vectorizer.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace llmopt;
using namespace llmopt::cpu;

namespace {

bool divides(Operation &op) {
  return isa<arith::DivSIOp, arith::DivUIOp, arith::RemSIOp, arith::RemUIOp, arith::CeilDivSIOp,
             arith::CeilDivUIOp, arith::FloorDivSIOp>(op);
}

} // namespace

LogicalResult llmopt::cpu::checkVectorisable(tile::MapOp map) {
  for (Operation &op : map.getBody().front().without_terminator()) {
    if (auto load = dyn_cast<memref::LoadOp>(op)) {
      if (load.getMemRefType().getRank() != 1)
        return load.emitOpError() << "loads from " << load.getMemRefType()
                                  << " inside a map; a 1-D memref is wanted";
      if (load.getMemRefType().getElementTypeBitWidth() < 8)
        return load.emitOpError() << "gathers elements of " << load.getMemRefType().getElementType()
                                  << "; elements of a byte or more are wanted";
      continue;
    }
    bool known = isa<arith::ArithDialect, math::MathDialect>(op.getDialect());
    if (!known || (!isa<arith::ConstantOp>(op) && !OpTrait::hasElementwiseMappableTraits(&op)))
      return op.emitOpError("cannot be vectorised inside a tile.map; arith and math ops on scalars "
                            "and memref.load are allowed");
  }
  return success();
}

Value RegionVectorizer::lookup(Value value) {
  auto it = values.find(value);
  return it == values.end() ? value : it->second; // captured from outside: uniform
}

Value RegionVectorizer::widened(Value value) {
  return isa<VectorType>(value.getType()) ? value : emit.splat(value, lanes);
}

SmallVector<Value> RegionVectorizer::run(tile::MapOp map) {
  Block &block = map.getBody().front();
  for (Operation &op : block.without_terminator())
    clone(op);
  SmallVector<Value> results;
  for (Value value : block.getTerminator()->getOperands())
    results.push_back(widened(lookup(value)));
  return results;
}

void RegionVectorizer::clone(Operation &op) {
  emit.setLoc(op.getLoc());
  auto uniform = [&](Value value) { return !isa<VectorType>(lookup(value).getType()); };
  if (llvm::all_of(op.getOperands(), uniform)) {
    IRMapping mapping;
    for (Value operand : op.getOperands())
      mapping.map(operand, lookup(operand));
    Operation *copy = emit.clone(op, mapping);
    for (auto [result, value] : llvm::zip(op.getResults(), copy->getResults()))
      values[result] = value;
    return;
  }
  if (isa<memref::LoadOp>(op)) {
    values[op.getResult(0)] = gather(op);
    return;
  }
  SmallVector<Value> operands;
  for (Value operand : op.getOperands())
    operands.push_back(widened(lookup(operand)));
  if (mask && divides(op))
    guardDivisor(op, operands);
  OperationState state(op.getLoc(), op.getName(), operands, TypeRange{},
                       llvm::to_vector(op.getDiscardableAttrs()));
  state.propertiesAttr = op.getPropertiesAsAttribute();
  for (Type type : op.getResultTypes())
    state.addTypes(emit.vec(lanes, type));
  Operation *wide = emit.create(state);
  for (auto [result, value] : llvm::zip(op.getResults(), wide->getResults()))
    values[result] = value;
}

/// Lanes outside the tile hold anything; as a divisor, a zero would trap.
void RegionVectorizer::guardDivisor(Operation &op, SmallVector<Value> &operands) {
  Value one = emit.constant(operands[1].getType(), 1);
  operands[1] = arith::SelectOp::create(emit, mask, operands[1], one);
}

Value RegionVectorizer::gather(Operation &op) {
  auto load = cast<memref::LoadOp>(op);
  Type element = load.getMemRefType().getElementType();
  Value all = mask;
  if (!all)
    all = emit.constant(emit.vec(lanes, emit.getI1Type()), 1);
  auto type = emit.vec(lanes, element);
  return vector::GatherOp::create(emit, type, load.getMemRef(), ValueRange{emit.idx(0)},
                                  lookup(load.getIndices().front()), all, emit.zero(type));
}

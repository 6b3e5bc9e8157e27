// Idioms of vector code.
#include "codegen/cpu/tovector/Emit.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace llmopt::cpu;

Value Emit::idx(int64_t value) { return arith::ConstantIndexOp::create(*this, value); }

Value Emit::add(Value a, int64_t b) { return b == 0 ? a : add(a, idx(b)); }
Value Emit::add(Value a, Value b) { return createOrFold<arith::AddIOp>(a, b); }
Value Emit::mul(Value a, Value b) { return createOrFold<arith::MulIOp>(a, b); }
Value Emit::minIndex(Value a, Value b) { return createOrFold<arith::MinSIOp>(a, b); }
Value Emit::maxIndex(Value a, Value b) { return createOrFold<arith::MaxSIOp>(a, b); }

void Emit::loop(int64_t low, int64_t high, int64_t step, Body body) {
  if (low >= high)
    return;
  if (low + step >= high)
    return body(idx(low));
  loop(idx(low), idx(high), step, body);
}

void Emit::loop(Value low, Value high, int64_t step, Body body) {
  auto loop = scf::ForOp::create(*this, low, high, idx(step));
  InsertionGuard guard(*this);
  setInsertionPointToStart(loop.getBody());
  body(loop.getInductionVar());
}

SmallVector<Value> Emit::loop(int64_t low, int64_t high, int64_t step, ValueRange inits,
                              CarryBody body) {
  if (low >= high)
    return SmallVector<Value>(inits);
  if (low + step >= high)
    return body(idx(low), inits);
  auto loop = scf::ForOp::create(*this, idx(low), idx(high), idx(step), inits);
  InsertionGuard guard(*this);
  setInsertionPointToStart(loop.getBody());
  SmallVector<Value> next = body(loop.getInductionVar(), loop.getRegionIterArgs());
  // A loop without carried values is built with its terminator.
  if (!inits.empty())
    scf::YieldOp::create(*this, next);
  return loop.getResults();
}

void Emit::overLanes(const Buffer &buffer, int64_t step, Body body) {
  if (!buffer.firstRow)
    return loop(0, buffer.shape.inner, step, body);
  Value perRow = idx(buffer.shape.pairs ? 2 : 1);
  loop(mul(buffer.firstRow, perRow), mul(buffer.endRow, perRow), step, body);
}

void Emit::branch(Value condition, llvm::function_ref<void()> yes, llvm::function_ref<void()> no) {
  auto op = scf::IfOp::create(*this, TypeRange{}, condition, /*withElseRegion=*/true);
  InsertionGuard guard(*this);
  setInsertionPointToStart(op.thenBlock());
  yes();
  setInsertionPointToStart(op.elseBlock());
  no();
}

VectorType Emit::vec(int64_t lanes, Type element) { return VectorType::get({lanes}, element); }

Value Emit::splat(Value scalar, int64_t lanes) {
  return vector::BroadcastOp::create(*this, vec(lanes, scalar.getType()), scalar);
}

Value Emit::zero(Type type) { return arith::ConstantOp::create(*this, getZeroAttr(type)); }

Value Emit::constant(Type type, double value) {
  TypedAttr attr;
  Type element = getElementTypeOrSelf(type);
  if (isa<FloatType>(element))
    attr = getFloatAttr(element, value);
  else
    attr = getIntegerAttr(element, int64_t(value));
  if (auto vector = dyn_cast<VectorType>(type))
    attr = DenseElementsAttr::get(vector, Attribute(attr));
  return arith::ConstantOp::create(*this, attr);
}

Value Emit::iota(int64_t lanes, Value first) {
  SmallVector<int32_t> steps(lanes);
  for (auto [i, step] : llvm::enumerate(steps))
    step = i;
  Value offsets = arith::ConstantOp::create(
      *this, DenseElementsAttr::get(vec(lanes, getI32Type()), ArrayRef<int32_t>(steps)));
  return arith::AddIOp::create(*this, splat(first, lanes), offsets);
}

Value Emit::fma(Value a, Value b, Value c) {
  if (target.fma)
    return math::FmaOp::create(*this, a, b, c);
  return arith::AddFOp::create(*this, arith::MulFOp::create(*this, a, b), c);
}

Value Emit::toMemory(Value value, const TileShape &shape) {
  if (!shape.isBool)
    return value;
  Type byte = shape.element;
  if (auto vector = dyn_cast<VectorType>(value.getType()))
    byte = vector.clone(byte);
  return arith::ExtUIOp::create(*this, byte, value);
}

Value Emit::fromMemory(Value value, const TileShape &shape) {
  if (!shape.isBool)
    return value;
  Type boolean = getI1Type();
  if (auto vector = dyn_cast<VectorType>(value.getType()))
    boolean = vector.clone(boolean);
  return arith::TruncIOp::create(*this, boolean, value);
}

Value Emit::loadVector(const Buffer &buffer, Value outer, Value inner, int64_t lanes) {
  Value value = vector::LoadOp::create(*this, vec(lanes, buffer.shape.element), buffer.memory,
                                       ValueRange{outer, inner});
  return fromMemory(value, buffer.shape);
}

void Emit::storeVector(Value vector, const Buffer &buffer, Value outer, Value inner) {
  vector::StoreOp::create(*this, toMemory(vector, buffer.shape), buffer.memory,
                          ValueRange{outer, inner});
}

SmallVector<Value, 2> Emit::indices(const Buffer &buffer, Value row, Value column) {
  if (!buffer.shape.lanesOverRows)
    return {row, column};
  if (!buffer.shape.pairs)
    return {column, row};
  Value half = createOrFold<arith::ShRUIOp>(column, idx(1));
  Value odd = createOrFold<arith::AndIOp>(column, idx(1));
  return {half, add(mul(row, idx(2)), odd)};
}

void Emit::storePair(Value first, Value second, const Buffer &buffer, Value column, Value row) {
  Value both = vector::InterleaveOp::create(*this, first, second);
  vector::StoreOp::create(*this, both, buffer.memory, indices(buffer, row, column));
}

Value Emit::loadElement(const Buffer &buffer, Value row, Value column) {
  Value value = memref::LoadOp::create(*this, buffer.memory, indices(buffer, row, column));
  return fromMemory(value, buffer.shape);
}

void Emit::storeElement(Value value, const Buffer &buffer, Value row, Value column) {
  memref::StoreOp::create(*this, toMemory(value, buffer.shape), buffer.memory,
                          indices(buffer, row, column));
}

void Emit::fill(const Buffer &buffer, Value scalar) {
  int64_t lanes = target.lanes;
  Value value = splat(scalar, lanes);
  loop(0, buffer.shape.outer, 1, [&](Value o) {
    overLanes(buffer, lanes, [&](Value i) { storeVector(value, buffer, o, i); });
  });
}

void Emit::copy(const Buffer &from, const Buffer &to) {
  int64_t lanes = target.lanes;
  loop(0, from.shape.outer, 1, [&](Value o) {
    overLanes(to, lanes, [&](Value i) { storeVector(loadVector(from, o, i, lanes), to, o, i); });
  });
}

Value Emit::convert(Value value, Type element) {
  Type from = getElementTypeOrSelf(value.getType());
  if (from == element)
    return value;
  Type to = element;
  if (auto vector = dyn_cast<VectorType>(value.getType()))
    to = vector.clone(element);
  if (from.getIntOrFloatBitWidth() < element.getIntOrFloatBitWidth())
    return arith::ExtFOp::create(*this, to, value);
  return arith::TruncFOp::create(*this, to, value);
}

SmallVector<std::pair<int64_t, int64_t>> llmopt::cpu::chunks(int64_t count, int64_t most) {
  SmallVector<std::pair<int64_t, int64_t>> parts;
  for (int64_t at = 0, size = most; at < count;) {
    while (size > count - at)
      size /= 2;
    parts.push_back({at, size});
    at += size;
  }
  return parts;
}

// See ScoreMap.h.
#include "passes/attn/ScoreMap.h"

#include "mlir/IR/Matchers.h"

#include <cmath>
#include <numbers>

using namespace mlir;
using namespace llmopt;
using Pred = arith::CmpIPredicate;

ScoreMap::ScoreMap(KernelBuilder &k, const RowTiles &rows, Value keyBase, Value keyEnd,
                   int64_t slices)
    : PairEmitter(region, k.loc), k(k), rows(rows), keyBase(keyBase), keyEnd(keyEnd),
      slices(slices), block(new Block), region(k.b.getContext()) {
  block->addArguments({k.b.getI32Type(), k.b.getI32Type()}, {k.loc, k.loc});
  region.setInsertionPointToStart(block);
  key = arith::AddIOp::create(region, slices > 1 ? k.loc : k.named("key"), k.toI32(keyBase),
                              block->getArgument(1));
}

/// Keys of slice i of the rows begin i * columns further on.
void ScoreMap::moveToSlice(RankedTensorType products) {
  auto constant = [&](int64_t value) -> Value {
    return arith::ConstantOp::create(region, k.loc, region.getI32IntegerAttr(value));
  };
  Value row = block->getArguments().drop_back().back();
  Value slice = arith::DivUIOp::create(region, k.named("slice"), row,
                                       constant(products.getDimSize(0) / slices));
  Value before = arith::MulIOp::create(region, k.named("keys_of_earlier_slices"), slice,
                                       constant(products.getDimSize(1)));
  key = arith::AddIOp::create(region, k.named("key"), key, before);
}

void RowTiles::placeByTree(KernelBuilder &k) {
  Value base = k.toI32(k.sub(keyLen, queryLen));
  position = KernelBuilder::called(
      "tree_position", k.map(cast<RankedTensorType>(position.getType()), {treeSet, query},
                             [&](OpBuilder &b, ValueRange x, Value, Value) -> SmallVector<Value> {
                               return {attn::emitTreePosition(b, k.loc, x[0], base, x[1])};
                             }));
}

ScoreMap::~ScoreMap() { delete block; }

Value ScoreMap::input(Value tile) {
  for (auto [i, known] : llvm::enumerate(inputs))
    if (known == tile)
      return block->getArgument(i);
  inputs.push_back(tile);
  Type element = cast<RankedTensorType>(tile.getType()).getElementType();
  return block->insertArgument(inputs.size() - 1, element, k.loc);
}

Value ScoreMap::keyPosition() {
  if (!rows.treeSet)
    return key;
  if (!treePosition) {
    Value base = arith::SubIOp::create(region, k.loc, keyLength(), queryLength());
    Value own = arith::SubIOp::create(region, k.loc, key, base);
    treePosition = attn::emitTreePosition(region, k.loc, input(rows.treeSet), base, own);
  }
  return treePosition;
}

Value ScoreMap::number(Attribute owner, unsigned index) {
  NumberSlot slot = k.signature.number(owner, index);
  if (slot.buffer >= 0)
    return input(rows.perHead.lookup(slot.buffer));
  Value value = k.scalar(slot.scalar);
  return slot.isFloat ? value : k.toI32(value);
}

Value ScoreMap::element(unsigned arg) {
  int buffer = k.signature.findArg(arg);
  int64_t rowCount = cast<RankedTensorType>(rows.position.getType()).getDimSize(0);
  auto products = cast<RankedTensorType>(inputs.front().getType());
  Type memory = k.elementType(buffer);
  Type value = isa<FloatType>(memory) ? Type(k.b.getF32Type()) : memory;
  auto type = k.tileType(rowCount, products.getDimSize(1), value);
  Value tile =
      tile::LoadOp::create(k.b, k.loc, type, k.pointer(buffer), rows.addresses.lookup(buffer),
                           keyBase, k.stride(buffer, 3), keyEnd, slices);
  Value element = input(tile);
  if (isa<FloatType>(value))
    return element;
  Value zero = arith::ConstantOp::create(region, k.loc, region.getIntegerAttr(value, 0));
  return arith::CmpIOp::create(region, k.loc, Pred::ne, element, zero);
}

Value ScoreMap::captured(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    Value scalar = k.scalar(k.signature.captured(argument));
    if (scalar.getType() == value.getType())
      return scalar;
    if (value.getType().isIntOrIndex())
      return arith::IndexCastOp::create(region, k.loc, value.getType(), scalar);
    // f16 and bf16 are held as f32 in the plan.
    return arith::TruncFOp::create(region, k.loc, value.getType(), scalar);
  }
  return region.clone(*value.getDefiningOp())->getResult(0);
}

/// Integer division of a custom region (AttnOps.td): 0 where the divisor is 0. On a CPU
/// that would trap, as would the smallest integer divided by -1, which wraps here.
void ScoreMap::defineDivision(Operation *op, IRMapping &mapping, Operation &original) {
  if (!isa<arith::DivSIOp, arith::DivUIOp, arith::RemSIOp, arith::RemUIOp, arith::FloorDivSIOp,
           arith::CeilDivSIOp, arith::CeilDivUIOp>(op))
    return;
  Value value = op->getOperand(0), divisor = op->getOperand(1);
  IntegerAttr known;
  if (matchPattern(divisor, m_Constant(&known)) && !known.getValue().isZero())
    return;
  unsigned width = divisor.getType().isIndex() ? 64 : divisor.getType().getIntOrFloatBitWidth();
  auto constant = [&](APInt bits) -> Value {
    return arith::ConstantOp::create(region, k.loc, IntegerAttr::get(divisor.getType(), bits));
  };
  auto equals = [&](Value x, Value y) -> Value {
    return arith::CmpIOp::create(region, k.loc, Pred::eq, x, y);
  };
  region.setInsertionPoint(op);
  Value zero = constant(APInt::getZero(width)), one = constant(APInt(width, 1));
  Value isZero = equals(divisor, zero);
  Value wraps =
      arith::AndIOp::create(region, k.loc, equals(divisor, constant(APInt::getAllOnes(width))),
                            equals(value, constant(APInt::getSignedMinValue(width))));
  Value traps = arith::OrIOp::create(region, k.loc, isZero, wraps);
  if (isa<arith::DivUIOp, arith::RemUIOp, arith::CeilDivUIOp>(op))
    traps = isZero;
  op->setOperand(1, arith::SelectOp::create(region, k.loc, traps, one, divisor));
  region.setInsertionPointToEnd(block);
  mapping.map(original.getResult(0),
              arith::SelectOp::create(region, k.loc, isZero, zero, op->getResult(0)).getResult());
}

Value ScoreMap::inlineRegion(unsigned index, Value score) {
  attn::AttentionOp op = k.signature.attention;
  Block &body = op.getBodies()[index].front();
  IRMapping mapping;
  SmallVector<Value> pair{batch(), head(), queryPosition(), keyPosition()};
  unsigned first = score ? 1 : 0;
  if (score)
    mapping.map(body.getArgument(0), score);
  for (auto [i, value] : llvm::enumerate(pair))
    mapping.map(
        body.getArgument(first + i),
        arith::IndexCastOp::create(region, k.loc, region.getIndexType(), value).getResult());
  for (Operation &inner : body.without_terminator()) {
    for (Value operand : inner.getOperands())
      if (!mapping.contains(operand))
        mapping.map(operand, captured(operand));
    defineDivision(region.clone(inner, mapping), mapping, inner);
  }
  Value result = body.getTerminator()->getOperand(0);
  return mapping.contains(result) ? mapping.lookup(result) : captured(result);
}

Value ScoreMap::modify(Value score) {
  attn::AttentionOp op = k.signature.attention;
  auto inLog2 = [&](OpBuilder &b, Value x) -> Value {
    Value log2e = arith::ConstantOp::create(b, k.loc, b.getF32FloatAttr(std::numbers::log2e));
    return arith::MulFOp::create(b, k.loc, x, log2e);
  };
  ArrayAttr modifications = op.getScoresAttr();
  Value scale = number(Attribute(), 0);
  if (!modifications && !isa<BlockArgument>(scale)) // one factor for all: made outside
    return arith::MulFOp::create(region, k.loc, score,
                                 KernelBuilder::called("scale_log2", inLog2(k.b, scale)));
  score = arith::MulFOp::create(region, k.loc, score, scale);
  if (modifications)
    for (Attribute modification : modifications)
      score = cast<attn::ScoreAttrInterface>(modification).emitScore(*this, score);
  return inLog2(region, score);
}

/// With a name, where an operation made it.
static Value called(StringRef name, Value value) {
  return value.getDefiningOp() ? KernelBuilder::called(name, value) : value;
}

Value ScoreMap::hide(Value score, Value keyBegin) {
  attn::AttentionOp op = k.signature.attention;
  // begin <= key < end, as one comparison: what lies before begin wraps around.
  Value begin = k.toI32(keyBegin);
  Value count = KernelBuilder::called("key_count", k.toI32(k.sub(keyEnd, keyBegin)));
  Value visible = arith::CmpIOp::create(region, k.named("is_of_item"), Pred::ult,
                                        arith::SubIOp::create(region, k.loc, key, begin), count);
  if (attn::MaskAttrInterface mask = op.getMaskInterface())
    visible = arith::AndIOp::create(region, k.named("visible"), visible,
                                    called("mask_shows", mask.emitPredicate(*this)));
  Value hidden = arith::ConstantOp::create(region, k.loc, region.getF32FloatAttr(-INFINITY));
  return arith::SelectOp::create(region, k.loc, visible, score, hidden);
}

Value ScoreMap::buildRange(Value scores, Value first, Value count) {
  Value score = begin(scores);
  // first <= key < first + count, as one comparison: what lies before wraps around.
  Value place = arith::SubIOp::create(region, k.named("since_first"), key, input(first));
  Value visible = arith::CmpIOp::create(region, k.named("visible"), Pred::ult, place, input(count));
  Value hidden = arith::ConstantOp::create(region, k.loc, region.getF32FloatAttr(-INFINITY));
  return finish(scores.getType(), arith::SelectOp::create(region, k.loc, visible, score, hidden));
}

/// The element of `tile`, which the map is about.
Value ScoreMap::begin(Value tile) {
  Value element = input(tile);
  if (slices > 1)
    moveToSlice(cast<RankedTensorType>(tile.getType()));
  return element;
}

Value ScoreMap::finish(Type type, Value score) {
  tile::YieldOp::create(region, k.loc, ValueRange{score});
  auto map = tile::MapOp::create(k.b, k.loc, TypeRange{type}, inputs, ArrayAttr());
  map.getBody().push_back(block);
  block = nullptr;
  return map.getResult(0);
}

Value ScoreMap::build(Value products, Value keyBegin) {
  Value score = modify(begin(products));
  if (keyBegin)
    score = hide(score, keyBegin);
  attn::AttentionOp op = k.signature.attention;
  return KernelBuilder::noted(op.getScoresAttr()
                                  ? "Scale and modifications, in units of log 2."
                                  : "Scale, in units of log 2: exponentials are powers of 2.",
                              finish(products.getType(), score));
}

Value ScoreMap::buildMask(Value scores, Value keyBegin) {
  return finish(scores.getType(), hide(begin(scores), keyBegin));
}

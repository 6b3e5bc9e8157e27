#include "tests/unit/attn/Interpreter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/TypeSwitch.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

using namespace mlir;
using namespace llmopt::attn;
using namespace llmopt::attn::test;

/// Arguments of the block, numbers of the op after them.
enum Place {
  Position,
  Key,
  Index,
  Batch,
  Head,
  Queries,
  Keys,
  Set,
  Boolean,
  Element,
  Score,
  Numbers
};

class ScalarProgram::Emitter final : public PairEmitter {
public:
  Emitter(const ParsedMask &mask, Block &block, OpBuilder &b)
      : PairEmitter(b, b.getUnknownLoc()), mask(mask), block(block) {}

  Value queryPosition() override {
    return treeOf(mask.mask) ? placed(queryIndex()) : block.getArgument(Position);
  }
  Value keyPosition() override {
    if (!treeOf(mask.mask))
      return keyIndex();
    Value base = arith::SubIOp::create(b, location, keyLength(), queryLength());
    return placed(arith::SubIOp::create(b, location, keyIndex(), base));
  }
  Value keyIndex() override { return block.getArgument(Key); }
  Value querySet(unsigned) override { return block.getArgument(Set); }
  Value queryIndex() override { return block.getArgument(Index); }
  Value batch() override { return block.getArgument(Batch); }
  Value head() override { return block.getArgument(Head); }
  Value queryLength() override { return block.getArgument(Queries); }
  Value keyLength() override { return block.getArgument(Keys); }
  Value number(Attribute owner, unsigned index) override {
    return block.getArgument(Numbers + mask.slotOf(owner, index));
  }
  Value element(unsigned arg) override {
    auto type = cast<RankedTensorType>(AttentionOp(mask.op).getArgs()[arg].getType());
    return block.getArgument(type.getElementType().isInteger() ? Boolean : Element);
  }
  Value inlineRegion(unsigned index, Value score) override {
    Block &body = AttentionOp(mask.op).getBodies()[index].front();
    IRMapping mapping;
    unsigned place = 0;
    if (score)
      mapping.map(body.getArgument(place++), score);
    for (Value value : {batch(), head(), queryPosition(), keyPosition()})
      mapping.map(body.getArgument(place++),
                  arith::IndexCastOp::create(b, location, b.getIndexType(), value));
    for (Operation &op : body.without_terminator())
      b.clone(op, mapping);
    return mapping.lookupOrDefault(body.getTerminator()->getOperand(0));
  }

private:
  Value placed(Value own) {
    Value base = arith::SubIOp::create(b, location, keyLength(), queryLength());
    return emitTreePosition(b, location, querySet(0), base, own);
  }

  const ParsedMask &mask;
  Block &block;
};

static std::unique_ptr<Block> makeBlock(const ParsedMask &mask) {
  Builder b(AttentionOp(mask.op).getContext());
  auto block = std::make_unique<Block>();
  for (int place = 0; place < Set; ++place)
    block->addArgument(b.getI32Type(), b.getUnknownLoc());
  block->addArgument(b.getI64Type(), b.getUnknownLoc());
  block->addArgument(b.getI1Type(), b.getUnknownLoc());
  block->addArgument(b.getF32Type(), b.getUnknownLoc());
  block->addArgument(b.getF32Type(), b.getUnknownLoc());
  for (const NumberUse &use : AttentionOp(mask.op).getNumbers())
    block->addArgument(use.isFloat ? Type(b.getF32Type()) : b.getI32Type(), b.getUnknownLoc());
  return block;
}

ScalarProgram::ScalarProgram(const ParsedMask &mask)
    : mask(mask), block(makeBlock(mask)), builder(AttentionOp(mask.op).getContext()) {
  builder.setInsertionPointToEnd(block.get());
  emit = std::make_unique<Emitter>(mask, *block, builder);
}

ScalarProgram::~ScalarProgram() = default;
PairEmitter &ScalarProgram::emitter() { return *emit; }
Value ScalarProgram::score() const { return block->getArgument(Score); }

//===----------------------------------------------------------------------===//
// Interpreter
//===----------------------------------------------------------------------===//

static bool compare(arith::CmpIPredicate predicate, int64_t a, int64_t b) {
  uint64_t ua = a, ub = b;
  switch (predicate) {
  case arith::CmpIPredicate::eq:
    return a == b;
  case arith::CmpIPredicate::ne:
    return a != b;
  case arith::CmpIPredicate::slt:
    return a < b;
  case arith::CmpIPredicate::sle:
    return a <= b;
  case arith::CmpIPredicate::sgt:
    return a > b;
  case arith::CmpIPredicate::sge:
    return a >= b;
  case arith::CmpIPredicate::ult:
    return ua < ub;
  case arith::CmpIPredicate::ule:
    return ua <= ub;
  case arith::CmpIPredicate::ugt:
    return ua > ub;
  case arith::CmpIPredicate::uge:
    return ua >= ub;
  }
  return false;
}

static Scalar runOp(Operation &op, ArrayRef<Scalar> in) {
  auto integer = [](int64_t value) { return Scalar{value, 0}; };
  auto real = [](float value) { return Scalar{0, value}; };
  int64_t a = in.size() > 0 ? in[0].integer : 0, b = in.size() > 1 ? in[1].integer : 0;
  float x = in.size() > 0 ? in[0].real : 0, y = in.size() > 1 ? in[1].real : 0;
  return llvm::TypeSwitch<Operation &, Scalar>(op)
      .Case([&](arith::ConstantOp c) {
        if (auto value = dyn_cast<FloatAttr>(c.getValue()))
          return real(value.getValueAsDouble());
        APInt bits = cast<IntegerAttr>(c.getValue()).getValue();
        return integer(bits.getBitWidth() == 1 ? bits.getZExtValue() : bits.getSExtValue());
      })
      .Case([&](arith::AddIOp) { return integer(a + b); })
      .Case([&](arith::SubIOp) { return integer(a - b); })
      .Case([&](arith::MulIOp) { return integer(a * b); })
      .Case([&](arith::MaxSIOp) { return integer(std::max(a, b)); })
      .Case([&](arith::MinSIOp) { return integer(std::min(a, b)); })
      .Case([&](arith::ShRUIOp) { return integer(int64_t(uint64_t(a) >> b)); })
      .Case([&](arith::ExtUIOp) { return integer(a); }) // of numbers that are not negative
      .Case([&](arith::TruncIOp c) {
        return integer(c.getType().isInteger(1) ? a & 1 : int64_t(int32_t(a)));
      })
      .Case([&](math::CtPopOp) { return integer(std::popcount(uint64_t(a))); })
      .Case([&](arith::RemSIOp) { return integer(a % b); })
      .Case([&](arith::DivSIOp) { return integer(a / b); })
      .Case([&](arith::FloorDivSIOp) { return integer(a / b - (a % b < 0)); })
      .Case([&](arith::DivUIOp) { return integer(uint64_t(a) / uint64_t(b)); })
      .Case([&](arith::AndIOp) { return integer(a & b); })
      .Case([&](arith::OrIOp) { return integer(a | b); })
      .Case([&](arith::XOrIOp) { return integer(a ^ b); })
      .Case([&](arith::SelectOp) { return in[0].integer ? in[1] : in[2]; })
      .Case([&](arith::CmpIOp c) { return integer(compare(c.getPredicate(), a, b)); })
      .Case([&](arith::IndexCastOp) { return in[0]; })
      .Case([&](arith::ExtSIOp) { return in[0]; })
      .Case([&](arith::AddFOp) { return real(x + y); })
      .Case([&](arith::MulFOp) { return real(x * y); })
      .Case([&](arith::DivFOp) { return real(x / y); })
      .Case([&](arith::CmpFOp) { return integer(x > y); }) // only ogt is emitted
      .Case([&](arith::SIToFPOp) { return real(float(a)); })
      .Case([&](math::TanhOp) { return real(std::tanh(x)); })
      .Default([&](Operation &unknown) {
        ADD_FAILURE() << "the interpreter lacks " << unknown.getName().getStringRef().str();
        return Scalar{};
      });
}

Scalar ScalarProgram::run(const Row &row, int key, float element, float score) const {
  llvm::DenseMap<Value, Scalar> values;
  const int64_t places[] = {row.position(),
                            key,
                            row.index,
                            0,
                            row.head,
                            row.shape.queries,
                            row.shape.keys,
                            int64_t(treeSet(mask.spec.tree, row.index)),
                            denseElement(row.head, row.index, key)};
  for (auto [place, value] : llvm::enumerate(places))
    values[block->getArgument(place)].integer = value;
  values[block->getArgument(Element)].real = element;
  values[block->getArgument(Score)].real = score;
  for (auto [slot, use] : llvm::enumerate(AttentionOp(mask.op).getNumbers())) {
    Scalar &number = values[block->getArgument(Numbers + slot)];
    number.integer = mask.numberOf(use, row.head);
    if (auto value = dyn_cast<FloatAttr>(use.value))
      number.real = value.getValueAsDouble();
  }
  // %u of the surrounding function: captured by some regions.
  values[AttentionOp(mask.op)->getBlock()->getArgument(1)].integer = 3;

  for (Operation &op : *block) {
    SmallVector<Scalar, 3> in;
    for (Value operand : op.getOperands())
      in.push_back(values.lookup(operand));
    values[op.getResult(0)] = runOp(op, in);
  }
  return values.lookup(result);
}

EmittedMask::EmittedMask(const ParsedMask &mask) : program(mask) {
  program.setResult(mask.mask.emitPredicate(program.emitter()));
}

bool EmittedMask::sees(const Row &row, int key) const {
  return program.run(row, key, 0, 0).integer != 0;
}

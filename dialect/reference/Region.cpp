#include "dialect/reference/Region.h"

#include "mlir/IR/Matchers.h"

#include <cmath>

namespace llmopt::reference {

llvm::Expected<Region> Region::compile(mlir::Region &region, const Context &context) {
  Region program;
  mlir::Block &block = region.front();
  for (mlir::BlockArgument argument : block.getArguments())
    program.slots[argument] = program.slotCount++;
  for (mlir::Operation &op : block.without_terminator())
    if (llvm::Error failure = program.addOp(op, context))
      return failure;
  llvm::Expected<unsigned> result = program.slotOf(block.getTerminator()->getOperand(0), context);
  if (!result)
    return result.takeError();
  program.resultSlot = *result;
  return program;
}

/// A scalar argument of the function that a region reads: number `userN`, or operand N of args
/// where it is that too. Calls give reals in float32, and in float64 where the type is f64.
static llvm::Expected<double> captured(mlir::Value value, const Context &context) {
  auto argument = llvm::dyn_cast<mlir::BlockArgument>(value);
  if (!argument)
    return error(
        "a region reads a value that is neither a constant nor an argument of the function");
  for (auto [index, operand] : llvm::enumerate(context.op.getArgs()))
    if (operand == value) {
      llvm::Expected<Array> array = context.argument(unsigned(index));
      if (!array)
        return array.takeError();
      return array->at({});
    }
  std::string name = "user" + std::to_string(argument.getArgNumber());
  auto it = context.inputs.numbers.find(name);
  if (it == context.inputs.numbers.end())
    return error("number '" + name + "', which a region reads, is not given");
  std::optional<ElementType> type = elementTypeOf(value.getType());
  return type && isFloat(*type) ? roundTo(*type, float(it->second)) : it->second;
}

llvm::Expected<unsigned> Region::slotOf(mlir::Value value, const Context &context) {
  if (auto it = slots.find(value); it != slots.end())
    return it->second;
  Scalar number;
  mlir::Attribute constant;
  if (mlir::matchPattern(value, mlir::m_Constant(&constant))) {
    if (auto real = llvm::dyn_cast<mlir::FloatAttr>(constant))
      number.f = real.getValueAsDouble();
    else if (auto integer = llvm::dyn_cast<mlir::IntegerAttr>(constant))
      number.i = value.getType().isInteger(1) ? int64_t(integer.getValue().getZExtValue())
                                              : integer.getValue().getSExtValue();
    else
      return error("a region uses a constant that is no scalar");
  } else {
    llvm::Expected<double> outside = captured(value, context);
    if (!outside)
      return outside.takeError();
    if (llvm::isa<mlir::FloatType>(value.getType()))
      number.f = *outside;
    else
      number.i = int64_t(*outside);
  }
  captures.push_back({slotCount, number});
  slots[value] = slotCount;
  return slotCount++;
}

llvm::Error Region::addOp(mlir::Operation &op, const Context &context) {
  if (op.hasTrait<mlir::OpTrait::ConstantLike>())
    return llvm::Error::success(); // slotOf() takes it up where it is used
  if (op.getNumResults() != 1 || op.getNumOperands() > kMostOperands)
    return error("the oracle does not know op '" + op.getName().getStringRef() + "' in a region");
  Step step;
  llvm::Expected<ScalarFunction> function = scalarFunction(op);
  if (!function)
    return function.takeError();
  step.compute = std::move(*function);
  for (mlir::Value operand : op.getOperands()) {
    llvm::Expected<unsigned> slot = slotOf(operand, context);
    if (!slot)
      return slot.takeError();
    step.operands[step.operandCount++] = *slot;
  }
  std::optional<ElementType> type = elementTypeOf(op.getResult(0).getType());
  if (type && isFloat(*type))
    step.type = type;
  step.result = slotCount;
  slots[op.getResult(0)] = slotCount++;
  steps.push_back(std::move(step));
  return llvm::Error::success();
}

Scalar Region::run(const double *score, const Pair &pair, Mode mode) const {
  llvm::SmallVector<Scalar, 32> values(slotCount);
  unsigned slot = 0;
  if (score)
    values[slot++].f = *score;
  values[slot++].i = pair.batch;
  values[slot++].i = pair.head;
  values[slot++].i = pair.queryPosition;
  values[slot++].i = pair.key;
  for (const Capture &capture : captures)
    values[capture.slot] = capture.number;
  for (const Step &step : steps) {
    Scalar operands[kMostOperands];
    for (unsigned i = 0; i < step.operandCount; ++i)
      operands[i] = values[step.operands[i]];
    Scalar result = step.compute(operands);
    if (step.type) {
      double rounded = roundTo(*step.type, result.f);
      if (mode == Mode::Rounded || std::isinf(rounded))
        result.f = rounded;
    }
    values[step.result] = result;
  }
  return values[resultSlot];
}

} // namespace llmopt::reference

// Functions of mathematics that have no code of our own become calls of the host's libm,
// element by element: right for every argument, and rare in scores.
#include "codegen/cpu/Passes.h"

#include "runtime/bundle/HostFunctions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace llmopt;

namespace {

/// Has this op vector code for this type: instructions of the CPU, or an expansion?
bool isInline(Operation *op, Type element, const cpu::CpuIsa &features) {
  if (isa<math::AbsFOp, math::CopySignOp, math::SqrtOp, math::RsqrtOp, math::FmaOp, math::IsNaNOp,
          math::IsInfOp, math::IsFiniteOp>(op))
    return true;
  if (isa<math::FloorOp, math::CeilOp, math::TruncOp, math::RoundOp, math::RoundEvenOp>(op))
    return features.sse41;
  return !element.isF64() && isa<math::Exp2Op, math::ExpOp, math::TanhOp, math::LogOp, math::Log2Op,
                                 math::SinhOp, math::CoshOp, math::PowFOp>(op);
}

/// C's name of an op's function for f64; most are called alike.
StringRef hostName(Operation *op) {
  if (isa<math::PowFOp, math::FPowIOp>(op))
    return "pow";
  return op->getName().stripDialect();
}

/// The declaration of a host function; null where a function of the module has its name.
func::FuncOp declare(ModuleOp module, StringRef name, unsigned arguments, Type type) {
  if (Operation *known = module.lookupSymbol(name)) {
    auto function = dyn_cast<func::FuncOp>(known);
    return function && function.isExternal() ? function : nullptr;
  }
  OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
  SmallVector<Type> types(arguments, type);
  auto function =
      func::FuncOp::create(builder, module.getLoc(), name, builder.getFunctionType(types, {type}));
  function.setPrivate();
  function->setAttr(LLVM::LLVMDialect::getReadnoneAttrName(), builder.getUnitAttr());
  return function;
}

Value callEach(ImplicitLocOpBuilder &b, func::FuncOp function, ValueRange operands) {
  auto vector = dyn_cast<VectorType>(operands.front().getType());
  if (!vector)
    return func::CallOp::create(b, function, operands).getResult(0);
  Value result = arith::ConstantOp::create(b, b.getZeroAttr(vector));
  SmallVector<int64_t> strides = computeStrides(vector.getShape());
  for (int64_t i = 0; i < vector.getNumElements(); ++i) {
    SmallVector<int64_t> position = delinearize(i, strides);
    SmallVector<Value> elements;
    for (Value operand : operands)
      elements.push_back(vector::ExtractOp::create(b, operand, position));
    Value element = func::CallOp::create(b, function, elements).getResult(0);
    result = vector::InsertOp::create(b, element, result, position);
  }
  return result;
}

/// libm has f32 and f64: narrower operands widen. The power of a float and an integer is
/// pow in f64, which holds both.
LogicalResult callHost(Operation *op, ModuleOp module) {
  Type type = op->getResult(0).getType(), element = getElementTypeOrSelf(type);
  ImplicitLocOpBuilder b(op->getLoc(), op);
  bool isWide = element.isF64() || isa<math::FPowIOp>(op);
  Type compute = isWide ? b.getF64Type() : b.getF32Type(), computeType = compute;
  if (auto vector = dyn_cast<VectorType>(type))
    computeType = vector.clone(compute);
  std::string name = hostName(op).str() + (isWide ? "" : "f");
  if (!bundle::isHostFunction(name) ||
      !isa<Float16Type, BFloat16Type, Float32Type, Float64Type>(element))
    return op->emitOpError() << "on " << type
                             << " has no kernel on the CPU; the functions of docs/attn-dialect.md "
                                "in f16, bf16, f32 and f64 have";
  func::FuncOp function = declare(module, name, op->getNumOperands(), compute);
  if (!function)
    return op->emitOpError() << "calls C's '" << name
                             << "', which is the name of a function of this module; rename that";
  SmallVector<Value> operands;
  for (Value operand : op->getOperands()) {
    if (isa<IntegerType, IndexType>(getElementTypeOrSelf(operand.getType())))
      operand = arith::SIToFPOp::create(b, computeType, operand);
    else if (operand.getType() != computeType)
      operand = arith::ExtFOp::create(b, computeType, operand);
    operands.push_back(operand);
  }
  Value result = callEach(b, function, operands);
  if (type != computeType)
    result = arith::TruncFOp::create(b, type, result);
  op->replaceAllUsesWith(ValueRange{result});
  op->erase();
  return success();
}

} // namespace

LogicalResult llmopt::cpu::callHostFunctions(ModuleOp module, const CpuIsa &features) {
  SmallVector<Operation *> calls;
  module.walk([&](Operation *op) {
    if (!isa_and_nonnull<math::MathDialect>(op->getDialect()) || op->getNumResults() != 1)
      return;
    Type element = getElementTypeOrSelf(op->getResult(0).getType());
    if (isa<FloatType>(element) && !isInline(op, element, features))
      calls.push_back(op);
  });
  for (Operation *op : calls)
    if (failed(callHost(op, module)))
      return failure();
  return success();
}

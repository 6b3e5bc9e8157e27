// The CPU entry point: slots of the parameter block become the kernel's arguments.
#include "codegen/cpu/Passes.h"

#include "dialect/tile/TileDialect.h"
#include "runtime/bundle/WorkItem.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

using namespace mlir;
using namespace llmopt;
using namespace llmopt::cpu;

namespace llmopt::cpu {
#define GEN_PASS_DEF_TILECPUKERNELABI
#include "codegen/cpu/Passes.h.inc"
} // namespace llmopt::cpu

namespace {

/// A 1-D memref over `pointer`. Its extent is not known here and nothing reads it: the
/// largest is as good as any.
Value memrefOf(ImplicitLocOpBuilder &b, Value pointer, MemRefType type) {
  auto i64 = b.getI64Type();
  auto array = LLVM::LLVMArrayType::get(i64, 1);
  auto descriptor = LLVM::LLVMStructType::getLiteral(
      b.getContext(), {pointer.getType(), pointer.getType(), i64, array, array});
  auto number = [&](int64_t value) -> Value {
    return LLVM::ConstantOp::create(b, i64, b.getI64IntegerAttr(value));
  };
  Value result = LLVM::PoisonOp::create(b, descriptor);
  auto set = [&](Value value, ArrayRef<int64_t> position) {
    result = LLVM::InsertValueOp::create(b, result, value, position);
  };
  set(pointer, {0});
  set(pointer, {1});
  set(number(0), {2});
  set(number(std::numeric_limits<int64_t>::max() / 16), {3, 0});
  set(number(1), {4, 0});
  return UnrealizedConversionCastOp::create(b, TypeRange{type}, ValueRange{result}).getResult(0);
}

/// The argument of type `type` from slot number `slot`.
FailureOr<Value> loadSlot(ImplicitLocOpBuilder &b, func::FuncOp kernel, Value params, unsigned slot,
                          Type type) {
  auto pointer = LLVM::LLVMPointerType::get(b.getContext());
  int64_t offset = sizeof(bundle::ParamHeader) + 8 * slot;
  Value address = LLVM::GEPOp::create(b, pointer, b.getI8Type(), params,
                                      ArrayRef<LLVM::GEPArg>{int32_t(offset)});
  if (auto memref = dyn_cast<MemRefType>(type)) {
    if (memref.getRank() != 1)
      return kernel.emitOpError() << "argument " << slot << " is " << memref
                                  << "; a kernel takes 1-D memrefs";
    return memrefOf(b, LLVM::LoadOp::create(b, pointer, address), memref);
  }
  if (type.isIndex()) {
    Value word = LLVM::LoadOp::create(b, b.getI64Type(), address);
    return Value(arith::IndexCastOp::create(b, type, word));
  }
  if (type.isInteger(64) || type.isInteger(32) || type.isF32())
    return Value(LLVM::LoadOp::create(b, type, address));
  return kernel.emitOpError() << "argument " << slot << " is " << type
                              << "; memref, index, i64, i32 and f32 fit a slot";
}

LogicalResult convert(func::FuncOp kernel) {
  MLIRContext *context = kernel.getContext();
  if (kernel.getNumResults() != 0)
    return kernel.emitOpError("is a kernel with results; kernels return nothing");
  if (!kernel.getBody().hasOneBlock())
    return kernel.emitOpError("has several blocks; lower it before control flow");
  Block &block = kernel.getBody().front();
  auto b = ImplicitLocOpBuilder::atBlockBegin(kernel.getLoc(), &block);
  auto pointer = LLVM::LLVMPointerType::get(context);
  unsigned old = block.getNumArguments();
  Value params = block.addArgument(pointer, kernel.getLoc());
  Value worker = block.addArgument(b.getI32Type(), kernel.getLoc());
  Value scratch = block.addArgument(pointer, kernel.getLoc());
  unsigned slot = 0;
  for (unsigned i = 0; i < old; ++i) {
    Type type = block.getArgument(i).getType();
    Value value;
    if (kernel.getArgAttr(i, tile::kWorkerAttr)) {
      value = type.isIndex() ? arith::IndexCastUIOp::create(b, type, worker).getResult() : worker;
    } else if (kernel.getArgAttr(i, kScratchArgumentAttr)) {
      value = memrefOf(b, scratch, cast<MemRefType>(type));
    } else {
      FailureOr<Value> loaded = loadSlot(b, kernel, params, slot++, type);
      if (failed(loaded))
        return failure();
      value = *loaded;
    }
    block.getArgument(i).replaceAllUsesWith(value);
  }
  block.eraseArguments(0, old);
  auto ret = cast<func::ReturnOp>(block.getTerminator());
  b.setInsertionPoint(ret);
  ret->setOperands(ValueRange{arith::ConstantOp::create(b, b.getI32IntegerAttr(0)).getResult()});
  kernel.setFunctionType(b.getFunctionType({pointer, b.getI32Type(), pointer}, {b.getI32Type()}));
  kernel.removeArgAttrsAttr();
  kernel->removeAttr(tile::kKernelAttr);
  return success();
}

struct TileCpuKernelAbi : llmopt::cpu::impl::TileCpuKernelAbiBase<TileCpuKernelAbi> {
  void runOnOperation() override {
    for (auto kernel : llvm::make_early_inc_range(getOperation().getOps<func::FuncOp>()))
      if (kernel->hasAttr(tile::kKernelAttr) && failed(convert(kernel)))
        return signalPassFailure();
  }
};

} // namespace

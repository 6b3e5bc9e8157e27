// Arithmetic on f32 scalars or vectors, one line an operation: what expansions are
// written in.
#pragma once

#include "codegen/cpu/CpuIsa.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace llmopt::cpu {

struct FloatOps {
  mlir::ImplicitLocOpBuilder b;
  mlir::Type shape; ///< f32 or vector of f32: the shape of all values
  const CpuIsa &isa;

  using Value = mlir::Value;
  using Compare = mlir::arith::CmpFPredicate;
  using CompareInt = mlir::arith::CmpIPredicate;

  mlir::Type like(mlir::Type element) const {
    auto vector = mlir::dyn_cast<mlir::VectorType>(shape);
    return vector ? mlir::Type(vector.clone(element)) : element;
  }
  mlir::Type f32() { return like(b.getF32Type()); }
  mlir::Type i32() { return like(b.getI32Type()); }

  Value constantOf(mlir::Type type, mlir::TypedAttr attr) {
    if (auto vector = mlir::dyn_cast<mlir::VectorType>(type))
      attr = mlir::DenseElementsAttr::get(vector, mlir::Attribute(attr));
    return mlir::arith::ConstantOp::create(b, attr);
  }
  Value f(float value) { return constantOf(f32(), b.getF32FloatAttr(value)); }
  Value i(uint32_t value) { return constantOf(i32(), b.getI32IntegerAttr(int32_t(value))); }

  Value add(Value x, Value y) { return mlir::arith::AddFOp::create(b, x, y); }
  Value sub(Value x, Value y) { return mlir::arith::SubFOp::create(b, x, y); }
  Value mul(Value x, Value y) { return mlir::arith::MulFOp::create(b, x, y); }
  Value div(Value x, Value y) { return mlir::arith::DivFOp::create(b, x, y); }
  Value fma(Value x, Value y, Value z) {
    return isa.fma ? Value(mlir::math::FmaOp::create(b, x, y, z)) : add(mul(x, y), z);
  }
  Value addi(Value x, Value y) { return mlir::arith::AddIOp::create(b, x, y); }
  Value subi(Value x, Value y) { return mlir::arith::SubIOp::create(b, x, y); }
  Value andi(Value x, Value y) { return mlir::arith::AndIOp::create(b, x, y); }
  Value ori(Value x, Value y) { return mlir::arith::OrIOp::create(b, x, y); }
  Value shl(Value x, uint32_t n) { return mlir::arith::ShLIOp::create(b, x, i(n)); }
  Value shr(Value x, uint32_t n) { return mlir::arith::ShRUIOp::create(b, x, i(n)); }
  Value cmp(Compare predicate, Value x, Value y) {
    return mlir::arith::CmpFOp::create(b, predicate, x, y);
  }
  Value cmp(CompareInt predicate, Value x, Value y) {
    return mlir::arith::CmpIOp::create(b, predicate, x, y);
  }
  Value select(Value c, Value x, Value y) { return mlir::arith::SelectOp::create(b, c, x, y); }
  Value bits(Value x) { return mlir::arith::BitcastOp::create(b, i32(), x); }
  Value real(Value x) { return mlir::arith::BitcastOp::create(b, f32(), x); }

  /// x > bound ? bound : x, which passes NaN on and is one x86 instruction.
  Value atMost(Value x, Value bound) { return select(cmp(Compare::OGT, x, bound), bound, x); }
  Value atLeast(Value x, Value bound) { return select(cmp(Compare::OLT, x, bound), bound, x); }
  /// Horner: coefficients from the highest power down.
  Value polynomial(Value x, llvm::ArrayRef<float> coefficients) {
    Value sum = f(coefficients.front());
    for (float c : coefficients.drop_front())
      sum = fma(sum, x, f(c));
    return sum;
  }
};

} // namespace llmopt::cpu

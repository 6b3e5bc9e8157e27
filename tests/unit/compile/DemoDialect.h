// A dialect as a plugin would bring it: one mask and one score modification, known to the
// rest of the project through their interfaces only.
#pragma once

#include "dialect/attn/AttnDialect.h"

#include "mlir/IR/Dialect.h"

namespace llmopt::demo {

class DemoDialect : public mlir::Dialect {
public:
  explicit DemoDialect(mlir::MLIRContext *context);
  static constexpr llvm::StringLiteral getDialectNamespace() { return "demo"; }
  mlir::Attribute parseAttribute(mlir::DialectAsmParser &parser, mlir::Type) const override;
  void printAttribute(mlir::Attribute attribute, mlir::DialectAsmPrinter &printer) const override;
};

/// One number, a default that callers may override.
struct NumberStorage : mlir::AttributeStorage {
  using KeyTy = mlir::Attribute;
  explicit NumberStorage(KeyTy key) : number(key) {}
  bool operator==(KeyTy key) const { return number == key; }
  static llvm::hash_code hashKey(KeyTy key) { return mlir::hash_value(key); }
  static NumberStorage *construct(mlir::AttributeStorageAllocator &allocator, KeyTy key) {
    return new (allocator.allocate<NumberStorage>()) NumberStorage(key);
  }
  mlir::Attribute number;
};

/// #demo.stripes<n>: keys up to the query's whose block of n keys has an even index.
class StripesAttr : public mlir::Attribute::AttrBase<StripesAttr, mlir::Attribute, NumberStorage,
                                                     attn::MaskAttrInterface::Trait> {
public:
  using Base::Base;
  static constexpr llvm::StringLiteral name = "demo.stripes";
  mlir::Attribute getSize() const { return getImpl()->number; }

  mlir::Value emitPredicate(attn::PairEmitter &e) const;
  attn::MaskBounds getBounds(const attn::BoundContext &context) const;
  void collectNumbers(llvm::SmallVectorImpl<attn::NumberUse> &numbers) const;
};

/// #demo.tilt<c>: score + c * (j - i).
class TiltAttr : public mlir::Attribute::AttrBase<TiltAttr, mlir::Attribute, NumberStorage,
                                                  attn::ScoreAttrInterface::Trait> {
public:
  using Base::Base;
  static constexpr llvm::StringLiteral name = "demo.tilt";
  mlir::Attribute getSlope() const { return getImpl()->number; }

  mlir::Value emitScore(attn::PairEmitter &e, mlir::Value score) const;
  void collectNumbers(llvm::SmallVectorImpl<attn::NumberUse> &numbers) const;
};

/// Teaches the oracle both.
void teachOracle();

} // namespace llmopt::demo

MLIR_DECLARE_EXPLICIT_TYPE_ID(llmopt::demo::DemoDialect)
MLIR_DECLARE_EXPLICIT_TYPE_ID(llmopt::demo::StripesAttr)
MLIR_DECLARE_EXPLICIT_TYPE_ID(llmopt::demo::TiltAttr)

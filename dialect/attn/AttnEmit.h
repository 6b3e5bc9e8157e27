// What a mask or a score modification sees of the op that it belongs to while it emits
// IR or states its bounds. Implemented by the lowering; masks only call it.
#pragma once

#include "dialect/attn/mask/Bounds.h"

#include "mlir/IR/Attributes.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Value.h"

#include <limits>

namespace llmopt::attn {

class MaskAttrInterface;
class TreeAttr;

/// A run-time number of a mask or score modification: `value` is an IntegerAttr or
/// FloatAttr (the default) or an #attn.arg.
struct NumberUse {
  mlir::Attribute owner; ///< the mask or score attribute
  unsigned index;        ///< its number, counted by the owner
  llvm::StringRef name;  ///< "window", "softcap", ...: the caller overrides it by this
  mlir::Attribute value;
  bool isFloat;
  /// Smallest value that a caller may give for all heads, and what to say of a smaller one.
  /// Values for each head lie on the device and are not looked at.
  double least = -std::numeric_limits<double>::infinity();
  llvm::StringRef advice = "";
};

/// Emits for one (query, key) pair of a tile. All values are scalars; the target
/// vectorises them. Positions and lengths are i32, batch and head too, numbers are i32
/// (integers) or f32.
class PairEmitter {
public:
  virtual ~PairEmitter() = default;
  mlir::OpBuilder &builder() { return b; }
  mlir::Location loc() const { return location; }

  virtual mlir::Value queryPosition() = 0; ///< i32, may be negative
  virtual mlir::Value keyPosition() = 0;   ///< i32
  /// i32: key counted from 0 in its sequence; its position, unless the mask holds a tree.
  virtual mlir::Value keyIndex() = 0;
  virtual mlir::Value queryIndex() = 0;  ///< i32: query counted from 0 in its sequence
  virtual mlir::Value batch() = 0;       ///< i32: sequence of the batch
  virtual mlir::Value head() = 0;        ///< i32: query head
  virtual mlir::Value queryLength() = 0; ///< i32
  virtual mlir::Value keyLength() = 0;   ///< i32
  /// Number `index` of `owner` (see collectNumbers): i32 or f32, of this pair's head.
  virtual mlir::Value number(mlir::Attribute owner, unsigned index) = 0;
  /// Element [batch, head, query index, key] of tensor operand `arg` (broadcast where
  /// its extent is 1), as f32, or i1 for a boolean tensor.
  virtual mlir::Value element(unsigned arg) = 0;
  /// i64: the query's element of tensor operand `arg`, which has one for each query.
  virtual mlir::Value querySet(unsigned arg) = 0;
  /// The op's custom region `index` inlined for this pair; `score` is null for a mask.
  virtual mlir::Value inlineRegion(unsigned index, mlir::Value score) = 0;

protected:
  PairEmitter(mlir::OpBuilder &b, mlir::Location loc) : b(b), location(loc) {}
  mlir::OpBuilder &b;
  mlir::Location location;
};

/// What bounds are stated in: the ends of the range of query positions, the lengths, and
/// the numbers of the mask, over all heads of the range.
class BoundContext {
public:
  virtual ~BoundContext() = default;
  BoundExpr queryLo() const { return BoundExpr::symbol(BoundSymbol::QueryLo); }
  BoundExpr queryHi() const { return BoundExpr::symbol(BoundSymbol::QueryHi); }
  BoundExpr queryLen() const { return BoundExpr::symbol(BoundSymbol::QueryLen); }
  BoundExpr keyLen() const { return BoundExpr::symbol(BoundSymbol::KeyLen); }
  /// Smallest and largest value of number `index` of `owner` over the range's heads.
  virtual BoundExpr numberMin(mlir::Attribute owner, unsigned index) const = 0;
  virtual BoundExpr numberMax(mlir::Attribute owner, unsigned index) const = 0;
  /// Bounds of the op's custom mask region `index`; see mask/RegionBounds.h.
  virtual MaskBounds regionBounds(unsigned index) const = 0;
  /// An integer that a region captures, as an expression that is the same for all rows
  /// and heads; nothing where it has none. Its value must lie within +-2^31.
  virtual std::optional<BoundExpr> captured(mlir::Value value) const { return std::nullopt; }
};

/// The tree of a mask, or null.
TreeAttr treeOf(mlir::Attribute mask);

/// Position of the sequence's key base + `own` (i32; below 0 too) for a query with this set
/// (i64), see TreeAttr.
mlir::Value emitTreePosition(mlir::OpBuilder &b, mlir::Location loc, mlir::Value set,
                             mlir::Value base, mlir::Value own);

/// Bounds of the mask of an op: in keys, where the mask states them in positions.
MaskBounds boundsOfMask(MaskAttrInterface mask, const BoundContext &context);

} // namespace llmopt::attn

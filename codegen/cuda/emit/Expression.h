// Pieces of C++ text that know how tightly they bind.
#pragma once

#include "dialect/tile/Layout.h"

#include "llvm/ADT/Twine.h"

#include <optional>
#include <string>

namespace llmopt::cuda {

/// Precedence of C++ operators, tightest first.
enum class Precedence : uint8_t {
  Atom,
  Unary,
  Product,
  Sum,
  Shift,
  Relation,
  Equality,
  BitAnd,
  BitXor,
  BitOr,
  And,
  Or,
  Conditional,
};

struct Expression {
  std::string text;
  Precedence binds = Precedence::Atom;

  /// The text as an operand of something that binds as `outer`; `strict`: on the side
  /// where equal precedence needs parentheses.
  std::string in(Precedence outer, bool strict = false) const;
};

/// `a op b` of the operator's precedence.
Expression binary(const Expression &a, const char *op, const Expression &b, Precedence precedence);
Expression number(int64_t value);
/// a + b and a * b, with constants 0 and 1 left out.
Expression sum(const Expression &a, const Expression &b);
Expression times(const Expression &a, int64_t factor);

/// The part of the row (or column) that the axes of one unit give for `index`.
Expression coordinate(llvm::ArrayRef<tile::LayoutAxis> axes, tile::LayoutDim dim,
                      const Expression &index);
/// `coordinate / divisor` and `coordinate % divisor` over all three units of a layout, each as
/// the sum of its own digits ("warp", "lane / 4"); nothing where a digit belongs to both.
struct SplitCoordinate {
  Expression quotient, rest;
};
std::optional<SplitCoordinate> splitCoordinate(const tile::Layout &layout, tile::LayoutDim dim,
                                               int64_t divisor, const Expression &index);
/// Index in the registers of a slice that keeps `dims`, for register `index` of the whole.
Expression sliceIndex(llvm::ArrayRef<tile::LayoutAxis> axes, bool keepRows, bool keepColumns,
                      const Expression &index);
/// True (as text) in the one thread of those that hold copies which speaks for them;
/// empty if there are no copies.
std::string isFirstCopy(const tile::Layout &layout);

} // namespace llmopt::cuda

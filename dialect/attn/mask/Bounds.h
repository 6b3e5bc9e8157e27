// Key intervals of a mask as expressions over run-time values.
//
// For queries at positions queryLo .. queryHi (inclusive) of one sequence, a mask states
// two sets of keys: MAY be visible to some query, SURELY visible to every query. A set is
// a union of intervals; an interval may be thinned to every stride-th run of keys.
// Example, `causal and window<W>`:
//     may    = [queryLo - W + 1, queryHi + 1)
//     surely = [queryHi - W + 1, queryLo + 1)
// Sets are clipped to [0, keyLen) by whoever evaluates them.
#pragma once

#include "llvm/ADT/SmallVector.h"

#include <cstdint>
#include <memory>
#include <optional>

namespace llmopt::attn {

enum class BoundSymbol : uint8_t { QueryLo, QueryHi, QueryLen, KeyLen };

enum class BoundExprKind : uint8_t {
  Constant,  ///< value
  Symbol,    ///< symbol
  Scalar,    ///< slot `value` of the op's run-time numbers, one for all heads
  ScalarMin, ///< smallest value over the range's heads of per-head slot `value`
  ScalarMax, ///< largest
  Add,
  Sub,
  Mul,
  Min,
  Max,
  FloorDiv, ///< floor(a / b), 0 where b <= 0
  FloorMod, ///< a - b * floor(a / b), 0 where b <= 0
};

/// An immutable integer expression; copies share structure. Constants fold.
class BoundExpr {
public:
  BoundExpr(int64_t constant);
  static BoundExpr symbol(BoundSymbol symbol);
  static BoundExpr scalar(unsigned slot, BoundExprKind kind = BoundExprKind::Scalar);
  static BoundExpr binary(BoundExprKind kind, BoundExpr lhs, BoundExpr rhs);

  BoundExprKind kind() const;
  int64_t value() const;      ///< Constant and Scalar*
  BoundSymbol symbol() const; ///< Symbol
  BoundExpr lhs() const;      ///< binary kinds
  BoundExpr rhs() const;
  std::optional<int64_t> constant() const;
  unsigned size() const;                         ///< nodes of the expression, written out
  bool operator==(const BoundExpr &other) const; ///< structural

private:
  struct Node;
  explicit BoundExpr(std::shared_ptr<const Node> node) : node(std::move(node)) {}
  std::shared_ptr<const Node> node;
};

BoundExpr operator+(BoundExpr a, BoundExpr b);
BoundExpr operator-(BoundExpr a, BoundExpr b);
BoundExpr operator*(BoundExpr a, BoundExpr b);
BoundExpr min(BoundExpr a, BoundExpr b);
BoundExpr max(BoundExpr a, BoundExpr b);
BoundExpr floorDiv(BoundExpr a, BoundExpr b);
BoundExpr floorMod(BoundExpr a, BoundExpr b);

/// Bounds beyond any position, for "no lower (upper) bound". Far from overflow.
inline constexpr int64_t kUnbounded = int64_t(1) << 40;

/// Keys k of [lo, hi); with a stride only those with floorMod(k - phase, stride) < width.
struct Interval {
  BoundExpr lo, hi;
  struct Thinning {
    BoundExpr stride, phase, width;
    bool operator==(const Thinning &) const = default; ///< structural
  };
  std::optional<Thinning> thinning;
  bool operator==(const Interval &) const = default; ///< structural
};

/// A union of intervals, in no order; they may overlap and may be empty (lo >= hi).
struct IntervalSet {
  llvm::SmallVector<Interval, 2> intervals;
  static IntervalSet none() { return {}; }
  static IntervalSet all();
  static IntervalSet of(BoundExpr lo, BoundExpr hi);
  bool operator==(const IntervalSet &) const = default; ///< structural
};

/// MAY and SURELY. Beyond the limits below a set is widened (may) or narrowed (surely),
/// which costs work, never correctness; `exact` then turns false.
///
/// `exact`: clipped to [0, keyLen), MAY is the union and SURELY the intersection of what
/// the queries of the range (and heads, where numbers differ by head) see, for every
/// range, provided the numbers are those that the masks allow (a window of 1 or more).
/// False where that is not so, or where the algebra found no proof.
struct MaskBounds {
  IntervalSet may, surely;
  bool exact = true;
  bool operator==(const MaskBounds &) const = default; ///< structural
  static MaskBounds unknown() { return {IntervalSet::all(), IntervalSet::none(), false}; }
};

inline constexpr unsigned kMaxIntervals = 8;
/// Nodes of an interval's expressions; larger ones are widened or dropped.
inline constexpr unsigned kMaxIntervalSize = 80;

MaskBounds intersect(const MaskBounds &a, const MaskBounds &b); ///< and
MaskBounds unite(const MaskBounds &a, const MaskBounds &b);     ///< or
MaskBounds complement(const MaskBounds &a);                     ///< not: swaps the two sets

/// Values for evaluation on the host (tests, explain).
struct BoundValues {
  int64_t queryLo = 0, queryHi = 0, queryLen = 0, keyLen = 0;
  llvm::SmallVector<int64_t> scalars, perHeadMin, perHeadMax;
};
int64_t evaluate(const BoundExpr &expr, const BoundValues &values);
bool contains(const IntervalSet &set, int64_t key, const BoundValues &values);

} // namespace llmopt::attn

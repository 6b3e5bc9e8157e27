// The algebra of key intervals: and, or, not of masks.
//
// Sets are joined as sets; two questions go beyond that. Where rows matter: query rows p
// of the range see A(p) and B(p), and MAY of `a and b` is the union over p of A(p) n B(p),
// which can be less than (union of A(p)) n (union of B(p)). For intervals whose ends
// grow with p the two are equal if no gap opens between rows, upper(p) >= lower(p + 1)
// for every pair of a lower and an upper end; and nothing at all is visible if
// lower(p) >= upper(p) for some pair. `exact` records what could be proved. SURELY of
// `a or b` is the same question about `not a and not b`.
#include "dialect/attn/mask/Bounds.h"
#include "dialect/attn/mask/BoundProof.h"

#include "llvm/ADT/STLExtras.h"

using namespace llmopt::attn;

IntervalSet IntervalSet::all() { return of(-kUnbounded, kUnbounded); }

IntervalSet IntervalSet::of(BoundExpr lo, BoundExpr hi) {
  IntervalSet set;
  set.intervals.push_back({std::move(lo), std::move(hi), std::nullopt});
  return set;
}

namespace {

/// What a set becomes where it cannot be stated: more, or less.
enum class Slack { Widen, Narrow };

/// A set, and whether it is the very set that was asked for.
struct Approximation {
  IntervalSet set;
  bool exact = true;
};

bool provablyEmpty(const Interval &interval) {
  return provablyLessEqual(interval.hi, interval.lo) ||
         (interval.thinning && provablyLessEqual(interval.thinning->width, 0));
}

bool provablyWithin(const Interval &inner, const Interval &outer) {
  return (!outer.thinning || outer.thinning == inner.thinning) &&
         provablyLessEqual(outer.lo, inner.lo) && provablyLessEqual(inner.hi, outer.hi);
}

unsigned sizeOf(const Interval &interval) {
  unsigned size = interval.lo.size() + interval.hi.size();
  if (const auto &thinning = interval.thinning)
    size += thinning->stride.size() + thinning->phase.size() + thinning->width.size();
  return size;
}

/// Widen an interval until it is no larger than kMaxIntervalSize.
void shrink(Interval &interval) {
  interval.thinning.reset();
  if (sizeOf(interval) > kMaxIntervalSize)
    (interval.lo.size() > interval.hi.size() ? interval.lo : interval.hi) =
        interval.lo.size() > interval.hi.size() ? -kUnbounded : kUnbounded;
  if (sizeOf(interval) > kMaxIntervalSize)
    interval = {-kUnbounded, kUnbounded, std::nullopt};
}

/// Drop what is empty or lies within another interval, then keep to the limits.
void simplify(Approximation &result, Slack slack) {
  llvm::SmallVector<Interval, 2> kept;
  for (Interval &interval : result.set.intervals) {
    if (sizeOf(interval) > kMaxIntervalSize) {
      result.exact = false;
      if (slack == Slack::Narrow)
        continue;
      shrink(interval);
    }
    if (provablyEmpty(interval) ||
        llvm::any_of(kept, [&](const Interval &k) { return provablyWithin(interval, k); }))
      continue;
    llvm::erase_if(kept, [&](const Interval &k) { return provablyWithin(k, interval); });
    kept.push_back(std::move(interval));
  }
  while (kept.size() > kMaxIntervals) {
    result.exact = false;
    Interval last = kept.pop_back_val();
    if (slack == Slack::Widen) {
      Interval &hull = kept.back();
      hull = {min(hull.lo, last.lo), max(hull.hi, last.hi), std::nullopt};
      if (sizeOf(hull) > kMaxIntervalSize)
        shrink(hull);
    }
  }
  result.set.intervals = std::move(kept);
}

/// The larger of two lower ends; an open end is the other one.
BoundExpr innerLo(const BoundExpr &a, const BoundExpr &b) {
  if (provablyLessEqual(a, b))
    return b;
  return provablyLessEqual(b, a) ? a : max(a, b);
}

BoundExpr innerHi(const BoundExpr &a, const BoundExpr &b) {
  if (provablyLessEqual(a, b))
    return a;
  return provablyLessEqual(b, a) ? b : min(a, b);
}

/// Append the common keys of `a` and `b`.
void intersect(const Interval &a, const Interval &b, Slack slack, Approximation &result) {
  Interval both = {innerLo(a.lo, b.lo), innerHi(a.hi, b.hi), a.thinning};
  if (!a.thinning) {
    both.thinning = b.thinning;
  } else if (b.thinning) {
    if (a.thinning->stride == b.thinning->stride && a.thinning->phase == b.thinning->phase) {
      both.thinning->width = min(a.thinning->width, b.thinning->width);
    } else {
      result.exact = false;
      if (slack == Slack::Narrow)
        return;
    }
  }
  result.set.intervals.push_back(std::move(both));
}

Approximation intersect(const IntervalSet &a, const IntervalSet &b, Slack slack) {
  Approximation result;
  for (const Interval &x : a.intervals)
    for (const Interval &y : b.intervals)
      intersect(x, y, slack, result);
  simplify(result, slack);
  return result;
}

Approximation unite(const IntervalSet &a, const IntervalSet &b, Slack slack) {
  Approximation result{a};
  llvm::append_range(result.set.intervals, b.intervals);
  simplify(result, slack);
  return result;
}

/// All keys but those of `interval`. The parts may overlap: the thinned one reaches over
/// all keys, since cut to the interval it would not obey the invariant.
IntervalSet complement(const Interval &interval) {
  IntervalSet outside = IntervalSet::of(-kUnbounded, interval.lo);
  outside.intervals.push_back({interval.hi, kUnbounded, std::nullopt});
  if (interval.thinning) {
    const auto &[stride, phase, width] = *interval.thinning;
    Interval::Thinning rest = {stride, phase + width, stride - width};
    outside.intervals.push_back({-kUnbounded, kUnbounded, rest});
  }
  return outside;
}

Approximation complement(const IntervalSet &set, Slack slack) {
  Approximation result{IntervalSet::all()};
  for (const Interval &interval : set.intervals) {
    Approximation next = intersect(result.set, complement(interval), slack);
    result = {std::move(next.set), result.exact && next.exact};
  }
  simplify(result, slack);
  return result;
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

bool dependsOnRows(const Interval::Thinning &thinning) {
  return dependsOnRows(thinning.stride) || dependsOnRows(thinning.phase) ||
         dependsOnRows(thinning.width);
}

bool dependsOnRows(const Interval &interval) {
  return dependsOnRows(interval.lo) || dependsOnRows(interval.hi) ||
         (interval.thinning && dependsOnRows(*interval.thinning));
}

/// The row-dependent ends of intervals as functions of row p, which is QueryLo here.
struct RowEnds {
  llvm::SmallVector<BoundExpr, 4> lowers, uppers;
  bool regular = true; ///< all of them grow with p, and nothing else depends on it

  void add(const Interval &interval) {
    collect(interval.lo, BoundExprKind::Max, BoundSymbol::QueryLo, lowers);
    collect(interval.hi, BoundExprKind::Min, BoundSymbol::QueryHi, uppers);
    if (interval.thinning && dependsOnRows(*interval.thinning))
      regular = false;
  }

private:
  void collect(const BoundExpr &end, BoundExprKind join, BoundSymbol row,
               llvm::SmallVectorImpl<BoundExpr> &ends) {
    if (!::llmopt::attn::dependsOnRows(end))
      return;
    if (end.kind() == join) {
      collect(end.lhs(), join, row, ends);
      collect(end.rhs(), join, row, ends);
      return;
    }
    BoundSymbol other = row == BoundSymbol::QueryLo ? BoundSymbol::QueryHi : BoundSymbol::QueryLo;
    bool foreign = !(substitute(end, other, 0) == end);
    if (foreign || !growsWithRow(end, row))
      regular = false;
    ends.push_back(substitute(end, row, BoundExpr::symbol(BoundSymbol::QueryLo)));
  }
};

enum class RowJoin {
  Equal, ///< union over rows of the intersections = intersection of the unions
  Empty, ///< no row has a key in both
  Unknown,
};

RowJoin joinRows(const Interval &a, const Interval &b) {
  if (!dependsOnRows(a) || !dependsOnRows(b))
    return RowJoin::Equal;
  RowEnds ends;
  ends.add(a);
  ends.add(b);
  if (!ends.regular)
    return RowJoin::Unknown;
  bool gapless = true;
  for (const BoundExpr &lower : ends.lowers) {
    BoundExpr p = BoundExpr::symbol(BoundSymbol::QueryLo);
    BoundExpr next = substitute(lower, BoundSymbol::QueryLo, p + 1);
    for (const BoundExpr &upper : ends.uppers) {
      if (provablyLessEqual(upper, lower))
        return RowJoin::Empty;
      gapless &= provablyLessEqual(next, upper);
    }
  }
  return gapless ? RowJoin::Equal : RowJoin::Unknown;
}

/// MAY of an `and`; `exact` assumes exact operands.
Approximation intersectRows(const IntervalSet &a, const IntervalSet &b, bool &someEmpty) {
  Approximation result;
  someEmpty = false;
  for (const Interval &x : a.intervals)
    for (const Interval &y : b.intervals) {
      RowJoin join = joinRows(x, y);
      someEmpty |= join == RowJoin::Empty;
      if (join == RowJoin::Empty)
        continue;
      result.exact &= join == RowJoin::Equal;
      intersect(x, y, Slack::Widen, result);
    }
  simplify(result, Slack::Widen);
  return result;
}

} // namespace

MaskBounds llmopt::attn::intersect(const MaskBounds &a, const MaskBounds &b) {
  if (a == b && a.exact)
    return a;
  bool someEmpty;
  Approximation may = intersectRows(a.may, b.may, someEmpty);
  Approximation surely = ::intersect(a.surely, b.surely, Slack::Narrow);
  return {std::move(may.set), std::move(surely.set),
          a.exact && b.exact && may.exact && surely.exact};
}

MaskBounds llmopt::attn::unite(const MaskBounds &a, const MaskBounds &b) {
  if (a == b && a.exact)
    return a;
  Approximation may = ::unite(a.may, b.may, Slack::Widen);
  Approximation surely = ::unite(a.surely, b.surely, Slack::Narrow);
  // Hidden by both, for some row: what is left out of SURELY.
  Approximation hiddenA = ::complement(a.surely, Slack::Widen);
  Approximation hiddenB = ::complement(b.surely, Slack::Widen);
  bool someEmpty;
  Approximation hidden = intersectRows(hiddenA.set, hiddenB.set, someEmpty);
  hidden.exact &= hiddenA.exact && hiddenB.exact;
  if (someEmpty) {
    surely = ::complement(hidden.set, Slack::Narrow);
    // Stating it so must not lose what the plain union has.
    surely = [&] {
      Approximation joined =
          ::unite(surely.set, ::unite(a.surely, b.surely, Slack::Narrow).set, Slack::Narrow);
      joined.exact &= surely.exact;
      return joined;
    }();
  }
  return {std::move(may.set), std::move(surely.set),
          a.exact && b.exact && may.exact && surely.exact && hidden.exact};
}

MaskBounds llmopt::attn::complement(const MaskBounds &a) {
  Approximation may = ::complement(a.surely, Slack::Widen);
  Approximation surely = ::complement(a.may, Slack::Narrow);
  return {std::move(may.set), std::move(surely.set), a.exact && may.exact && surely.exact};
}

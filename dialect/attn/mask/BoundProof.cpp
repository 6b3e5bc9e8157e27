// Inequalities are proved on linear forms: c + sum of coefficient * atom, where an atom
// is a symbol, a number, or an operation that is not linear. min and max are taken apart
// by cases; the rest is bounded term by term.
#include "dialect/attn/mask/BoundProof.h"

#include "llvm/ADT/STLExtras.h"

using namespace llmopt::attn;

namespace {

struct Term {
  BoundExpr atom;
  __int128 coefficient;
};

class LinearForm {
public:
  explicit LinearForm(const BoundExpr &expr) { add(expr, 1); }

  void add(const BoundExpr &expr, __int128 factor) {
    switch (expr.kind()) {
    case BoundExprKind::Constant:
      constant += factor * expr.value();
      return;
    case BoundExprKind::Add:
      add(expr.lhs(), factor);
      add(expr.rhs(), factor);
      return;
    case BoundExprKind::Sub:
      add(expr.lhs(), factor);
      add(expr.rhs(), -factor);
      return;
    case BoundExprKind::Mul:
      // Coefficients stay far from overflow: two factors of 2^40 do not meet in a mask.
      if (std::optional<int64_t> scale = expr.rhs().constant();
          scale && fits(factor) && fits(*scale)) {
        add(expr.lhs(), factor * *scale);
        return;
      }
      break;
    default:
      break;
    }
    addAtom(expr, factor);
  }

  __int128 constant = 0;
  llvm::SmallVector<Term, 4> terms;

private:
  static bool fits(__int128 value) {
    return value <= (__int128(1) << 48) && value >= -(__int128(1) << 48);
  }

  void addAtom(const BoundExpr &atom, __int128 factor) {
    for (auto it = terms.begin(); it != terms.end(); ++it) {
      if (!(it->atom == atom))
        continue;
      it->coefficient += factor;
      if (it->coefficient == 0)
        terms.erase(it);
      return;
    }
    if (factor != 0)
      terms.push_back({atom, factor});
  }
};

/// Bounds of an atom that is not taken apart; none for what is unknown.
struct Range {
  std::optional<int64_t> least, most;
};

constexpr int64_t kExtreme = int64_t(1) << 31;

Range rangeOf(const BoundExpr &atom) {
  switch (atom.kind()) {
  case BoundExprKind::Symbol:
    if (atom.symbol() == BoundSymbol::QueryLen || atom.symbol() == BoundSymbol::KeyLen)
      return {0, kExtreme};
    return {-kExtreme, kExtreme};
  case BoundExprKind::Scalar:
  case BoundExprKind::ScalarMin:
  case BoundExprKind::ScalarMax:
    return {-kExtreme, kExtreme};
  case BoundExprKind::FloorMod:
    return {0, std::nullopt};
  default:
    return {};
  }
}

class Prover {
public:
  /// Is the form >= 0, always?
  bool nonNegative(LinearForm form) {
    if (budget == 0)
      return false;
    --budget;
    replaceQueryHi(form);
    for (const Term &term : form.terms) {
      BoundExprKind kind = term.atom.kind();
      bool positive = term.coefficient > 0;
      if (kind == BoundExprKind::Min || kind == BoundExprKind::Max) {
        // The side that may be the smaller one: enough to prove it for either (max
        // with a positive coefficient), or needed for both.
        bool either = (kind == BoundExprKind::Max) == positive;
        bool left = nonNegative(with(form, term, term.atom.lhs()));
        if (left == either)
          return left;
        return nonNegative(with(form, term, term.atom.rhs()));
      }
      // a mod b <= b - 1, where b >= 1.
      if (kind == BoundExprKind::FloorMod && !positive &&
          nonNegative(LinearForm(term.atom.rhs() - 1)))
        return nonNegative(with(form, term, term.atom.rhs() - 1));
    }
    return leastValue(form) >= 0;
  }

private:
  static LinearForm with(const LinearForm &form, const Term &replaced, const BoundExpr &by) {
    LinearForm result = form;
    __int128 factor = replaced.coefficient;
    llvm::erase_if(result.terms, [&](const Term &t) { return t.atom == replaced.atom; });
    result.add(by, factor);
    return result;
  }

  /// queryHi = queryLo + (rows - 1); rows - 1 >= 0 vanishes with a positive coefficient.
  static void replaceQueryHi(LinearForm &form) {
    for (const Term &term : form.terms)
      if (term.atom == BoundExpr::symbol(BoundSymbol::QueryHi) && term.coefficient > 0) {
        form = with(form, term, BoundExpr::symbol(BoundSymbol::QueryLo));
        return;
      }
  }

  /// A lower bound from each term alone; negative where a term has none.
  static __int128 leastValue(const LinearForm &form) {
    __int128 sum = form.constant;
    for (const Term &term : form.terms) {
      Range range = rangeOf(term.atom);
      std::optional<int64_t> worst = term.coefficient > 0 ? range.least : range.most;
      if (!worst)
        return -1;
      sum += term.coefficient * *worst;
    }
    return sum;
  }

  unsigned budget = 24;
};

} // namespace

bool llmopt::attn::provablyLessEqual(const BoundExpr &a, const BoundExpr &b) {
  return a == b || Prover().nonNegative(LinearForm(b - a));
}

bool llmopt::attn::dependsOnRows(const BoundExpr &expr) {
  switch (expr.kind()) {
  case BoundExprKind::Symbol:
    return expr.symbol() == BoundSymbol::QueryLo || expr.symbol() == BoundSymbol::QueryHi;
  case BoundExprKind::Constant:
  case BoundExprKind::Scalar:
  case BoundExprKind::ScalarMin:
  case BoundExprKind::ScalarMax:
    return false;
  default:
    return dependsOnRows(expr.lhs()) || dependsOnRows(expr.rhs());
  }
}

bool llmopt::attn::growsWithRow(const BoundExpr &expr, BoundSymbol row) {
  const BoundExpr rowExpr = BoundExpr::symbol(row);
  LinearForm form(expr);
  __int128 rowCoefficient = 0;
  unsigned remainders = 0;
  for (const auto &[atom, coefficient] : form.terms) {
    if (!dependsOnRows(atom))
      continue;
    if (atom == rowExpr) {
      rowCoefficient = coefficient;
      continue;
    }
    BoundExprKind kind = atom.kind();
    bool joined = kind == BoundExprKind::Min || kind == BoundExprKind::Max;
    if (joined && coefficient > 0 && growsWithRow(atom.lhs(), row) && growsWithRow(atom.rhs(), row))
      continue;
    // row - (row + c) mod n grows in steps of n.
    BoundExpr remainder = kind == BoundExprKind::FloorMod ? atom.lhs() - rowExpr : atom;
    LinearForm shift(remainder);
    bool shifted = kind == BoundExprKind::FloorMod && !dependsOnRows(atom.rhs()) &&
                   llvm::none_of(shift.terms, [](const Term &t) { return dependsOnRows(t.atom); });
    if (!shifted || coefficient != -1)
      return false;
    ++remainders;
  }
  return rowCoefficient >= remainders;
}

BoundExpr llmopt::attn::substitute(const BoundExpr &expr, BoundSymbol from, const BoundExpr &to) {
  switch (expr.kind()) {
  case BoundExprKind::Symbol:
    return expr.symbol() == from ? to : expr;
  case BoundExprKind::Constant:
  case BoundExprKind::Scalar:
  case BoundExprKind::ScalarMin:
  case BoundExprKind::ScalarMax:
    return expr;
  default:
    return BoundExpr::binary(expr.kind(), substitute(expr.lhs(), from, to),
                             substitute(expr.rhs(), from, to));
  }
}

// Expressions of bounds: construction with folding, and evaluation.
#include "dialect/attn/mask/Bounds.h"

#include "llvm/ADT/ArrayRef.h"

#include <algorithm>
#include <limits>

using namespace llmopt::attn;

struct BoundExpr::Node {
  BoundExprKind kind;
  int64_t value = 0;
  BoundSymbol symbol = BoundSymbol::QueryLo;
  std::shared_ptr<const Node> lhs = nullptr, rhs = nullptr;
  unsigned size = 1;

  static bool equal(const Node *a, const Node *b) {
    if (a == b)
      return true;
    if (!a || !b || a->kind != b->kind || a->size != b->size || a->value != b->value ||
        a->symbol != b->symbol)
      return false;
    return equal(a->lhs.get(), b->lhs.get()) && equal(a->rhs.get(), b->rhs.get());
  }
};

//===----------------------------------------------------------------------===//
// Arithmetic of values; what does not fit saturates
//===----------------------------------------------------------------------===//

static int64_t saturate(__int128 value) {
  using Limits = std::numeric_limits<int64_t>;
  return int64_t(std::clamp<__int128>(value, Limits::min(), Limits::max()));
}

static int64_t compute(BoundExprKind kind, int64_t a, int64_t b) {
  auto floorQuotient = [&] {
    __int128 quotient = __int128(a) / b;
    return quotient - (a % b < 0);
  };
  switch (kind) {
  case BoundExprKind::Add:
    return saturate(__int128(a) + b);
  case BoundExprKind::Sub:
    return saturate(__int128(a) - b);
  case BoundExprKind::Mul:
    return saturate(__int128(a) * b);
  case BoundExprKind::Min:
    return std::min(a, b);
  case BoundExprKind::Max:
    return std::max(a, b);
  case BoundExprKind::FloorDiv:
    return b <= 0 ? 0 : int64_t(floorQuotient());
  case BoundExprKind::FloorMod:
    return b <= 0 ? 0 : int64_t(a - b * floorQuotient());
  default:
    return 0;
  }
}

//===----------------------------------------------------------------------===//
// Construction
//===----------------------------------------------------------------------===//

/// Where sizes stop counting: shared parts can make them exponential.
static constexpr unsigned kMostSize = 1u << 20;

BoundExpr::BoundExpr(int64_t constant)
    : node(std::make_shared<Node>(Node{BoundExprKind::Constant, constant})) {}

BoundExpr BoundExpr::symbol(BoundSymbol symbol) {
  return BoundExpr(std::make_shared<Node>(Node{BoundExprKind::Symbol, 0, symbol}));
}

BoundExpr BoundExpr::scalar(unsigned slot, BoundExprKind kind) {
  return BoundExpr(std::make_shared<Node>(Node{kind, slot}));
}

BoundExprKind BoundExpr::kind() const { return node->kind; }
int64_t BoundExpr::value() const { return node->value; }
BoundSymbol BoundExpr::symbol() const { return node->symbol; }
unsigned BoundExpr::size() const { return node->size; }
BoundExpr BoundExpr::lhs() const { return BoundExpr(node->lhs); }
BoundExpr BoundExpr::rhs() const { return BoundExpr(node->rhs); }

std::optional<int64_t> BoundExpr::constant() const {
  if (node->kind == BoundExprKind::Constant)
    return node->value;
  return std::nullopt;
}

bool BoundExpr::operator==(const BoundExpr &other) const {
  return Node::equal(node.get(), other.node.get());
}

/// A constant belongs right, where folding looks for it.
static bool isCommutative(BoundExprKind kind) {
  return kind == BoundExprKind::Add || kind == BoundExprKind::Mul || kind == BoundExprKind::Min ||
         kind == BoundExprKind::Max;
}

/// `lhs kind rhs` where it is one of the two or a constant, whatever their values.
static std::optional<BoundExpr> foldIdentity(BoundExprKind kind, const BoundExpr &lhs,
                                             const BoundExpr &rhs) {
  std::optional<int64_t> c = rhs.constant();
  switch (kind) {
  case BoundExprKind::Add:
    return c == 0 ? std::optional(lhs) : std::nullopt;
  case BoundExprKind::Sub:
    return lhs == rhs ? std::optional(BoundExpr(0)) : std::nullopt;
  case BoundExprKind::Mul:
    return c == 1 ? std::optional(lhs) : c == 0 ? std::optional(rhs) : std::nullopt;
  case BoundExprKind::Min:
  case BoundExprKind::Max:
    return lhs == rhs ? std::optional(lhs) : std::nullopt;
  case BoundExprKind::FloorDiv:
    return c == 1 ? std::optional(lhs) : std::nullopt;
  case BoundExprKind::FloorMod:
    return c == 1 ? std::optional(BoundExpr(0)) : std::nullopt;
  default:
    return std::nullopt;
  }
}

BoundExpr BoundExpr::binary(BoundExprKind kind, BoundExpr lhs, BoundExpr rhs) {
  if (lhs.constant() && rhs.constant())
    return compute(kind, *lhs.constant(), *rhs.constant());
  if (kind == BoundExprKind::Sub && rhs.constant())
    return binary(BoundExprKind::Add, lhs, compute(BoundExprKind::Sub, 0, *rhs.constant()));
  if (isCommutative(kind) && lhs.constant())
    std::swap(lhs, rhs);
  if (std::optional<BoundExpr> folded = foldIdentity(kind, lhs, rhs))
    return *folded;
  // (x + 1) + 2, min(min(x, 1), 2): the constants meet.
  if (isCommutative(kind) && rhs.constant() && lhs.kind() == kind && lhs.rhs().constant())
    return binary(kind, lhs.lhs(), compute(kind, *lhs.rhs().constant(), *rhs.constant()));
  unsigned size = std::min(lhs.size() + rhs.size(), kMostSize) + 1;
  return BoundExpr(std::make_shared<Node>(
      Node{kind, 0, BoundSymbol::QueryLo, std::move(lhs.node), std::move(rhs.node), size}));
}

namespace llmopt::attn {

BoundExpr operator+(BoundExpr a, BoundExpr b) {
  return BoundExpr::binary(BoundExprKind::Add, std::move(a), std::move(b));
}
BoundExpr operator-(BoundExpr a, BoundExpr b) {
  return BoundExpr::binary(BoundExprKind::Sub, std::move(a), std::move(b));
}
BoundExpr operator*(BoundExpr a, BoundExpr b) {
  return BoundExpr::binary(BoundExprKind::Mul, std::move(a), std::move(b));
}
BoundExpr min(BoundExpr a, BoundExpr b) {
  return BoundExpr::binary(BoundExprKind::Min, std::move(a), std::move(b));
}
BoundExpr max(BoundExpr a, BoundExpr b) {
  return BoundExpr::binary(BoundExprKind::Max, std::move(a), std::move(b));
}
BoundExpr floorDiv(BoundExpr a, BoundExpr b) {
  return BoundExpr::binary(BoundExprKind::FloorDiv, std::move(a), std::move(b));
}
BoundExpr floorMod(BoundExpr a, BoundExpr b) {
  return BoundExpr::binary(BoundExprKind::FloorMod, std::move(a), std::move(b));
}

} // namespace llmopt::attn

//===----------------------------------------------------------------------===//
// Evaluation
//===----------------------------------------------------------------------===//

/// Value `slot` of `values`, 0 where the caller gave none.
static int64_t lookUp(llvm::ArrayRef<int64_t> values, int64_t slot) {
  return slot >= 0 && size_t(slot) < values.size() ? values[slot] : 0;
}

static int64_t lookUp(BoundSymbol symbol, const BoundValues &values) {
  switch (symbol) {
  case BoundSymbol::QueryLo:
    return values.queryLo;
  case BoundSymbol::QueryHi:
    return values.queryHi;
  case BoundSymbol::QueryLen:
    return values.queryLen;
  case BoundSymbol::KeyLen:
    return values.keyLen;
  }
  return 0;
}

int64_t llmopt::attn::evaluate(const BoundExpr &expr, const BoundValues &values) {
  switch (expr.kind()) {
  case BoundExprKind::Constant:
    return expr.value();
  case BoundExprKind::Symbol:
    return lookUp(expr.symbol(), values);
  case BoundExprKind::Scalar:
    return lookUp(values.scalars, expr.value());
  case BoundExprKind::ScalarMin:
    return lookUp(values.perHeadMin, expr.value());
  case BoundExprKind::ScalarMax:
    return lookUp(values.perHeadMax, expr.value());
  default:
    return compute(expr.kind(), evaluate(expr.lhs(), values), evaluate(expr.rhs(), values));
  }
}

bool llmopt::attn::contains(const IntervalSet &set, int64_t key, const BoundValues &values) {
  for (const Interval &interval : set.intervals) {
    if (key < evaluate(interval.lo, values) || key >= evaluate(interval.hi, values))
      continue;
    if (!interval.thinning)
      return true;
    const auto &[stride, phase, width] = *interval.thinning;
    if (compute(BoundExprKind::FloorMod, key - evaluate(phase, values), evaluate(stride, values)) <
        evaluate(width, values))
      return true;
  }
  return false;
}

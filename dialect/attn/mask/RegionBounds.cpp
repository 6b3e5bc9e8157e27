// One walk over the region: each integer becomes an affine form or a quotient of i and
// j, each i1 the bounds of the keys for which it is true.
//
// Positions are below 2^31 in magnitude and i - j is too; a form whose value might not
// fit its type is given up, so that what is computed is what the form says.
#include "dialect/attn/mask/RegionBounds.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"

#include <variant>

using namespace mlir;
using namespace llmopt::attn;

namespace {

using Wide = __int128;

struct Range {
  Wide least, most;
};

constexpr int64_t kExtreme = int64_t(1) << 31;   ///< of positions and captured integers
constexpr int64_t kMostValue = int64_t(1) << 44; ///< of what is looked at

/// rows * i + keys * j + rest, where `rest` is the same for all rows and keys.
struct Affine {
  int64_t rows = 0, keys = 0;
  BoundExpr rest = 0;
  Range restRange = {0, 0};

  Range range() const {
    Range pair;
    if (rows == 0 && keys >= 0)
      pair = {0, Wide(keys) * (kExtreme - 1)};
    else if (std::abs(rows) == 1 && rows == -keys)
      pair = {1 - kExtreme, kExtreme - 1};
    else {
      Wide most = (Wide(std::abs(rows)) + std::abs(keys)) * (kExtreme - 1);
      pair = {-most, most};
    }
    return {pair.least + restRange.least, pair.most + restRange.most};
  }
};

/// i / divisor or j / divisor.
struct Quotient {
  enum Rounding { Floor, Truncate, Unsigned };
  bool ofRow;
  int64_t divisor;
  Rounding rounding;
  unsigned width;
};

using Integer = std::variant<std::monostate, Affine, Quotient>;

Affine combine(const Affine &a, const Affine &b, int64_t factor) {
  Wide x = factor * b.restRange.least, y = factor * b.restRange.most;
  return {a.rows + factor * b.rows,
          a.keys + factor * b.keys,
          a.rest + b.rest * factor,
          {a.restRange.least + std::min(x, y), a.restRange.most + std::max(x, y)}};
}

/// Bits of an integer or index type; index is 64 bits wide.
unsigned widthOf(Type type) { return type.isIndex() ? 64 : type.getIntOrFloatBitWidth(); }

MaskBounds all() { return {IntervalSet::all(), IntervalSet::all()}; }
MaskBounds none() { return {IntervalSet::none(), IntervalSet::none()}; }

class RegionReader {
public:
  RegionReader(Region &region, const BoundContext &context)
      : body(region.front()), context(context) {}

  MaskBounds read() {
    integers[body.getArgument(2)] = Affine{1, 0};
    integers[body.getArgument(3)] = Affine{0, 1};
    for (Operation &op : body.without_terminator())
      visit(op);
    return truth(body.getTerminator()->getOperand(0));
  }

private:
  //===--------------------------------------------------------------------===//
  // Ops
  //===--------------------------------------------------------------------===//

  void visit(Operation &op) {
    llvm::TypeSwitch<Operation &>(op)
        .Case([&](arith::AddIOp add) { setSum(add, 1, add.getOverflowFlags()); })
        .Case([&](arith::SubIOp sub) { setSum(sub, -1, sub.getOverflowFlags()); })
        .Case([&](arith::MulIOp mul) { setProduct(mul); })
        .Case([&](arith::FloorDivSIOp div) { setQuotient(div, Quotient::Floor); })
        .Case([&](arith::DivSIOp div) { setQuotient(div, Quotient::Truncate); })
        .Case([&](arith::DivUIOp div) { setQuotient(div, Quotient::Unsigned); })
        .Case([&](arith::IndexCastOp cast) { setCast(cast, /*zeroExtends=*/false); })
        .Case([&](arith::ExtSIOp cast) { setCast(cast, /*zeroExtends=*/false); })
        .Case([&](arith::TruncIOp cast) { setCast(cast, /*zeroExtends=*/false); })
        .Case([&](arith::IndexCastUIOp cast) { setCast(cast, /*zeroExtends=*/true); })
        .Case([&](arith::ExtUIOp cast) { setCast(cast, /*zeroExtends=*/true); })
        .Case([&](arith::AndIOp both) {
          if (isTruth(both))
            truths.insert({both, intersect(truth(both.getLhs()), truth(both.getRhs()))});
        })
        .Case([&](arith::OrIOp either) {
          if (isTruth(either))
            truths.insert({either, unite(truth(either.getLhs()), truth(either.getRhs()))});
        })
        .Case([&](arith::XOrIOp differ) {
          if (isTruth(differ))
            truths.insert(
                {differ, choose(truth(differ.getLhs()), complement(truth(differ.getRhs())),
                                truth(differ.getRhs()))});
        })
        .Case([&](arith::SelectOp select) {
          if (isTruth(select))
            truths.insert(
                {select, choose(truth(select.getCondition()), truth(select.getTrueValue()),
                                truth(select.getFalseValue()))});
        })
        .Case([&](arith::CmpIOp compare) { truths.insert({compare, comparison(compare)}); })
        .Default([](Operation &) {});
  }

  static bool isTruth(Value value) { return value.getType().isInteger(1); }

  static MaskBounds choose(const MaskBounds &condition, const MaskBounds &a, const MaskBounds &b) {
    return unite(intersect(condition, a), intersect(complement(condition), b));
  }

  /// Keep `form` as `value`, if it always fits the value's type.
  void set(Value value, Affine form, bool cannotOverflow = false) {
    Range range = form.range();
    if (range.least < -kMostValue || range.most > kMostValue || form.rest.size() > kMaxIntervalSize)
      return;
    Wide limit = Wide(1) << (widthOf(value.getType()) - 1);
    if (cannotOverflow || (range.least >= -limit && range.most < limit))
      integers[value] = std::move(form);
  }

  template <typename Op> void setSum(Op op, int64_t factor, arith::IntegerOverflowFlags flags) {
    Integer lhs = integer(op.getLhs()), rhs = integer(op.getRhs());
    auto *a = std::get_if<Affine>(&lhs), *b = std::get_if<Affine>(&rhs);
    if (a && b)
      set(op, combine(*a, *b, factor), bitEnumContainsAll(flags, arith::IntegerOverflowFlags::nsw));
  }

  void setProduct(arith::MulIOp op) {
    bool constantLeft = constant(op.getLhs()).has_value();
    std::optional<int64_t> factor = constant(constantLeft ? op.getLhs() : op.getRhs());
    Integer other = integer(constantLeft ? op.getRhs() : op.getLhs());
    auto *a = std::get_if<Affine>(&other);
    if (a && factor && std::abs(*factor) <= kExtreme / 1024 && std::abs(a->rows) < 1024 &&
        std::abs(a->keys) < 1024)
      set(op, combine(Affine(), *a, *factor));
  }

  template <typename Op> void setQuotient(Op op, Quotient::Rounding rounding) {
    std::optional<int64_t> divisor = constant(op.getRhs());
    Integer lhs = integer(op.getLhs());
    auto *a = std::get_if<Affine>(&lhs);
    if (!a || !divisor || *divisor < 1 || *divisor > kExtreme || !(a->rest == 0))
      return;
    bool ofRow = a->rows == 1 && a->keys == 0, ofKey = a->rows == 0 && a->keys == 1;
    if (ofRow || ofKey)
      integers[op] = Quotient{ofRow, *divisor, rounding, widthOf(op.getType())};
  }

  void setCast(Operation *op, bool zeroExtends) {
    Integer in = integer(op->getOperand(0));
    auto *a = std::get_if<Affine>(&in);
    if (a && (!zeroExtends || a->range().least >= 0))
      set(op->getResult(0), *a);
  }

  //===--------------------------------------------------------------------===//
  // Values
  //===--------------------------------------------------------------------===//

  static std::optional<int64_t> constant(Value value) {
    APInt bits;
    if (!value.getType().isIntOrIndex() || !matchPattern(value, m_ConstantInt(&bits)) ||
        bits.getSignificantBits() > 64)
      return std::nullopt;
    return bits.getSExtValue();
  }

  Integer integer(Value value) {
    if (auto it = integers.find(value); it != integers.end())
      return it->second;
    if (std::optional<int64_t> c = constant(value)) {
      if (*c < -kMostValue || *c > kMostValue)
        return {};
      return Affine{0, 0, *c, {*c, *c}};
    }
    if (value.getParentBlock() != &body && value.getType().isIntOrIndex())
      if (std::optional<BoundExpr> name = context.captured(value))
        return Affine{0, 0, *name, {-kExtreme, kExtreme}};
    return {};
  }

  MaskBounds truth(Value value) {
    if (auto it = truths.find(value); it != truths.end())
      return it->second;
    if (std::optional<int64_t> c = constant(value))
      return *c ? all() : none();
    return MaskBounds::unknown();
  }

  //===--------------------------------------------------------------------===//
  // Comparisons
  //===--------------------------------------------------------------------===//

  MaskBounds comparison(arith::CmpIOp op) {
    Integer lhs = integer(op.getLhs()), rhs = integer(op.getRhs());
    if (auto *a = std::get_if<Affine>(&lhs))
      if (auto *b = std::get_if<Affine>(&rhs))
        return compare(op.getPredicate(), *a, *b);
    if (auto *a = std::get_if<Quotient>(&lhs))
      if (auto *b = std::get_if<Quotient>(&rhs))
        return compare(op.getPredicate(), *a, *b);
    return MaskBounds::unknown();
  }

  MaskBounds compare(arith::CmpIPredicate predicate, const Affine &a, const Affine &b) {
    switch (predicate) {
    case arith::CmpIPredicate::eq:
      return isZero(combine(a, b, -1));
    case arith::CmpIPredicate::ne:
      return complement(isZero(combine(a, b, -1)));
    case arith::CmpIPredicate::sle:
      return lessEqual(a, b);
    case arith::CmpIPredicate::slt:
      return less(a, b);
    case arith::CmpIPredicate::sge:
      return lessEqual(b, a);
    case arith::CmpIPredicate::sgt:
      return less(b, a);
    case arith::CmpIPredicate::ule:
      return unsignedCompare(a, b, lessEqual(a, b));
    case arith::CmpIPredicate::ult:
      return unsignedCompare(a, b, less(a, b));
    case arith::CmpIPredicate::uge:
      return unsignedCompare(b, a, lessEqual(b, a));
    case arith::CmpIPredicate::ugt:
      return unsignedCompare(b, a, less(b, a));
    }
    return MaskBounds::unknown();
  }

  MaskBounds lessEqual(const Affine &a, const Affine &b) {
    return isNotPositive(combine(a, b, -1));
  }

  MaskBounds less(const Affine &a, const Affine &b) {
    return isNotPositive(combine(combine(a, b, -1), Affine{0, 0, 1, {1, 1}}, 1));
  }

  /// a < b (or <=) as unsigned numbers, given the signed answer: a negative number is
  /// larger than any that is not.
  MaskBounds unsignedCompare(const Affine &a, const Affine &b, const MaskBounds &asSigned) {
    bool known = a.range().least >= 0, bKnown = b.range().least >= 0;
    if (known && bKnown)
      return asSigned;
    if (bKnown)
      return intersect(lessEqual(Affine(), a), asSigned);
    if (known)
      return unite(less(b, Affine()), asSigned);
    return MaskBounds::unknown();
  }

  /// The smallest or largest value over the range's rows of factor * i + rest.
  BoundExpr overRows(int64_t factor, const BoundExpr &rest, bool largest) const {
    if (factor == 0)
      return rest;
    BoundExpr row = (factor > 0) == largest ? context.queryHi() : context.queryLo();
    return row * factor + rest;
  }

  /// All keys where `expr` <= 0, none where not.
  static IntervalSet whereNotPositive(const BoundExpr &expr) {
    return IntervalSet::of(-kUnbounded, min(max(1 - expr, 0), 1) * (2 * kUnbounded) - kUnbounded);
  }

  MaskBounds isNotPositive(const Affine &d) {
    BoundExpr negated = BoundExpr(0) - d.rest;
    switch (d.keys) {
    case 0:
      return {whereNotPositive(overRows(d.rows, d.rest, false)),
              whereNotPositive(overRows(d.rows, d.rest, true))};
    case 1: // j <= -rows * i - rest
      return {IntervalSet::of(-kUnbounded, overRows(-d.rows, negated, true) + 1),
              IntervalSet::of(-kUnbounded, overRows(-d.rows, negated, false) + 1)};
    case -1: // j >= rows * i + rest
      return {IntervalSet::of(overRows(d.rows, d.rest, false), kUnbounded),
              IntervalSet::of(overRows(d.rows, d.rest, true), kUnbounded)};
    default:
      return MaskBounds::unknown();
    }
  }

  MaskBounds isZero(const Affine &d) {
    Affine negated = combine(Affine(), d, -1);
    if (d.keys == 0)
      return intersect(isNotPositive(d), isNotPositive(negated));
    if (std::abs(d.keys) != 1)
      return MaskBounds::unknown();
    const Affine &f = d.keys == 1 ? negated : d; // j == f.rows * i + f.rest
    BoundExpr first = overRows(f.rows, f.rest, false), last = overRows(f.rows, f.rest, true);
    return {IntervalSet::of(first, last + 1), IntervalSet::of(last, first + 1),
            std::abs(f.rows) <= 1};
  }

  //===--------------------------------------------------------------------===//
  // Quotients
  //===--------------------------------------------------------------------===//

  /// divisor * (p / divisor), for query row p.
  static BoundExpr chunkStart(const BoundExpr &p, const Quotient &q) {
    auto floored = [&](const BoundExpr &x) { return x - floorMod(x, q.divisor); };
    if (q.rounding != Quotient::Truncate)
      return floored(p);
    return floored(max(p, 0)) - floored(max(BoundExpr(0) - p, 0));
  }

  /// i / n against j / n. Keys are not negative, so their quotient is the floored one.
  MaskBounds compare(arith::CmpIPredicate predicate, const Quotient &a, const Quotient &b) {
    if (a.ofRow == b.ofRow || a.divisor != b.divisor || a.width != b.width)
      return MaskBounds::unknown();
    const Quotient &row = a.ofRow ? a : b;
    BoundExpr n = row.divisor;
    BoundExpr first = chunkStart(context.queryLo(), row), last = chunkStart(context.queryHi(), row);
    MaskBounds same = {IntervalSet::of(first, last + n), IntervalSet::of(last, first + n)};

    // Unsigned: a negative row becomes so large that no key has its quotient (in 64
    // bits), just as no key has the negative floored one.
    bool isUnsigned = row.rounding == Quotient::Unsigned;
    if (isUnsigned && row.width < 64)
      return MaskBounds::unknown();
    if (predicate == arith::CmpIPredicate::eq)
      return same;
    if (predicate == arith::CmpIPredicate::ne)
      return complement(same);
    if (isUnsigned)
      return MaskBounds::unknown();

    MaskBounds before = {IntervalSet::of(-kUnbounded, last),
                         IntervalSet::of(-kUnbounded, first)}; // j / n < i / n
    MaskBounds upTo = {IntervalSet::of(-kUnbounded, last + n),
                       IntervalSet::of(-kUnbounded, first + n)}; // j / n <= i / n
    bool keyFirst = !a.ofRow;
    switch (predicate) {
    case arith::CmpIPredicate::slt:
      return keyFirst ? before : complement(upTo);
    case arith::CmpIPredicate::sle:
      return keyFirst ? upTo : complement(before);
    case arith::CmpIPredicate::sgt:
      return keyFirst ? complement(upTo) : before;
    case arith::CmpIPredicate::sge:
      return keyFirst ? complement(before) : upTo;
    default:
      return MaskBounds::unknown();
    }
  }

  Block &body;
  const BoundContext &context;
  llvm::DenseMap<Value, Integer> integers;
  llvm::DenseMap<Value, MaskBounds> truths;
};

} // namespace

MaskBounds llmopt::attn::regionBounds(Region &region, const BoundContext &context) {
  return RegionReader(region, context).read();
}

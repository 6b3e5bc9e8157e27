// See Expression.h.
#include "codegen/cuda/emit/Expression.h"

#include "llvm/Support/MathExtras.h"

using namespace llmopt;
using namespace llmopt::cuda;
using tile::LayoutAxis;
using tile::LayoutDim;

std::string Expression::in(Precedence outer, bool strict) const {
  bool loose = binds > outer || (strict && binds == outer);
  // Shifts and bits among sums are legal without parentheses, and misread.
  bool surprising = (outer >= Precedence::Shift && outer <= Precedence::BitOr &&
                     binds > Precedence::Unary && binds != outer) ||
                    (outer == Precedence::Or && binds == Precedence::And);
  return loose || surprising ? "(" + text + ")" : text;
}

Expression cuda::binary(const Expression &a, const char *op, const Expression &b,
                        Precedence precedence) {
  bool relation = precedence == Precedence::Relation || precedence == Precedence::Equality;
  auto side = [&](const Expression &e, bool strict) {
    // Comparisons of sums need no parentheses.
    if (relation && e.binds <= Precedence::Sum)
      return e.text;
    return e.in(precedence, strict || relation);
  };
  return {side(a, false) + " " + op + " " + side(b, true), precedence};
}

Expression cuda::number(int64_t value) {
  return {std::to_string(value), value < 0 ? Precedence::Unary : Precedence::Atom};
}

Expression cuda::sum(const Expression &a, const Expression &b) {
  if (a.text == "0")
    return b;
  if (b.text == "0")
    return a;
  return binary(a, "+", b, Precedence::Sum);
}

Expression cuda::times(const Expression &a, int64_t factor) {
  if (factor == 0 || a.text == "0")
    return number(0);
  if (factor == 1)
    return a;
  return binary(a, "*", number(factor), Precedence::Product);
}

namespace {

/// Digit of `index`: index / below % extent, without % for the last axis.
Expression digit(const Expression &index, int64_t below, int64_t extent, bool last) {
  if (index.text == "0")
    return index;
  Expression e = index;
  if (below > 1)
    e = binary(e, "/", number(below), Precedence::Product);
  if (!last)
    e = binary(e, "%", number(extent), Precedence::Product);
  return e;
}

/// Sum over the axes of digit times weight.
template <typename Weight>
Expression digits(llvm::ArrayRef<LayoutAxis> axes, const Expression &index, Weight weight) {
  Expression total = number(0);
  int64_t below = 1;
  for (auto [i, axis] : llvm::enumerate(axes)) {
    if (int64_t factor = weight(axis))
      total = sum(total, times(digit(index, below, axis.extent, i + 1 == axes.size()), factor));
    below *= axis.extent;
  }
  return total;
}

} // namespace

Expression cuda::coordinate(llvm::ArrayRef<LayoutAxis> axes, LayoutDim dim,
                            const Expression &index) {
  return digits(axes, index,
                [&](const LayoutAxis &axis) { return axis.dim == dim ? axis.stride : 0; });
}

std::optional<SplitCoordinate> cuda::splitCoordinate(const tile::Layout &layout, LayoutDim dim,
                                                     int64_t divisor, const Expression &index) {
  int64_t below = 0; // the largest sum of the digits that make the rest
  auto isHigh = [&](const LayoutAxis &axis) { return axis.stride % divisor == 0; };
  for (const tile::LayoutAxes *unit : {&layout.registers, &layout.lanes, &layout.warps})
    for (const LayoutAxis &axis : *unit)
      if (axis.dim == dim && !isHigh(axis))
        below += (axis.extent - 1) * axis.stride;
  if (below >= divisor)
    return std::nullopt;
  auto part = [&](bool high) {
    auto ofUnit = [&](llvm::ArrayRef<LayoutAxis> axes, const Expression &digitsOf) {
      return digits(axes, digitsOf, [&](const LayoutAxis &axis) -> int64_t {
        if (axis.dim != dim || isHigh(axis) != high)
          return 0;
        return high ? axis.stride / divisor : axis.stride;
      });
    };
    return sum(sum(ofUnit(layout.warps, {"warp"}), ofUnit(layout.lanes, {"lane"})),
               ofUnit(layout.registers, index));
  };
  return SplitCoordinate{part(true), part(false)};
}

Expression cuda::sliceIndex(llvm::ArrayRef<LayoutAxis> axes, bool keepRows, bool keepColumns,
                            const Expression &index) {
  if (keepRows && keepColumns)
    return index;
  int64_t next = 1;
  return digits(axes, index, [&](const LayoutAxis &axis) -> int64_t {
    bool keep = axis.dim == LayoutDim::Row ? keepRows : keepColumns;
    if (!keep)
      return 0;
    int64_t weight = next;
    next *= axis.extent;
    return weight;
  });
}

std::string cuda::isFirstCopy(const tile::Layout &layout) {
  std::string text;
  auto add = [&](llvm::ArrayRef<LayoutAxis> axes, const char *unit) {
    int64_t below = 1;
    for (auto [i, axis] : llvm::enumerate(axes)) {
      if (axis.dim == LayoutDim::Replica && axis.extent > 1) {
        Expression e = digit({unit}, below, axis.extent, i + 1 == axes.size());
        text += (text.empty() ? "" : " && ") + e.in(Precedence::Equality) + " == 0";
      }
      below *= axis.extent;
    }
  };
  add(layout.lanes, "lane");
  add(layout.warps, "warp");
  return text;
}

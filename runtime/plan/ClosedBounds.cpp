#include "runtime/plan/ClosedBounds.h"

#include <algorithm>

namespace llmopt::runtime {

using bundle::BoundInsn;
using bundle::BoundOp;

namespace {

/// Beyond any position; sums of a few of them do not overflow.
constexpr int64_t kFar = int64_t{1} << 58;

int64_t clampFar(int64_t value) { return std::clamp(value, -kFar, kFar); }

int64_t valueAt(const std::vector<int64_t> &values, int64_t index) {
  return index >= 0 && static_cast<size_t>(index) < values.size()
             ? values[static_cast<size_t>(index)]
             : 0;
}

} // namespace

/// Runs a postfix program on bounds instead of numbers.
struct BoundCompiler {
  using Bound = ClosedBounds::Bound;
  using Term = ClosedBounds::Term;
  static constexpr unsigned kDepth = 6;

  const ScalarValues &scalars;
  std::array<Bound, kDepth> stack;
  unsigned depth = 0;

  bool pushTerm(const Term &term) {
    if (depth == kDepth)
      return false;
    stack[depth++] = Bound{{term}, 1, false};
    return true;
  }

  bool leaf(const BoundInsn &insn) {
    switch (insn.op) {
    case BoundOp::Const:
      return pushTerm({.constant = clampFar(insn.value)});
    case BoundOp::QueryLo:
      return pushTerm({.queryLo = 1});
    case BoundOp::QueryHi:
      return pushTerm({.queryHi = 1});
    case BoundOp::QueryLen:
      return pushTerm({.queryLen = 1});
    case BoundOp::KeyLen:
      return pushTerm({.keyLen = 1});
    case BoundOp::Scalar:
      return pushTerm({.constant = clampFar(valueAt(scalars.values, insn.value))});
    case BoundOp::ScalarMin:
      return pushTerm({.constant = clampFar(valueAt(scalars.perHeadMin, insn.value))});
    case BoundOp::ScalarMax:
      return pushTerm({.constant = clampFar(valueAt(scalars.perHeadMax, insn.value))});
    default:
      return false;
    }
  }

  /// a + sign * b where one of them is a single term: it goes into each term of the other.
  static bool addTo(Bound &a, const Bound &b, int64_t sign) {
    if (b.count > 1 && a.count > 1)
      return false;
    Bound result = b.count > 1 ? b : a;
    const Term &single = b.count > 1 ? a.terms[0] : b.terms[0];
    int64_t ofList = b.count > 1 ? sign : 1, ofSingle = b.count > 1 ? 1 : sign;
    if (ofList < 0)
      result.largest = !result.largest;
    for (unsigned i = 0; i < result.count; ++i) {
      Term &term = result.terms[i];
      term = {clampFar(ofList * term.constant + ofSingle * single.constant),
              ofList * term.queryLo + ofSingle * single.queryLo,
              ofList * term.queryHi + ofSingle * single.queryHi,
              ofList * term.queryLen + ofSingle * single.queryLen,
              ofList * term.keyLen + ofSingle * single.keyLen};
    }
    a = result;
    return true;
  }

  static bool combine(Bound &a, const Bound &b, bool largest) {
    if ((a.count > 1 && a.largest != largest) || (b.count > 1 && b.largest != largest) ||
        a.count + b.count > ClosedBounds::kMaxTerms)
      return false;
    for (unsigned i = 0; i < b.count; ++i)
      a.terms[a.count++] = b.terms[i];
    a.largest = largest;
    return true;
  }

  bool binary(BoundOp op) {
    if (depth < 2)
      return false;
    const Bound &b = stack[--depth];
    Bound &a = stack[depth - 1];
    switch (op) {
    case BoundOp::Add:
      return addTo(a, b, 1);
    case BoundOp::Sub:
      return addTo(a, b, -1);
    case BoundOp::Min:
      return combine(a, b, false);
    case BoundOp::Max:
      return combine(a, b, true);
    default:
      return false;
    }
  }

  bool run(const bundle::BoundProgram &program, Bound &result) {
    depth = 0;
    for (const BoundInsn &insn : program)
      if (!(insn.op >= BoundOp::Add ? binary(insn.op) : leaf(insn)))
        return false;
    if (depth != 1)
      return false;
    result = stack[0];
    return true;
  }
};

bool ClosedBounds::compile(const bundle::BoundSet &set, const ScalarValues &scalars) {
  count = 0;
  oneRange = false;
  if (set.intervals.size() > kMaxIntervals)
    return false;
  BoundCompiler compiler{scalars, {}, 0};
  for (const bundle::BoundInterval &interval : set.intervals) {
    if (!interval.stride.empty() || !compiler.run(interval.lo, lows[count]) ||
        !compiler.run(interval.hi, highs[count]))
      return false;
    ++count;
  }
  oneRange = count == 1 && lows[0].count == 1 && highs[0].count == 1;
  const Term &low = lows[0].terms[0];
  fromStart =
      oneRange && low.constant <= 0 && !low.queryLo && !low.queryHi && !low.queryLen && !low.keyLen;
  return true;
}

} // namespace llmopt::runtime

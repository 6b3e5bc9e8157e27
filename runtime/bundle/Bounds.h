// A mask's key intervals as data: the small expression table by which the planner
// knows, without a compiler, which keys a range of queries may see.
//
// An expression is a postfix program over 64-bit integers. An interval set is a union
// of intervals [lo, hi), each optionally thinned to keys k with
// (k - phase) mod stride < width.
#pragma once

#include <cstdint>
#include <vector>

namespace llmopt::bundle {

enum class BoundOp : uint8_t {
  Const,     ///< push `value`
  QueryLo,   ///< push the smallest query position of the range
  QueryHi,   ///< push the largest query position of the range
  QueryLen,  ///< push the sequence's query length
  KeyLen,    ///< push the sequence's key length
  Scalar,    ///< push run-time scalar `value`
  ScalarMin, ///< push the smallest per-head value of per-head scalar `value`
  ScalarMax, ///< push the largest one
  Add,
  Sub,
  Mul,
  Min,
  Max,
  FloorDiv, ///< floor(a / b), b > 0; b <= 0 yields 0
  FloorMod, ///< a - b * floor(a / b), b > 0; b <= 0 yields 0
};

struct BoundInsn {
  BoundOp op;
  int64_t value = 0;
  bool operator==(const BoundInsn &) const = default;
};

using BoundProgram = std::vector<BoundInsn>;

struct BoundInterval {
  BoundProgram lo, hi;
  /// Empty when every key of [lo, hi) belongs.
  BoundProgram stride = {}, phase = {}, width = {};
  bool operator==(const BoundInterval &) const = default;
};

/// What MAY be visible to some query of a range, as a union. An empty list: nothing.
struct BoundSet {
  std::vector<BoundInterval> intervals;
  bool operator==(const BoundSet &) const = default;
};

} // namespace llmopt::bundle

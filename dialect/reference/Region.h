// A small interpreter for mask and score regions: elementwise arith and math ops on
// scalars. Floats are double (rounded to their type after each op in Mode::Rounded) but
// infinite where their type overflows, in every mode: what a float32 cannot hold is no
// number there. Integers are int64 that wrap at the width of their type, index is int64, i1
// is 0 or 1.
#pragma once

#include "dialect/reference/Scores.h"

#include "llvm/ADT/DenseMap.h"

namespace llmopt::reference {

struct Scalar {
  double f = 0;
  int64_t i = 0;
};

/// What one op computes from its operands.
using ScalarFunction = std::function<Scalar(const Scalar *operands)>;

/// The function of an arith or math op (RegionOps.cpp).
llvm::Expected<ScalarFunction> scalarFunction(mlir::Operation &op);

class Region {
public:
  /// `region` is a region of the context's op, over (batch, head, query position, key
  /// position) for a mask, with the score in front for a score.
  static llvm::Expected<Region> compile(mlir::Region &region, const Context &context);

  bool visible(const Pair &pair) const { return run(nullptr, pair, Mode::Exact).i != 0; }
  double score(double score, const Pair &pair, Mode mode) const {
    return run(&score, pair, mode).f;
  }

private:
  static constexpr unsigned kMostOperands = 3;
  struct Step {
    ScalarFunction compute;
    unsigned operands[kMostOperands] = {};
    unsigned operandCount = 0;
    unsigned result = 0;
    std::optional<ElementType> type; ///< of a float result
  };
  /// A constant, or a number from outside the region.
  struct Capture {
    unsigned slot;
    Scalar number;
  };

  Scalar run(const double *score, const Pair &pair, Mode mode) const;
  llvm::Error addOp(mlir::Operation &op, const Context &context);
  llvm::Expected<unsigned> slotOf(mlir::Value value, const Context &context);

  llvm::DenseMap<mlir::Value, unsigned> slots;
  std::vector<Capture> captures;
  std::vector<Step> steps;
  unsigned slotCount = 0, resultSlot = 0;
};

} // namespace llmopt::reference

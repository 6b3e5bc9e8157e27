// How far a result may lie from the oracle: a rule derived from the formats.
//
// For a row of one query head, with u = 2^-24 (a float32 rounding):
//
//     max |error| <= 2 E + S + 8 sqrt(n) u max_c sum_j p_j |v_jc| + 1 ulp(max |O|)
//                  + 2^-126
//
// The last terms. A float32 sum over n keys has about sqrt(n) roundings' worth of
// error, relative to the sum of absolute values; 8 leaves room for the exponentials and
// for the rescaling of the running sum. The output is rounded once to its format. Below
// the least normal float32, 2^-126, nothing is promised: dot products of bf16 on CPUs and
// fast math on GPUs take subnormal numbers for 0, and a learned sink can make a whole row
// that small.
//
// E, the spec's own roundings. The oracle is evaluated once more with scores in
// float32, P relative to the row's maximum rounded to V's format, and the output
// rounded; E is the largest difference to the exact output. The maximum of a kernel
// runs; but rounding is relative, so that another maximum changes which values P takes
// and not how large the errors are. One sample can be lucky where few keys count, so E
// is at least u_P sqrt(sum p^2 v^2), the expected size of n independent roundings.
//
// S, float32 scores. A dot product over d terms in float32, in whatever order, is off
// by about sqrt(d) u sum |q_c k_c|; with the roundings of the scale, of the conversion to
// powers of 2 and of the difference to the maximum:
//
//     |error of s_j| <= e_j = (sqrt(d) + 8) u |scale| sum_c |q_c k_jc|.
//
// Score modifications map s_j +- e_j to an interval, and add roundings of their own; e_j
// becomes the distance to its farther end, plus 4 times the difference between float32
// and exact evaluation, plus 4 u |s_j|. With weights w_j = p_j exp(error of s_j):
//
//     o' - o = sum_j p_j (exp(error_j) - 1) (v_j - o) / sum_j w_j, so
//     |o' - o| <= S = exp(max e) sum_j p_j expm1(e_j) |v_j - o|,
//
// and never more than max_j |v_j - o|: the output is a mean of the v_j. One visible key
// gives S = 0, whatever its score. Scores near 2e4 have e_j near 2e-2: that is what
// float32 scores can promise there, and the rule says so.
//
// LSE: ln of the sum is off by the relative error of the sum, and by the roundings of
// maximum and logarithm, which are relative to their own magnitude:
//
//     |error| <= sum_j p_j expm1(e_j) + 8 sqrt(n) u + 8 u (|lse| + ln n + 1)
//
// Overflow. A region computes in the types of its ops: what lies beyond the range of
// float32 is infinite there, for the exact evaluation as for a kernel (Region.h), though its
// float64 could go on. An infinite score makes the row NaN (inf - inf), as IEEE has it, and
// NaN is due then. Where e_j decides whether a score is infinite, nothing can be promised
// and every result passes; so too beyond ln 2 times the largest float32, since a kernel may
// hold scores in units of log 2.
//
// -inf has to be met exactly, NaN by NaN; an infinite component by the same infinity or
// by NaN (inf * p where p underflows). A result that overflows the output's format may
// be infinite.
#pragma once

#include "dialect/reference/Reference.h"

namespace llmopt::reference {

struct RowTolerance {
  double output = 0, lse = 0;
};

/// `result` must come from Mode::Rounded.
RowTolerance toleranceOf(const RowResult &result, ElementType outputType);

/// One row's result against the oracle's.
struct RowVerdict {
  bool passed = true;
  double worst = 0;      ///< largest error over tolerance; infinite where not comparable
  int64_t component = 0; ///< where; -1: the LSE
  double got = 0, want = 0, tolerance = 0;
  double worstLse = 0; ///< the same of the LSE
};

/// `lse` is null where the op returns none.
RowVerdict judge(const RowResult &result, ElementType outputType, llvm::ArrayRef<double> output,
                 const double *lse);

} // namespace llmopt::reference

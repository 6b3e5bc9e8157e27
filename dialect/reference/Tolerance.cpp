#include "dialect/reference/Tolerance.h"

#include <cmath>
#include <limits>

namespace llmopt::reference {

namespace {

const double kUnit = std::ldexp(1.0, -24);
const double kLeastNormal = std::ldexp(1.0, -126);
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Error over tolerance; 0 where equal. `rounded` is the value with the spec's roundings.
double ratio(double got, double want, double rounded, double tolerance, bool mayOverflow) {
  if (mayOverflow)
    return 0;
  if (std::isnan(want))
    return std::isnan(got) ? 0 : kInfinity;
  if (std::isinf(want))
    return got == want || std::isnan(got) ? 0 : kInfinity;
  if (got == want || (std::isinf(rounded) && got == rounded))
    return 0;
  double error = std::fabs(got - want);
  return std::isnan(error) ? kInfinity : error / tolerance;
}

} // namespace

RowTolerance toleranceOf(const RowResult &result, ElementType outputType) {
  if (result.visible == 0 || result.exactBits)
    return {};
  double sampled = 0;
  for (size_t c = 0; c < result.output.size(); ++c) {
    double error = std::fabs(result.rounded[c] - result.output[c]);
    if (std::isfinite(error))
      sampled = std::fmax(sampled, error);
  }
  double accumulation = 8 * std::sqrt(double(result.visible)) * kUnit;
  RowTolerance tolerance;
  tolerance.output = 2 * std::fmax(sampled, result.roundingError) + result.scoreError +
                     accumulation * result.absSum + ulp(outputType, result.maxOutput) +
                     kLeastNormal;
  tolerance.lse = result.lseScoreError + accumulation +
                  8 * kUnit * (std::fabs(result.lse) + std::log(double(result.visible)) + 1);
  return tolerance;
}

RowVerdict judge(const RowResult &result, ElementType outputType, llvm::ArrayRef<double> output,
                 const double *lse) {
  RowTolerance tolerance = toleranceOf(result, outputType);
  RowVerdict verdict;
  for (size_t c = 0; c < output.size(); ++c) {
    double want = result.exactBits ? result.rounded[c] : result.output[c];
    double r = ratio(output[c], want, result.rounded[c], tolerance.output, result.mayOverflow);
    if (c == 0 || r > verdict.worst) {
      verdict.worst = r;
      verdict.component = int64_t(c);
      verdict.got = output[c];
      verdict.want = want;
      verdict.tolerance = tolerance.output;
    }
  }
  if (lse) {
    double want = result.exactBits ? double(float(result.lse)) : result.lse;
    verdict.worstLse = ratio(*lse, want, want, tolerance.lse, result.mayOverflow);
    if (std::isinf(result.lse) && *lse != result.lse) // no NaN for -inf
      verdict.worstLse = kInfinity;
    if (verdict.worstLse > 1 && verdict.worst <= 1) {
      verdict.component = -1;
      verdict.got = *lse;
      verdict.want = want;
      verdict.tolerance = tolerance.lse;
    }
  }
  verdict.passed = verdict.worst <= 1 && verdict.worstLse <= 1;
  return verdict;
}

} // namespace llmopt::reference

// A finished call against the oracle.
#pragma once

#include "dialect/reference/Rows.h"
#include "dialect/reference/Tolerance.h"
#include "tools/harness/Generate.h"

#include <functional>

namespace llmopt::harness {

struct Report {
  bool passed = true;
  int64_t rowsChecked = 0, rowsTotal = 0;
  double worst = 0;    ///< largest error over tolerance of the output
  double worstLse = 0; ///< the same of the LSE
  /// The first failing row, where one fails; component -1 is the LSE.
  reference::Row row;
  int64_t component = 0;
  double got = 0, want = 0, tolerance = 0;
  /// What failed first, in words; empty when the call passed.
  std::string failure;
};

/// Checks outputs, cache contents after an append, guard zones, padded rows and that
/// inputs are as they were. An error means that the call could not be judged.
llvm::Expected<Report> check(const Spec &spec, const Call &call, uint64_t seed = 1,
                             int64_t limit = reference::kAllRowsLimit);

/// Where output or LSE of two calls differ in a bit, in words; empty where they do not.
std::string differentBits(const Call &a, const Call &b);

} // namespace llmopt::harness

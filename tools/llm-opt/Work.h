// What a call must compute and move at least: the denominators of every measured figure.
#pragma once

#include "runtime/bundle/Program.h"
#include "tools/harness/Call.h"
#include "tools/harness/Generate.h"

namespace llmopt::cli {

struct Work {
  double pairs = 0;      ///< visible (query head, query, key) triples
  double flops = 0;      ///< 2 (d_qk + d_v) each
  double keyBytes = 0;   ///< every K and V row that some query of its sequence sees, once
  double queryBytes = 0; ///< Q and O once
};

/// Of an attention program; zeros for others. Counts by the mask's MAY intervals, so keys
/// hidden by data alone (a boolean tensor, a bias of -inf) count as visible.
Work workOf(const bundle::Program &program, const harness::Shape &shape, const harness::Call &call);

} // namespace llmopt::cli

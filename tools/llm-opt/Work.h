// What a call must compute and move at least (the denominators of every measured figure),
// and what its plan will visit.
#pragma once

#include "runtime/bundle/BoundsEval.h"
#include "runtime/bundle/Program.h"
#include "runtime/plan/Plan.h"
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

/// Of each sequence the keys that some query MAY see with some head.
std::vector<bundle::KeySet> visibleKeys(const bundle::Program &program, const harness::Shape &shape,
                                        const harness::Call &call);

/// Tiles by class. `empty` ones are never visited; `full` ones take no mask.
struct TileClasses {
  double empty = 0, full = 0, partial = 0;
  double visited() const { return full + partial; }
};

/// What the kernels will do with a plan.
struct Prediction {
  std::vector<TileClasses> tiles; ///< as Plan::attends
  double keyBytes = 0;            ///< K and V rows of visited tiles that MAY be visible
  double queryBytes = 0;          ///< Q of every item, O, and partials out and in
};

/// Follows the plan's items tile by tile.
Prediction predict(const bundle::Program &program, const runtime::Plan &plan,
                   const harness::Call &call);

} // namespace llmopt::cli

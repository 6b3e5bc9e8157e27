// What simulated kernels moved, by what it belongs to; and how their shared memory fared. `explain`
// prints it, and gates in the tests hold kernels to it.
#pragma once

#include "runtime/bundle/Program.h"
#include "runtime/device/sim/Counters.h"

#include <map>
#include <string>

namespace llmopt::cli {

/// Of each kernel, by its entry.
using Profiles = std::map<std::string, sim::Profile>;

/// What was loaded of a table, a part of the plan, a mask or a bias.
struct TableTraffic {
  double asked = 0;  ///< by all lanes
  double unique = 0; ///< each sector once in a kernel: what a cache that forgets nothing lets pass
};

/// Bytes of global memory by what they belong to.
struct Traffic {
  double keys = 0, uniqueKeys = 0; ///< K and V
  double queries = 0;              ///< Q, O and LSE, partials
  double queryLoads = 0;           ///< Q alone
  double uniquePartials = 0;       ///< partials on their way to be merged, each sector once
  double others = 0;               ///< all else, also stored
  std::map<std::string, TableTraffic> tables; ///< loads of these, by name

  /// Loaded from tables, each sector once.
  double uniqueTables() const;
};

Traffic trafficOf(const bundle::Program &program, const Profiles &profiles);

/// Wavefronts of ldmatrix and cp.async over what they would be without bank conflicts; 0 without
/// any of these instructions.
double matrixConflicts(const Profiles &profiles);

} // namespace llmopt::cli

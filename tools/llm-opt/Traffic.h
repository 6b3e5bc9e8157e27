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

/// Bytes of global memory by what they belong to.
struct Traffic {
  double keys = 0, uniqueKeys = 0; ///< K and V
  double queries = 0;              ///< Q, O and LSE, partials
  double others = 0;               ///< tables, plan, masks, biases
};

Traffic trafficOf(const bundle::Program &program, const Profiles &profiles);

/// Wavefronts of ldmatrix and cp.async over what they would be without bank conflicts; 0 without
/// any of these instructions.
double matrixConflicts(const Profiles &profiles);

} // namespace llmopt::cli

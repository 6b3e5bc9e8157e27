// The least that kernels must read of tables and of the plan, in whole sectors: each entry of a
// visible page once, each record that a kernel has work for once; of small arrays each element.
#pragma once

#include "runtime/bundle/Program.h"
#include "runtime/plan/Plan.h"
#include "tools/harness/Call.h"
#include "tools/harness/Generate.h"

#include <map>
#include <optional>
#include <string>

namespace llmopt::cli {

/// Bytes by the buffer's name, summed over kernels; arrays of which that is not known (masks,
/// biases, tensors of custom regions) have no entry.
std::map<std::string, double> leastOfTables(const bundle::Program &program,
                                            const runtime::Plan &plan, const harness::Shape &shape,
                                            const harness::Call &call);

/// The entry of a name, or of a list "plan.merges, plan.counters" of arrays at one place, of which
/// some are empty; none if one of them has none.
std::optional<double> leastOf(const std::map<std::string, double> &least, const std::string &names);

} // namespace llmopt::cli

// What one key tile costs an attend kernel, by its rows: the figures behind the planner's
// choice of kernel (Kernel::costPerTile).
#pragma once

#include <string>

#include "llvm/Support/Error.h"

namespace llmopt::bench {

/// Processor time of this process so far, all its threads together.
double processorSeconds();

/// Prints a line for each element type, head dimension and number of rows: processor time
/// of one core for a tile, measured, beside the cost that the bundle says.
llvm::Error printTileCosts(const std::string &filter);

} // namespace llmopt::bench

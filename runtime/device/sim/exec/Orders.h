// The same launch in several orders of its blocks and warps.
#pragma once

#include "runtime/device/sim/Simulator.h"

namespace llmopt::sim {

/// See Options::orders.
runtime::StatusOr<Counters> runOrders(const Module &module, GlobalMemory &memory,
                                      const Launch &launch, const Options &options, Fault *fault,
                                      Profile *profile, std::vector<Fault> *warnings);

} // namespace llmopt::sim

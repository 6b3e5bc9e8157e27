// Replays on a device, with kernels compiled for it.
#pragma once

#include "runtime/replay/Replay.h"

namespace llmopt::cli {

/// Steps of the scaled-down model (ReplayLayers.h) on a device by its name: cpu, cuda, sim, ...
/// The errors are those of opening it and of compiling for it.
runtime::StatusOr<runtime::ReplayDeviceSource> replayDevice(const std::string &name,
                                                            const runtime::ModelFacts &scaled);

} // namespace llmopt::cli

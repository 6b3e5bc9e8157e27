// A launch of `llm-opt sim` on a real device, through NVIDIA's driver: to see whether the simulator
// is right.
#pragma once

#include "tools/llm-opt/SimLaunch.h"

namespace llmopt::cli {

/// Runs the kernel of a PTX text on a CUDA device ("cuda", "cuda:1"); arrays that the kernel may
/// write hold the result.
runtime::Status runOnDriver(const std::string &device, const std::vector<uint8_t> &ptx,
                            const sim::Module &module, SimLaunch &launch);

} // namespace llmopt::cli

// CUDA C++ to PTX for tests, if this machine has NVRTC.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace llmopt::sim::test {

/// PTX for an architecture ("80"). Null if there is no NVRTC; text that does not
/// compile is a test failure.
std::optional<std::string> compileToPtx(const std::string &source, const std::string &arch,
                                        const std::vector<std::string> &options = {});

/// A file of tests/unit/sim/kernels.
std::string kernelSource(const std::string &name);

} // namespace llmopt::sim::test

// Which of a kernel's images a CUDA device runs: a decision on plain numbers.
#pragma once

#include "runtime/base/Status.h"
#include "runtime/bundle/Program.h"
#include "runtime/target/CudaArch.h"

#include <string>
#include <vector>

namespace llmopt::runtime {

struct ImageChoice {
  std::vector<uint32_t> usable;      ///< indices of images, the best first
  std::vector<std::string> rejected; ///< why each of the others does not do
};

/// Machine code for the very chip is best, then for the latest earlier chip of its family,
/// then PTX for the latest architecture. `driver` as Image::leastDriver.
ImageChoice chooseImages(const bundle::Program &program, const bundle::Kernel &kernel,
                         const CudaArch &chip, uint32_t driver);

/// "machine code for sm_80", "PTX for compute_80".
std::string describe(const bundle::Image &image);

} // namespace llmopt::runtime

// The specs whose kernels are mutated, and the calls that tell mutants from them.
#pragma once

#include "tools/harness/Generate.h"

#include <span>
#include <vector>

namespace llmopt::mutants {

/// A spec whose kernels have what the operators change, and the calls that they are run on.
struct Given {
  const char *name, *spec;
  std::vector<harness::Shape> (*shapes)();
};

std::span<const Given> givenSpecs();

} // namespace llmopt::mutants

// The kernels that `llm-opt sim` is given: PTX, or CUDA C++, which NVRTC compiles to PTX.
#pragma once

#include "runtime/base/Status.h"

#include <string>
#include <vector>

namespace llmopt::cli {

struct SimSource {
  std::string path; ///< CUDA C++ if it ends with ".cu"
  // For CUDA C++ alone.
  std::string arch;                           ///< "sm_90a"; empty: sm_80
  std::vector<std::string> defines, includes; ///< "NAME=VALUE"; folders

  bool isCuda() const { return path.ends_with(".cu"); }
};

struct SimText {
  std::string ptx;
  std::string name; ///< for messages
};

/// The PTX of a source. Mistakes of a CUDA C++ text come with NVRTC's messages.
runtime::StatusOr<SimText> readSimSource(const SimSource &source);

} // namespace llmopt::cli

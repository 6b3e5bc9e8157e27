// Names of devices on the command line.
#pragma once

#include <string>

namespace llmopt::cli {

/// Why `device` cannot be used, in words; empty when it can. `auto` is the CPU where there
/// is no other device.
inline std::string deviceProblem(const std::string &device) {
  if (device == "auto" || device == "cpu")
    return "";
  if (device == "cuda" || device == "sim")
    return "device '" + device + "' is not available in this build; use cpu or auto";
  return "unknown device '" + device + "'; cpu and auto can be had";
}

} // namespace llmopt::cli

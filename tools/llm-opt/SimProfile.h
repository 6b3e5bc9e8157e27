// Profiles of the simulator for people and programs.
#pragma once

#include "runtime/device/sim/Counters.h"

#include <nlohmann/json.hpp>

#include <string>

namespace llmopt::cli {

/// What the instructions of one source line did together. Without a line table each line of
/// the PTX is one.
struct LineProfile {
  std::string file;
  uint32_t line = 0;
  uint64_t warps = 0, lanes = 0, mma = 0, barriers = 0;
  uint64_t globalBytes = 0, sectors = 0, wavefronts = 0, wavefrontsIdeal = 0, divergent = 0;
};

/// Lines in the order of the text; those that never ran are left out.
std::vector<LineProfile> byLine(const sim::Profile &profile);

nlohmann::ordered_json profileJson(const sim::Profile &profile);
/// Two tables: the `most` costly lines, and the buffers.
std::string profileText(const sim::Profile &profile, size_t most = 20);

} // namespace llmopt::cli

#include "runtime/device/sim/Counters.h"

namespace llmopt::sim {

std::string_view toString(InstClass c) {
  constexpr std::string_view kNames[kInstClasses] = {
      "integer", "float", "special", "convert", "move",       "predicate", "branch",     "global",
      "shared",  "local", "param",   "atomic",  "async-copy", "matrix",    "collective", "barrier"};
  auto index = static_cast<size_t>(c);
  return index < kInstClasses ? kNames[index] : "unknown";
}

Counters &Counters::operator+=(const Counters &other) {
  warpInstructions += other.warpInstructions;
  laneInstructions += other.laneInstructions;
  for (size_t i = 0; i < kInstClasses; ++i) {
    warpByClass[i] += other.warpByClass[i];
    laneByClass[i] += other.laneByClass[i];
  }
  globalLoadBytes += other.globalLoadBytes;
  globalStoreBytes += other.globalStoreBytes;
  globalSectors += other.globalSectors;
  sharedWavefronts += other.sharedWavefronts;
  sharedIdeal += other.sharedIdeal;
  mma += other.mma;
  mmaMultiplyAdds += other.mmaMultiplyAdds;
  barriers += other.barriers;
  divergentBranches += other.divergentBranches;
  return *this;
}

} // namespace llmopt::sim

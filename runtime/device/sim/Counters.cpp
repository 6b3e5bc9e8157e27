#include "runtime/device/sim/Counters.h"

#include <algorithm>

namespace llmopt::sim {

std::string_view toString(InstClass c) {
  constexpr std::string_view kNames[kInstClasses] = {
      "integer", "float", "special", "convert", "move",       "predicate", "branch",     "global",
      "shared",  "local", "param",   "atomic",  "async-copy", "matrix",    "collective", "barrier"};
  auto index = static_cast<size_t>(c);
  return index < kInstClasses ? kNames[index] : "unknown";
}

AccessCounts &AccessCounts::operator+=(const AccessCounts &other) {
  globalLoadBytes += other.globalLoadBytes;
  globalStoreBytes += other.globalStoreBytes;
  globalSectors += other.globalSectors;
  sharedWavefronts += other.sharedWavefronts;
  sharedIdeal += other.sharedIdeal;
  divergentBranches += other.divergentBranches;
  return *this;
}

Counters &Counters::operator+=(const Counters &other) {
  AccessCounts::operator+=(other);
  warpInstructions += other.warpInstructions;
  laneInstructions += other.laneInstructions;
  for (size_t i = 0; i < kInstClasses; ++i) {
    warpByClass[i] += other.warpByClass[i];
    laneByClass[i] += other.laneByClass[i];
  }
  mma += other.mma;
  mmaMultiplyAdds += other.mmaMultiplyAdds;
  barriers += other.barriers;
  return *this;
}

Profile &Profile::operator+=(const Profile &other) {
  if (instructions.empty())
    instructions = other.instructions;
  else
    for (size_t i = 0; i < std::min(instructions.size(), other.instructions.size()); ++i) {
      InstProfile &mine = instructions[i];
      const InstProfile &theirs = other.instructions[i];
      mine += theirs;
      mine.warps += theirs.warps;
      mine.lanes += theirs.lanes;
    }
  for (const BufferProfile &theirs : other.buffers) {
    auto mine = std::find_if(buffers.begin(), buffers.end(),
                             [&](const BufferProfile &b) { return b.name == theirs.name; });
    if (mine == buffers.end()) {
      buffers.push_back(theirs);
      continue;
    }
    mine->loadBytes += theirs.loadBytes;
    mine->storeBytes += theirs.storeBytes;
    mine->sectors += theirs.sectors;
    mine->uniqueLoadBytes += theirs.uniqueLoadBytes;
    mine->uniqueStoreBytes += theirs.uniqueStoreBytes;
  }
  return *this;
}

} // namespace llmopt::sim

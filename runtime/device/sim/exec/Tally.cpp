// What the threads of a launch counted, put together.
#include "runtime/device/sim/exec/Block.h"

#include <algorithm>

namespace llmopt::sim {

InstTally &InstTally::operator+=(const InstTally &other) {
  AccessCounts::operator+=(other);
  issued += other.issued;
  lanes += other.lanes;
  return *this;
}

BufferTally &BufferTally::operator+=(const BufferTally &other) {
  loadBytes += other.loadBytes;
  storeBytes += other.storeBytes;
  sectors += other.sectors;
  auto join = [](std::vector<uint64_t> &into, const std::vector<uint64_t> &from) {
    into.resize(std::max(into.size(), from.size()));
    for (size_t i = 0; i < from.size(); ++i)
      into[i] |= from[i];
  };
  join(loaded, other.loaded);
  join(stored, other.stored);
  return *this;
}

Tally &Tally::operator+=(const Tally &other) {
  for (size_t i = 0; i < at.size(); ++i)
    at[i] += other.at[i];
  for (size_t i = 0; i < buffers.size(); ++i)
    buffers[i] += other.buffers[i];
  mmaMultiplyAdds += other.mmaMultiplyAdds;
  barriers += other.barriers;
  return *this;
}

Counters countersOf(const Kernel &kernel, const Tally &tally) {
  Counters counters;
  for (size_t i = 0; i < kernel.code.size(); ++i) {
    const InstTally &at = tally.at[i];
    auto cls = static_cast<size_t>(kernel.code[i].cls);
    counters.warpInstructions += at.issued;
    counters.laneInstructions += at.lanes;
    counters.warpByClass[cls] += at.issued;
    counters.laneByClass[cls] += at.lanes;
    static_cast<AccessCounts &>(counters) += at;
  }
  counters.mma = counters.warpByClass[static_cast<size_t>(InstClass::Matrix)];
  counters.mmaMultiplyAdds = tally.mmaMultiplyAdds;
  counters.barriers = tally.barriers;
  return counters;
}

Profile profileOf(const Grid &grid, const Tally &tally) {
  Profile profile;
  for (size_t i = 0; i < grid.kernel->code.size(); ++i) {
    const Place &place = grid.kernel->places[i];
    const InstTally &at = tally.at[i];
    InstProfile &inst = profile.instructions.emplace_back();
    static_cast<AccessCounts &>(inst) = at;
    inst.line = place.line;
    inst.text = place.text;
    inst.sourceFile = grid.program->file(place.sourceFile);
    inst.sourceLine = place.sourceLine;
    inst.cls = grid.kernel->code[i].cls;
    inst.warps = at.issued;
    inst.lanes = at.lanes;
  }
  constexpr uint64_t kSectorBytes = 32;
  auto bytesOf = [](const std::vector<uint64_t> &sectors) {
    uint64_t count = 0;
    for (uint64_t word : sectors)
      count += static_cast<uint64_t>(std::popcount(word));
    return count * kSectorBytes;
  };
  for (size_t i = 0; i < tally.buffers.size(); ++i) {
    const BufferTally &buffer = tally.buffers[i];
    if (buffer.sectors)
      profile.buffers.push_back({grid.memory->buffers()[i].name, buffer.loadBytes,
                                 buffer.storeBytes, buffer.sectors, bytesOf(buffer.loaded),
                                 bytesOf(buffer.stored)});
  }
  return profile;
}

} // namespace llmopt::sim

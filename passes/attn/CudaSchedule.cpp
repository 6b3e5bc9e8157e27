// Tile sizes for CUDA: see Schedule.h.
#include "passes/attn/Schedule.h"

#include <algorithm>

using namespace llmopt;

namespace {

constexpr int64_t kWarps = 4;
/// Rows of one mma.m16n8k16.
constexpr int64_t kStepRows = 16;

/// Largest head size whose results all fit into shared memory at an item's end.
constexpr int64_t kExchangedHead = 256;
/// Lanes of a warp, each of which writes four neighbours of a row.
constexpr int64_t kLanes = 32, kNeighbours = 4;

/// Head size from which a thread has no registers for the scores of 64 keys.
constexpr int64_t kWideHead = 192;

int64_t roundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

struct Sizes {
  int64_t keys, stages;
};

/// Shared memory of a block whose items have `rows` rows.
int64_t sharedBytes(const ScheduleRequest &request, int64_t rows, int64_t slices, Sizes sizes) {
  bool tensor = request.elementBytes == 2;
  int64_t dQk = roundUp(request.dQk, 16), dV = roundUp(request.dV, 16);
  int64_t keyTiles = sizes.stages * sizes.keys * (dQk + dV) * request.elementBytes;
  int64_t queries = roundUp(rows, 16) * dQk * request.elementBytes;
  // At an item's end: outputs, maxima and sums, which a loop over the rows folds and writes.
  int64_t folded =
      slices > 1 || (tensor && dV <= kExchangedHead) ? rows * slices * (dV * 4 + 256) : 0;
  // On tensor cores weights stay in registers, and queries mostly (they are counted, as wide
  // heads keep them); the plain units read both from shared memory.
  int64_t weights = tensor ? 0 : roundUp(rows, 16) * roundUp(sizes.keys, 16) * 4;
  return std::max(keyTiles + queries + weights, folded);
}

} // namespace

Schedule llmopt::chooseCudaSchedule(const ScheduleRequest &request,
                                    const runtime::CudaTarget &target) {
  Schedule schedule;
  schedule.batchInvariant = request.batchInvariant;
  schedule.warps = kWarps;
  schedule.oneLoop = true;
  bool tensor = request.elementBytes == 2;
  // As many rows as make the products of a tile (4 operations for each element of K and V)
  // take as long as reading it; half, since the second-level cache serves repeated reads.
  schedule.overheadRows = (tensor ? target.tensorRate : target.plainRate) / target.bandwidth *
                          double(request.elementBytes) / 2 / 2;

  // Decode: the heads of one group, rounded to what a product takes. Fewer rows than warps
  // have steps for: the warps share out the keys.
  // On the plain units twice as many rows would leave too few registers.
  int64_t many = tensor ? kWarps * kStepRows : kWarps * kStepRows / 2;
  int64_t few = std::min(many, roundUp(std::max<int64_t>(request.group, 1), kStepRows));
  if (few > many / 2)
    few = many;
  auto slicesOf = [&](int64_t rows) { return tensor ? std::max<int64_t>(1, many / rows) : 1; };
  if (request.rows > 0) {
    schedule.rows = {request.rows};
    schedule.slices = {1};
  } else if (request.batchInvariant || few == many) {
    // One kernel for all phases: a row's sums are the same in each.
    schedule.rows = {many};
    schedule.slices = {1};
  } else {
    schedule.rows = {few, many};
    schedule.slices = {slicesOf(few), 1};
  }

  // At an item's end: as few rows at a time as give every lane something to write.
  if (tensor && request.dV <= kExchangedHead) {
    int64_t lanes = 1;
    while (lanes < kLanes && lanes * kNeighbours < request.dV)
      lanes *= 2;
    schedule.endRows = kWarps * (kLanes / lanes);
  }

  // The most keys and stages that fit, keys first down to what slices allow.
  int64_t budget = target.sharedBytesPerBlock;
  const Sizes choices[] = {{64, 2}, {32, 2}, {32, 1}, {16, 1}};
  Sizes chosen = choices[3];
  auto need = [&](Sizes sizes) {
    int64_t most = 0;
    for (size_t i = 0; i < schedule.rows.size(); ++i)
      most = std::max(most, sharedBytes(request, schedule.rows[i], schedule.slices[i], sizes));
    return most;
  };
  for (Sizes sizes : choices) {
    // A thread's accumulators take dV / 2 registers and its scores keys / 2, of 255.
    if (tensor && request.dV > kWideHead && sizes.keys > 32)
      continue;
    chosen = sizes;
    if (request.keys > 0)
      chosen.keys = request.keys;
    if (need(chosen) <= budget)
      break;
  }
  schedule.keys = chosen.keys;
  schedule.stages = chosen.stages;
  for (int64_t &slices : schedule.slices) // a slice has whole steps of 16 keys
    while (slices > 1 && (schedule.keys % slices || schedule.keys / slices % kStepRows))
      slices /= 2;
  schedule.reason = "rows";
  for (size_t i = 0; i < schedule.rows.size(); ++i)
    schedule.reason += (i ? " and " : " ") + std::to_string(schedule.rows[i]) + " (" +
                       std::to_string(schedule.slices[i]) + " slices of keys)";
  schedule.reason += ", keys " + std::to_string(schedule.keys) + ", " +
                     std::to_string(schedule.stages) + " stages: about " +
                     std::to_string(need(chosen)) + " of " + std::to_string(budget) +
                     " bytes of shared memory, " + std::to_string(kWarps) + " warps";
  return schedule;
}

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

/// Blocks that a multiprocessor should hold: two hide each other's waits, and more would leave a
/// thread too few registers for fragments.
constexpr int64_t kWantedBlocks = 2;

/// What a load takes on its way at full load, in seconds: with bandwidth, how many bytes must be on
/// their way.
constexpr double kLatency = 1e-6;

/// More tiles on their way than this are waited for elsewhere.
constexpr int64_t kMostStages = 4;

/// A thread's registers beside fragments: addresses, positions, loop counters; from the assembler's
/// figures for heads of 64 to 128 elements (docs/results/cuda.md), rounded up.
constexpr int64_t kOtherRegisters = 84, kMostRegisters = 255;

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

/// Registers of a thread, whose warp has 16 rows: accumulators, scores, their weights as 16-bit
/// pairs, queries.
int64_t registers(const ScheduleRequest &request, int64_t slices, int64_t keys) {
  if (request.elementBytes != 2)
    return kMostRegisters;
  int64_t own = keys / slices;
  int64_t fragments =
      roundUp(request.dV, 16) / 2 + own / 2 + own / 4 + roundUp(request.dQk, 16) / 4;
  return std::min(kMostRegisters, fragments + kOtherRegisters);
}

/// Bytes of K and V that a multiprocessor must have on their way to be busy with memory alone.
double wantedBytes(const runtime::CudaTarget &target) {
  return target.bandwidth / double(std::max(1u, target.sms)) * kLatency;
}

/// One of a schedule's kernels, and how many of its blocks a multiprocessor holds.
class Fit {
public:
  Fit(const ScheduleRequest &request, const runtime::CudaTarget &target, const Schedule &schedule)
      : request(request), target(target), schedule(schedule) {}

  int64_t bytes(size_t kernel, Sizes sizes) const {
    return sharedBytes(request, schedule.rows[kernel], schedule.slices[kernel], sizes);
  }
  int64_t mostBytes(Sizes sizes) const {
    int64_t most = 0;
    for (size_t i = 0; i < schedule.rows.size(); ++i)
      most = std::max(most, bytes(i, sizes));
    return most;
  }
  runtime::Residency resident(size_t kernel, Sizes sizes) const {
    return runtime::residentBlocks(
        target, {uint32_t(32 * schedule.warps),
                 uint32_t(registers(request, schedule.slices[kernel], sizes.keys)),
                 uint64_t(bytes(kernel, sizes))});
  }
  /// Blocks of the kernel that fits worst; 0 where one block has not enough shared memory.
  int64_t blocks(Sizes sizes) const {
    if (mostBytes(sizes) > int64_t(target.sharedBytesPerBlock))
      return 0;
    int64_t least = kWantedBlocks;
    for (size_t i = 0; i < schedule.rows.size(); ++i)
      least = std::min(least, int64_t(resident(i, sizes).blocks));
    return least;
  }
  /// Bytes of K and V on their way to a multiprocessor while one tile of each block is computed.
  int64_t underWay(Sizes sizes) const {
    return blocks(sizes) * (sizes.stages - 1) * sizes.keys * (request.dQk + request.dV) *
           request.elementBytes;
  }

private:
  const ScheduleRequest &request;
  const runtime::CudaTarget &target;
  const Schedule &schedule;
};

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

  // Tiles of keys (docs/design/cuda-kernels.md): the most keys for which copies run ahead, then
  // what fits. Fewer keys, so that two blocks are resident, were tried: a kernel spilled.
  Fit fit(request, target, schedule);
  const Sizes choices[] = {{64, 2}, {32, 2}, {32, 1}, {16, 1}};
  Sizes chosen = choices[3];
  for (Sizes sizes : choices) {
    // A thread's accumulators take dV / 2 registers and its scores keys / 2, of 255.
    if (tensor && request.dV > kWideHead && sizes.keys > 32)
      continue;
    chosen = sizes;
    if (request.keys > 0)
      chosen.keys = request.keys;
    if (fit.mostBytes(chosen) <= int64_t(target.sharedBytesPerBlock))
      break;
  }
  // As many stages more as keep memory busy and cost no block.
  while (chosen.stages > 1 && chosen.stages < kMostStages &&
         double(fit.underWay(chosen)) < wantedBytes(target) &&
         fit.blocks({chosen.keys, chosen.stages + 1}) == fit.blocks(chosen))
    ++chosen.stages;
  schedule.keys = chosen.keys;
  schedule.stages = chosen.stages;
  for (int64_t &slices : schedule.slices) // a slice has whole steps of 16 keys
    while (slices > 1 && (schedule.keys % slices || schedule.keys / slices % kStepRows))
      slices /= 2;
  // Registers are estimated by tiles that are folded already.
  int64_t least = kWantedBlocks;
  for (size_t i = 0; i < schedule.rows.size(); ++i) {
    schedule.blocks.push_back(
        std::clamp<int64_t>(fit.resident(i, chosen).blocks, 1, kWantedBlocks));
    schedule.readsAhead.push_back(true);
    least = std::min(least, schedule.blocks.back());
  }
  schedule.workers = least * int64_t(target.sms);
  auto text = [](int64_t value) { return std::to_string(value); };
  schedule.reason = "rows";
  for (size_t i = 0; i < schedule.rows.size(); ++i)
    schedule.reason += (i ? " and " : " ") + text(schedule.rows[i]) + " (" +
                       text(schedule.slices[i]) + " slices of keys)";
  schedule.reason += ", keys " + text(schedule.keys) + ", " + text(schedule.stages) +
                     " stages: about " + text(fit.mostBytes(chosen)) + " of " +
                     text(int64_t(target.sharedBytesPerBlock)) + " bytes of shared memory, " +
                     text(kWarps) + " warps; " + text(least) + (least == 1 ? " block" : " blocks") +
                     " on each of " + text(target.sms) + " multiprocessors";
  runtime::Residency limit{~0u, ""};
  for (size_t i = 0; i < schedule.rows.size(); ++i)
    if (runtime::Residency own = fit.resident(i, chosen); own.blocks < limit.blocks)
      limit = own;
  if (limit.blocks < kWantedBlocks)
    schedule.reason += std::string(", limited by ") + limit.limit;
  schedule.reason += "; " + text(fit.underWay(chosen) >> 10) +
                     " KiB of K and V on their way to one, " +
                     text(int64_t(wantedBytes(target)) >> 10) + " keep its share of memory busy";
  return schedule;
}

// See Schedule.h.
#include "passes/attn/Schedule.h"

#include <algorithm>

using namespace llmopt;

namespace {

/// Rows of a decode tile are the heads of one group, up to this many; beyond, lanes that
/// run over rows are full enough.
constexpr int64_t kFewRowsLimit = 16;

/// Cost of reading K and V from memory and staging them, in rows of 16 lanes: measured with
/// `attention-bench --tiles` on one core (docs/results/cpu.md). From a cache it is a third
/// of that; then few keys are read, and a wrong choice costs little.
constexpr double kTileOverheadRows = 6, kRowsPerElementByte = 5;
constexpr double kMeasuredLanes = 16;

/// Up to this many rows a head, products read K and V where they lie; the heads are walked together
/// only then, and up to so many rows in all.
constexpr int64_t kInPlaceRows = 8, kTogetherRows = 64;
/// Bytes of K or V of 16 tokens, which wait in the first caches until all heads have taken theirs.
constexpr int64_t kTogetherBytes = 64 << 10;

/// Bytes side by side from which on heads are walked together. Shorter runs end before the
/// hardware's prefetches do, which then read in vain: pages of one token of 1 KiB 17 instead of 21
/// GB/s on Zen 4. Requests of products by FMA go to several runs at once: on Emerald Rapids 17.6
/// instead of 16.1 GB/s for such pages, 4 rows a head.
int64_t leastRun(int64_t rows, const runtime::CpuTarget &target) {
  return target.slowBf16Dot && rows >= 4 ? 1 << 10 : 4 << 10;
}

/// KV heads to walk together: all or one, since a part of each token's row is read no faster than
/// one head's (docs/results/cpu.md).
int64_t headsTogether(const ScheduleRequest &request, int64_t rows,
                      const runtime::CpuTarget &target) {
  int64_t bytes = 16 * std::max(request.dQk, request.dV) * request.elementBytes;
  bool together = rows <= kInPlaceRows && request.heads * rows <= kTogetherRows &&
                  request.heads * bytes <= kTogetherBytes &&
                  request.runBytes >= leastRun(rows, target);
  return together ? request.heads : 1;
}

int64_t roundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

} // namespace

double llmopt::tileCost(const Schedule &schedule, int64_t rows, int64_t dQk, int64_t dV) {
  return (double(rows) + schedule.overheadRows) * double(schedule.keys * (dQk + dV));
}

Schedule llmopt::chooseCpuSchedule(const ScheduleRequest &request,
                                   const runtime::CpuTarget &target) {
  Schedule schedule;
  schedule.batchInvariant = request.batchInvariant;
  schedule.oneLoop = schedule.branchScores = true;
  schedule.keys = request.keys > 0 ? request.keys : 64;
  int64_t lanes = std::max<int64_t>(1, target.vectorBits / 32);
  // Narrower vectors take longer for a row, and memory does not.
  schedule.overheadRows = (kTileOverheadRows + kRowsPerElementByte * double(request.elementBytes)) *
                          double(lanes) / kMeasuredLanes;
  int64_t block = 4 * lanes; // rows of one register block
  schedule.partRows = std::max<int64_t>(block, 64);
  if (request.rows > 0) {
    schedule.rows = {request.rows};
    schedule.reason = "rows " + std::to_string(request.rows) + " as the spec wishes";
    return schedule;
  }
  // Q, the scores and the accumulator of a row stay in half of L2 while keys stream by;
  // 192 rows make staging K and V (once a tile) a few percent of the products. Where a core has
  // 2 MiB, 320 rows take 3 % less time at d = 64 and 1 % at 128 (2048 rows and keys; causal 1 %
  // more), powers of two 5 % more: columns of Q and O then share the sets of a cache.
  int64_t bytesPerRow = 4 * (request.dQk + request.dV + schedule.keys);
  int64_t budget = std::max<int64_t>(target.l2Bytes, 256 << 10) / 2;
  const int64_t most = target.l2Bytes >= (2 << 20) ? 320 : 192;
  int64_t many =
      std::clamp(budget / bytesPerRow / block * block, block, std::max<int64_t>(block, most));
  int64_t few = request.batchInvariant ? lanes : std::min(request.group, kFewRowsLimit);
  if (request.batchInvariant)
    few = roundUp(few, lanes);
  schedule.rows = {few};
  schedule.heads = {request.batchInvariant ? 1 : headsTogether(request, few, target)};
  if (many > few)
    schedule.rows.push_back(many);
  std::string together;
  if (schedule.heads.front() > 1)
    together = ", " + std::to_string(schedule.heads.front()) + " KV heads together";
  schedule.reason = "rows " + std::to_string(few) + " (group " + std::to_string(request.group) +
                    together + ") and " + std::to_string(many) + " (" +
                    std::to_string(bytesPerRow) + " bytes a row in " + std::to_string(budget) +
                    " bytes of L2, register block " + std::to_string(block) + "), keys " +
                    std::to_string(schedule.keys);
  return schedule;
}

// Choice of tile sizes: pure functions on numbers.
//
// A program holds up to two attend kernels: one with few packed rows (decode: one query
// token times the heads that share a KV head) and one with many (prefill). The planner
// gives each row tile to the cheaper of them. Example: GQA 32/8, d 128 on AVX-512 gives
// rows 4 and 192: a decode step packs its 4 heads into one tile and reads K and V once.
#pragma once

#include "runtime/target/CpuInfo.h"
#include "runtime/target/CudaTarget.h"

#include <cstdint>
#include <string>
#include <vector>

namespace llmopt {

/// What the choice depends on.
struct ScheduleRequest {
  int64_t group = 1; ///< query heads per KV head
  int64_t dQk = 0, dV = 0;
  int64_t elementBytes = 4;   ///< of an element of K and V
  int64_t rows = 0, keys = 0; ///< wishes of the spec's schedule clause; 0: none
  bool batchInvariant = false;
  /// KV heads whose rows of one token lie side by side and may be walked together; 1: none.
  int64_t heads = 1;
  int64_t runBytes = 0; ///< of a page's rows of all those heads, which lie side by side
};

struct Schedule {
  std::vector<int64_t> rows; ///< tile rows of the attend kernels, ascending
  int64_t keys = 64;         ///< keys of a tile, the same in all of them
  /// For each of `rows`: parts of a tile's keys with a softmax state of their own, so that
  /// warps without rows to share have keys to share; empty: one part.
  std::vector<int64_t> slices;
  /// For each of `rows`: KV heads that an item covers, one walk over their keys; empty: one.
  std::vector<int64_t> heads;
  int64_t warps = 0, stages = 0; ///< of a block on a GPU; tiles under way at a time
  /// On a GPU, for each of `rows`: blocks that a multiprocessor should hold at a time.
  std::vector<int64_t> blocks;
  /// On a GPU, for each of `rows`: a tile's pages are looked up a tile before its copies begin.
  std::vector<bool> readsAhead;
  int64_t workers = 0; ///< blocks of the grid that a whole GPU of the target holds
  bool batchInvariant = false;
  /// Full and partial tiles by one body, whose mask is a branch, instead of a body each: half
  /// the code, and copies run ahead from full tiles into partial ones.
  bool oneLoop = false;
  /// With `oneLoop`: each side of the branch makes the scores and their row maxima out of the
  /// products, in one pass over memory; otherwise the mask alone is in the branch.
  bool branchScores = false;
  /// An item's results are written by a loop that takes this many rows a turn, which is less code;
  /// 0: all at once.
  int64_t endRows = 0;
  /// Rows that a tile's trip leaves out together where none of them sees a key of the tile, or the
  /// item has no such rows; 0: all rows of a tile are computed.
  int64_t partRows = 0;
  /// What a tile costs besides its rows, in rows: reading and staging its keys and values.
  double overheadRows = 0;
  std::string reason; ///< one sentence with the numbers, for the remark
};

/// Relative time of one tile of a kernel with tiles of `rows` rows.
double tileCost(const Schedule &schedule, int64_t rows, int64_t dQk, int64_t dV);

Schedule chooseCpuSchedule(const ScheduleRequest &request, const runtime::CpuTarget &target);
/// On a GPU an item's rows are shared by the warps of one block: 64 on tensor cores, 16 each. Keys
/// and stages follow from the target's shared memory and registers (so that two blocks are
/// resident), bandwidth and multiprocessors (so that enough bytes are on their way).
/// Example: GQA 32/8, d 128 gives rows 16 with 4 slices (each warp takes 16 of a tile's 64
/// keys) and rows 64.
Schedule chooseCudaSchedule(const ScheduleRequest &request, const runtime::CudaTarget &target);

} // namespace llmopt

// Splits of the Auto policy: where one worker's work ends and the next one's begins.
//
// All row tiles of all heads lie on a line, in natural order, each as long as it costs. Heads that
// a kernel takes together are one place, so a cut through it parts the keys of all of them. The
// line is cut into as many parts of equal length as there are workers. A cut that falls near a
// tile's border moves there; else it goes through the tile at a whole key tile, and the tile
// becomes a split. So a batch of any lengths is balanced with fewer splits than workers, and
// neighbours, which read the same keys, stay together.
#pragma once

#include "runtime/plan/RowTiles.h"

#include <span>
#include <vector>

namespace llmopt::runtime {

/// A worker's first place on the line: a tile of a tuple of heads, and key tiles of it that lie
/// before.
struct LoadCut {
  uint64_t place = 0;    ///< tiles of tuples before it on the line
  uint32_t keyTiles = 0; ///< visible ones; 0: the tile's border
  auto operator<=>(const LoadCut &) const = default;
};

struct LoadRule {
  uint32_t workers = 1;
  uint32_t threads = 1;     ///< only cuts between threads go through tiles
  uint64_t partialRows = 0; ///< room; where there is none left, tiles are not cut
  uint64_t moreItems = 0;   ///< room besides one item a tile
};

/// Loads of a dealt line.
struct SplitLoads {
  uint64_t longest = 0, total = 0;
  uint32_t refused = 0; ///< cuts for which there was no room
};

class SplitByLoad {
public:
  explicit SplitByLoad(uint32_t workers) : cuts(workers + 1), trial(workers + 1) {}

  /// Cuts the line. Allocates nothing.
  SplitLoads cut(const PlanContext &context, std::span<const RowBlock> blocks,
                 std::span<const RowTile> tiles, const LoadRule &rule);
  /// The first place of each worker, and behind the last one a place beyond all.
  std::span<const LoadCut> places() const { return cuts; }

private:
  template <bool Tuples>
  SplitLoads cutLine(const PlanContext &context, std::span<const RowBlock> blocks,
                     std::span<const RowTile> tiles, const LoadRule &rule);

  std::vector<LoadCut> cuts, trial;
};

} // namespace llmopt::runtime

// What the planner thinks that work costs. One unit for all of it, so that loads can be
// compared: 1024 are a key tile of the program's cheapest kernel.
//
//   an item     = its visible key tiles, and a quarter of a tile for reading Q and writing O
//   a split     = for each row, its share of the bytes of writing the partial and reading it back
//
// Bytes stand for time: a decode kernel waits for memory, and what a kernel with more rows
// costs beside (Kernel::costPerTile) comes from the compiler.
#pragma once

#include "runtime/bundle/Program.h"

#include <cstdint>
#include <vector>

namespace llmopt::runtime {

/// One Attend kernel, as the planner sees it.
struct Variant {
  uint32_t kernel; ///< index in Program::kernels
  uint32_t attend; ///< index in Plan::attends
  uint32_t tileRows, tileKeys;
  uint32_t heads; ///< KV heads whose items go together
  double costPerTile;
  uint64_t tileCost, itemCost; ///< of one head, in units
  int tileShift = -1;          ///< tileKeys is 2 to the power of it; -1: of nothing

  uint32_t keyTileOf(uint32_t key) const {
    return tileShift >= 0 ? key >> tileShift : key / tileKeys;
  }
};

inline constexpr uint64_t kTileUnits = 1024;
/// Time that an item takes besides its tiles, in tiles.
inline constexpr double kItemTiles = 0.25;
/// The merge is one more pass over all threads; it takes about as long as this many tiles.
inline constexpr double kMergePassTiles = 2;
/// Row tiles of up to this many key tiles are not cut: a merge takes as long as is gained.
inline constexpr uint32_t kShortTiles = 4;

std::vector<Variant> attendVariants(const bundle::Program &program);

/// Units of one partial row: written, and read by the merge.
uint64_t partialRowCost(const bundle::Program &program);

} // namespace llmopt::runtime
